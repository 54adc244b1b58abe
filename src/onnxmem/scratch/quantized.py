"""Kernels that compute in bytes: wider sums beside the output, and images with their channels last."""

from __future__ import annotations

from onnxmem.scratch.convolution import steps_by_one
from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch, elements, taking

_POINTER = 8
_PIXELS_AT_ONCE = 512


def quantized_convolution(kernel: Kernel) -> Scratch:
    """QLinearConv."""
    data, weights, output = kernel.input(0), kernel.input(3), kernel.output()
    last = bool(kernel.attribute("channels_last", 0))
    group = kernel.attribute("group", 1)
    pixels = elements(output[1:-1] if last else output[2:])
    window = elements(weights[2:])
    if elements(output) == 0:
        return NOTHING
    depthwise = weights[1] == 1 and weights[0] == group
    symmetric = _symmetric(kernel, weights, group)
    # Weights that are not there at load time are turned at every run.
    taken = [] if kernel.is_constant(3) else [elements(weights)]
    if not symmetric:
        taken.append(4 * weights[0] * pixels)
    if not last:
        taken += [elements(data[1:]), weights[0] * pixels]
    # Where pixels come from: of one image, or of all where nothing has to be turned first.
    places = _POINTER * window * pixels * (output[0] if last and symmetric else 1)
    if depthwise:
        taken.append(places)
    elif window != 1 or not steps_by_one(kernel, window):
        columns = elements(weights[1:]) * pixels * (group if len(weights) > 4 else 1)
        taken.append(places if symmetric else columns)
    return taking(taken)


def integer_convolution(kernel: Kernel) -> Scratch:
    """ConvInteger: the columns of one image and group."""
    weights, output = kernel.input(1), kernel.output()
    if elements(output) == 0 or (elements(weights[2:]) == 1 and steps_by_one(kernel, elements(weights[2:]))):
        return NOTHING
    return taking([elements(weights[1:]) * elements(output[2:])])


def dynamically_quantized_product(kernel: Kernel) -> Scratch:
    """DynamicQuantizeMatMul: its input in bytes, before there is an output."""
    return Scratch((elements(kernel.input(0)),), before=1)


def quantized_product(kernel: Kernel) -> Scratch:
    """QLinearMatMul: sums of 32 bits."""
    return taking([4 * elements(kernel.output())])


def quantized_affine(kernel: Kernel) -> Scratch:
    """QGemm: a matrix that is turned first, and sums of 32 bits if the output has fewer."""
    turned = []
    if kernel.attribute("transA", 0):
        turned.append(elements(kernel.input(0)))
    if kernel.attribute("transB", 0) and not kernel.is_constant(3):
        turned.append(elements(kernel.input(3)))
    sums = [4 * elements(kernel.output())] if kernel.has_input(8) else []
    return Scratch((*turned, *sums), before=len(turned))


def quantized_average_pool(kernel: Kernel) -> Scratch:
    """QLinearAveragePool: its input as floats."""
    return taking([4 * elements(kernel.input(0))])


def largest_in_bytes(kernel: Kernel) -> Scratch:
    """NhwcMaxPool: for each pixel of as many as are done at once, where its window lies."""
    window: list[int] = kernel.attribute("kernel_shape", [])
    return taking([_POINTER * elements(window) * min(elements(kernel.output()[1:-1]), _PIXELS_AT_ONCE)])


def product_of_four_bits(kernel: Kernel) -> Scratch:
    """MatMulBnb4: its weights as floats, before there is an output."""
    return Scratch((4 * kernel.attribute("K", 0) * kernel.attribute("N", 0),), before=1)


def product_of_few_bits(kernel: Kernel) -> Scratch:
    """MatMulNBits: its input in bytes, or its weights as floats where no routine takes them as they are."""
    data, output = kernel.input(0), kernel.output()
    depth, size = kernel.attribute("K", data[-1]), kernel.attribute("block_size", 32)
    exact = kernel.attribute("accuracy_level", 0) != 4
    whole = kernel.has_input(3) and kernel.dtype(3) != "uint8"
    reordered = kernel.has_input(4)
    if not kernel.is_constant(1) or whole or reordered or (exact and kernel.attribute("bits", 4) != 4):
        taken = 4 * depth * kernel.attribute("N", output[-1])
    else:
        taken = 0 if exact else elements(data[:-1]) * -(-depth // size) * (size + 8)
    widened = 4 * (elements(data) + elements(output)) if kernel.width(0) < 4 else 0
    return Scratch(reserved=taken + widened)


def _symmetric(kernel: Kernel, weights: tuple[int, ...], group: int) -> bool:
    """Whether the convolution writes bytes at once, which it can where no zero point has to be taken off the weights.

    Zero points of signed weights are taken to be 0, as quantizers make them.
    """
    if not all(kernel.is_constant(place) for place in (2, 3, 5)):
        return False
    if kernel.dtype(0) != "uint8" or kernel.dtype(3) != "int8":
        return False
    if group > 1:
        return weights[0] == group and weights[1] == 1 and group % 16 == 0
    # With registers of 512 bits, blocks are of 16 channels, and four outputs are enough.
    return weights[0] >= 16 and weights[1] % 4 == 0 and weights[0] % (4 if kernel.block == 16 else 8) == 0
