"""Convolutions of floats in the plain layout: columns for a matrix multiplication.

In blocks of channels (NCHWc) they take nothing beside their outputs.
"""

from __future__ import annotations

from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch, elements, taking

_PER_THREAD = 128 * 128
"""Floats of a thread's piece of the columns."""
_WORTH_A_THREAD = 64 * 1024
"""Multiplications from which on another thread takes part."""
_MOST_THREADS = 16
_STRIDE = 16
"""Threads share the output pixels in multiples of this."""
_LANES = 8
"""Samples of a deformable convolution are laid out in groups of this many."""


def convolution(kernel: Kernel) -> Scratch:
    """Conv and FusedConv."""
    output = kernel.output()
    weights = kernel.input(1)
    window, pixels, group = weights[2:], elements(output[2:]), kernel.attribute("group", 1)
    columns = elements(weights[1:])
    if elements(output) == 0:
        return NOTHING
    if kernel.dtype(0) != "float32" or len(window) > 3:
        # The general kernel unfolds one image and group at a time; a float32 one does so even where it need not.
        pointwise = kernel.dtype(0) != "float32" and elements(window) == 1 and steps_by_one(kernel, 1)
        return taking([] if pointwise else [columns * pixels * kernel.width(0)])
    if _direct(kernel, weights):
        return NOTHING
    filters = weights[0] // group
    if filters > pixels:
        return taking([4 * pixels * columns])
    images = output[0] * group
    threads = _threads(filters * pixels * columns, pixels, kernel.threads)
    return taking([4 * _PER_THREAD * (threads if images == 1 else min(kernel.threads, images))])


def transposed_convolution(kernel: Kernel) -> Scratch:
    """ConvTranspose: the columns of one image and group, which are then folded into the output."""
    data, weights = kernel.input(0), kernel.input(1)
    if elements(kernel.output()) == 0:
        return NOTHING
    return taking([kernel.width(0) * elements(weights[1:]) * elements(data[2:])])


def deformable_convolution(kernel: Kernel) -> Scratch:
    """DeformConv: the columns of one image, and for each of their pixels four places and four weights."""
    weights, output = kernel.input(1), kernel.output()
    window, pixels = elements(weights[2:]), elements(output[2:])
    samples = kernel.attribute("offset_group", 1) * window * -(-pixels // _LANES) * _LANES
    return taking([4 * kernel.input(0)[1] * window * pixels, 32 * samples])


def steps_by_one(kernel: Kernel, window: int) -> bool:
    """No strides and no padding; SAME comes to none where the window is one pixel."""
    strides: list[int] = kernel.attribute("strides", [])
    pads: list[int] = kernel.attribute("pads", [])
    padded = any(pads) or (kernel.attribute("auto_pad", "NOTSET").startswith("SAME") and window != 1)
    return all(stride == 1 for stride in strides) and not padded


def _direct(kernel: Kernel, weights: tuple[int, ...]) -> bool:
    """Whether the input can be multiplied as it lies."""
    window_size = elements(weights[2:])
    if not steps_by_one(kernel, window_size):
        return False
    if window_size == 1:
        return True
    dilations: list[int] = kernel.attribute("dilations", [])
    if weights[1] != 1 or len(weights) > 4 or any(dilation != 1 for dilation in dilations):
        return False
    # One channel, and a window as wide as the image, or as high and one pixel wide.
    image, window = ((1, *shape)[-2:] for shape in (kernel.input(0)[2:], weights[2:]))
    return window[1] == image[1] or (window[0] == image[0] and window[1] == 1)


def _threads(multiplications: int, pixels: int, available: int) -> int:
    """How many threads share one image."""
    threads = min(multiplications // _WORTH_A_THREAD + 1, _MOST_THREADS, available)
    stride = -(-pixels // threads)
    if threads > 1:
        stride = -(-stride // _STRIDE) * _STRIDE
        if stride >= pixels:
            return 1
        if stride * (threads - 1) >= pixels:
            return threads - 1
    return threads
