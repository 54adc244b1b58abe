"""Convolutions, pooling and resizing: each output row is made of a window of input rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from onnxmem.model.blocks import BLOCKED_DOMAIN
from onnxmem.rewriting.local import Local, Rows, Window, rest
from onnxmem.rewriting.static import StaticGraph, StaticNode

# Plain convolutions multiply matrices as wide as the image has pixels. A product of up to this many terms is added up
# in one go; longer ones in pieces, and matrices narrower than 64 pixels in longer pieces. Threads share the pixels, and
# one of them may be left with a single one, which is multiplied by another routine.
_ONE_GO = 128
_WIDE_ENOUGH, _ENOUGH = 2048, 256


def conv(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Conv, FusedConv and their forms on blocks of channels: grouped, strided, dilated, padded."""
    image, filters, made = (graph.shape(name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if image is None or filters is None or made is None or not 2 <= axis < len(made) or len(image) != len(made):
        return None
    if node.attribute("channels_last", 0) or node.inputs[1] not in graph.weights:
        return None
    window = _window(node, axis, filters[2:], image, made)
    if window is None:
        return None
    windows: list[Window | None] = [window, None]
    if len(node.inputs) > 2:
        windows.append(None)
    if len(node.inputs) > 3:  # what it adds to its result
        windows.append(Window(axis))
    terms = prod(filters[1:])
    pixels = prod(made[2:]) // made[axis]
    least = 1
    if node.domain != BLOCKED_DOMAIN:
        least = _least_rows(terms, pixels)
    return Local(axis, rest(node, *windows), least=least, padded=True)


def _least_rows(terms: int, pixels: int) -> int:
    """How many rows of so many pixels are added up like all of them, `terms` at a time?"""
    return -(-(_ENOUGH if terms <= _ONE_GO else _WIDE_ENOUGH) // max(pixels, 1))


def pool(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """MaxPool and AveragePool, of plain tensors and of blocks."""
    image, made = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    kernel = node.attribute("kernel_shape", None)
    if image is None or made is None or kernel is None or not 2 <= axis < len(made) or len(node.outputs) > 1:
        return None
    if node.attribute("storage_order", 0) or node.attribute("channels_last", 0):
        return None
    window = _window(node, axis, kernel, image, made)
    if window is None or (node.op_type == "AveragePool" and not _averages(node, kernel, image, made)):
        return None
    if node.domain != BLOCKED_DOMAIN and axis == len(made) - 1:
        # Along rows it takes some columns at once and the rest one by one: averages are rounded otherwise there, and of
        # two zeros with different signs the other one is the largest.
        return None
    # ONNX Runtime refuses pads as wide as the kernel.
    overhang = window.over(Rows(0, made[axis])).high - image[axis]
    if max(overhang, window.pad) >= kernel[axis - 2]:
        return None
    return Local(axis, rest(node, window), padded=True)


def pads_of(node: StaticNode, kernel: Sequence[int], image: Sequence[int], made: Sequence[int]) -> list[int]:
    """All pads as numbers, begins first: ONNX can also say them by name."""
    count = len(kernel)
    by_name = node.attribute("auto_pad", "NOTSET")
    if by_name == "NOTSET":
        return list(node.attribute("pads", [0] * 2 * count))
    if by_name == "VALID":
        return [0] * 2 * count
    strides, dilations = _numbers(node, count)
    begins, ends = [], []
    for k in range(count):
        reach = (made[2 + k] - 1) * strides[k] + dilations[k] * (kernel[k] - 1) + 1
        total = max(0, reach - image[2 + k])
        begins.append(total // 2 if by_name == "SAME_UPPER" else total - total // 2)
        ends.append(total - begins[-1])
    return begins + ends


def with_pads(node: StaticNode, graph: StaticGraph, axis: int, pads: tuple[int, int]) -> dict[str, Any]:
    """The attributes of a convolution or pooling that has other pads before and after this axis."""
    image, made = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape
    kernel = node.attribute("kernel_shape", None) or graph.tensors[node.inputs[1]].shape[2:]
    all_pads = pads_of(node, kernel, image, made)
    all_pads[axis - 2], all_pads[axis - 2 + len(kernel)] = pads
    attributes = {name: value for name, value in node.attributes.items() if name != "auto_pad"}
    return {**attributes, "pads": all_pads}


def _numbers(node: StaticNode, count: int) -> tuple[list[int], list[int]]:
    return list(node.attribute("strides", [1] * count)), list(node.attribute("dilations", [1] * count))


def _window(
    node: StaticNode, axis: int, kernel: Sequence[int], image: Sequence[int], made: Sequence[int]
) -> Window | None:
    place, count = axis - 2, len(kernel)
    if count != len(made) - 2 or node.attribute("auto_pad", "NOTSET") not in (
        *("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    ):
        return None
    strides, dilations = _numbers(node, count)
    pads = pads_of(node, kernel, image, made)
    span = dilations[place] * (kernel[place] - 1) + 1
    window = Window(axis, strides[place], span, pads[place])
    # What is computed in parts has its pads as numbers; all of it must agree with them, and no window be padding alone.
    last = (made[axis] - 1) * strides[place] - pads[place]
    reaches = pads[place] < span and last < image[axis]
    return window if reaches and min(pads) >= 0 else None


def is_misjudged(node: StaticNode, graph: StaticGraph) -> bool:
    """Whether a pool makes another size than ONNX says and ONNX Runtime infers.

    Its kernels drop a last window that would begin in the padding behind, and pad dilated ones in a way of their own.
    """
    kernel = node.attribute("kernel_shape", None)
    if node.op_type not in ("MaxPool", "AveragePool", "LpPool") or not kernel:
        return False
    image, made = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if image is None or made is None:
        return False
    rank, auto_pad = len(kernel), node.attribute("auto_pad", "NOTSET")
    pads = [0] * (2 * rank) if auto_pad == "VALID" else node.attribute("pads", [0] * (2 * rank))
    strides, dilations = (node.attribute(name, [1] * rank) for name in ("strides", "dilations"))
    for each, (extent, rows) in enumerate(zip(image[-rank:], made[-rank:], strict=True)):
        room = extent + pads[each] + pads[each + rank] - (kernel[each] - 1) * dilations[each] - 1
        said = (-(-room // strides[each]) if node.attribute("ceil_mode", 0) else room // strides[each]) + 1
        if auto_pad.startswith("SAME"):
            said = -(-extent // strides[each])
        if said != rows:
            return True
    return False


def _averages(node: StaticNode, kernel: Sequence[int], image: Sequence[int], made: Sequence[int]) -> bool:
    """Does each window of an AveragePool divide by the same number if its pads are other ones?"""
    if node.attribute("count_include_pad", 0) and node.attribute("auto_pad", "NOTSET").startswith("SAME"):
        return False  # pads by name count otherwise than the same pads as numbers
    strides, dilations = _numbers(node, len(kernel))
    pads = pads_of(node, kernel, image, made)
    for k, size in enumerate(kernel):
        end = (made[2 + k] - 1) * strides[k] - pads[k] + dilations[k] * (size - 1) + 1
        # A window that hangs over the end of the padding has fewer values to average; padding it would change that.
        if end > image[2 + k] + pads[len(kernel) + k]:
            return False
    return True


def resize(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Resize and Upsample by whole factors: nearest, or linear where the factor is a power of two.

    Then the coordinates of a part, computed in floating point, are those of the whole, moved by a whole number.
    """
    image, made = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if image is None or made is None or axis < 2 or len(image) != len(made) or image[:2] != made[:2]:
        return None
    if any(new % old for old, new in zip(image, made, strict=True)) or node.attribute("antialias", 0):
        return None
    factor = made[axis] // image[axis]
    margin = _rim(node, max(new // old for old, new in zip(image, made, strict=True)))
    if margin is None or not _by_weights(node, graph):
        return None
    return Local(axis, rest(node, Window(axis)), factor, margin if factor > 1 else 0)


def _by_weights(node: StaticNode, graph: StaticGraph) -> bool:
    """Are sizes or scales stored in the model, and nothing else asked for?"""
    if node.domain == BLOCKED_DOMAIN or "scales" in node.attributes:
        return True
    if any(node.attributes.get(name) for name in ("axes", "keep_aspect_ratio_policy")):
        return False
    given = [name for name in node.inputs[1:] if name]
    return bool(given) and all(name in graph.weights for name in given)


def _rim(node: StaticNode, factor: int) -> int | None:
    """How many input rows beyond its own a row may be made of; None where parts would not be exact."""
    if factor & (factor - 1):
        return None
    mode, old = node.attribute("mode", "nearest"), node.op_type == "Upsample"
    places = node.attribute("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if mode not in ("nearest", "linear") or places not in ("half_pixel", "asymmetric", "pytorch_half_pixel"):
        return None
    if mode == "nearest":
        rounding = node.attribute("nearest_mode", "floor" if old else "round_prefer_floor")
        if (places, rounding) == ("asymmetric", "floor") or (places == "half_pixel" and rounding.startswith("round")):
            return 0
    return 1


def conv_transpose(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """ConvTranspose whose windows do not overlap: as wide as its strides, without pads."""
    image, filters, made = (graph.shape(name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if image is None or filters is None or made is None or not 2 <= axis < len(made):
        return None
    count = len(made) - 2
    strides, dilations = _numbers(node, count)
    plain = node.attribute("auto_pad", "NOTSET") == "NOTSET" and not node.attribute("output_shape", None)
    padded = any(node.attribute("pads", [0])) or any(node.attribute("output_padding", [0]))
    if not plain or padded or list(filters[2:]) != strides or any(d != 1 for d in dilations):
        return None
    if node.inputs[1] not in graph.weights:
        return None
    pixels = prod(image[2:]) // image[axis]
    factor = strides[axis - 2]
    least = _least_rows(filters[0] // node.attribute("group", 1), pixels) * factor
    return Local(axis, rest(node, Window(axis)), factor, least=least)


def depth_to_space(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Channels become pixels, each group of rows of one row."""
    made = graph.shape(node.outputs[0])
    if made is None or axis not in (2, 3):
        return None
    return Local(axis, rest(node, Window(axis)), int(node.attribute("blocksize", 1)))


def space_to_depth(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Pixels become channels, each row of a group of rows."""
    made = graph.shape(node.outputs[0])
    if made is None or axis not in (2, 3):
        return None
    size = int(node.attribute("blocksize", 1))
    return Local(axis, rest(node, Window(axis, size, size)))
