"""Output shapes where ONNX's own schemas stop: arithmetic on named dimensions.

Each rule gives the shapes of a node's outputs; a dimension it cannot tell is None. `shapes.py` asks ONNX first and
takes from here only what is still missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from onnxmem.model.comparing import certainly_at_least, evaluate, maximum, minimum
from onnxmem.model.dims import Dim, ceil_div, floor_div, product, symbols_of, total
from onnxmem.model.entries import Undecided
from onnxmem.model.values import TO_THE_END, Value, entries_of

Shape: TypeAlias = "tuple[Dim | None, ...] | None"


@dataclass(frozen=True)
class Call:
    """A node as a rule sees it."""

    op_type: str
    attributes: Mapping[str, Any]
    shapes: Sequence[tuple[Dim, ...] | None]
    values: Sequence[Value | None]
    outputs: int
    opset: int

    def shape(self, position: int) -> tuple[Dim, ...]:
        """The shape of an input; Undecided where it is not known."""
        found = self.shapes[position] if position < len(self.shapes) else None
        if found is None:
            raise Undecided
        return found

    def has(self, position: int) -> bool:
        """Is this optional input there?"""
        return position < len(self.shapes) and self.shapes[position] is not None

    def numbers(self, position: int, attribute: str = "") -> list[Any]:
        """A list that newer operators take as an input and older ones as an attribute."""
        if attribute in self.attributes:
            return list(self.attributes[attribute])
        if position >= len(self.values):
            raise Undecided
        return entries_of(self.values[position])


Rule: TypeAlias = Callable[[Call], Sequence[Shape]]


def infer(call: Call, rules: Mapping[str, Rule]) -> Sequence[Shape] | None:
    """The shapes of a node's outputs as far as they follow from its inputs, or None."""
    rule = rules.get(call.op_type)
    if rule is None:
        return None
    try:
        found = rule(call)
        # A number that a file gives where a size should be may be none.
        broken = any(isinstance(dim, float) for shape in found or () for dim in shape or ())
        return None if broken else found
    except (Undecided, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError):
        return None


def _int(dim: Dim) -> int:
    """A dimension that has to be a number here."""
    if isinstance(dim, int):
        return dim
    raise Undecided


def broadcast(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """NumPy's rule. Two unequal names must be equal or one of them 1 when it runs: the larger, either way."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_broadcast_dim(dims) for dims in zip(*padded, strict=True))


def _broadcast_dim(dims: Sequence[Dim]) -> Dim:
    different = list(dict.fromkeys(dim for dim in dims if dim != 1))
    fixed = [dim for dim in different if isinstance(dim, int)]
    if len(fixed) > 1:
        raise Undecided  # it will not run: ONNX has said so already, and its reason stands
    if fixed:
        return fixed[0]
    return maximum(*different) if different else 1


def _elementwise(call: Call) -> Sequence[Shape]:
    return [broadcast(*(call.shape(i) for i in range(len(call.shapes))))]


def same(call: Call) -> Sequence[Shape]:
    return [call.shape(0)] * call.outputs


def _window(call: Call, spatial: Sequence[Dim], kernel: Sequence[int]) -> list[Dim | None]:
    """Output extents of a sliding window."""
    attributes, rank = call.attributes, len(spatial)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * (2 * rank)
    auto_pad = attributes.get("auto_pad", "NOTSET")
    result: list[Dim | None] = []
    for axis, extent in enumerate(spatial):
        stride, reach = strides[axis], (kernel[axis] - 1) * dilations[axis] + 1
        before: Dim = 0 if auto_pad == "VALID" else pads[axis]
        padding: Dim = 0 if auto_pad == "VALID" else pads[axis] + pads[axis + rank]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = ceil_div(extent, stride)
            if "Pool" not in call.op_type or dilations[axis] == 1:
                result.append(wanted)
                continue
            # ONNX Runtime pads a pool as if it were not dilated: too little, or even less than nothing.
            padding = (wanted - 1) * stride + kernel[axis] - extent
            before = floor_div(padding + (auto_pad == "SAME_LOWER"), 2)
        room = extent + padding - reach
        if attributes.get("ceil_mode", 0):
            # A last window that would begin in the padding behind is dropped: of ceil((room + stride) / stride) and
            # ceil((extent + before) / stride), the smaller.
            result.append(ceil_div(extent + before + minimum(room + stride - extent - before, 0), stride))
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            # Less than nothing may leave no room for a window; division in C++ rounds towards zero, and one is run.
            result.append(floor_div(maximum(room, 0), stride) + 1)
        else:
            result.append(floor_div(room, stride) + 1)
    return result


def conv(call: Call) -> Sequence[Shape]:
    data, weight = call.shape(0), call.shape(1)
    kernel = call.attributes.get("kernel_shape") or [_int(dim) for dim in weight[2:]]
    return [(data[0], weight[0], *_window(call, data[2:], kernel))]


def qlinear_conv(call: Call) -> Sequence[Shape]:
    data, weight = call.shape(0), call.shape(3)
    kernel = call.attributes.get("kernel_shape") or [_int(dim) for dim in weight[2:]]
    if call.attributes.get("channels_last"):
        return [(data[0], *_window(call, data[1:-1], kernel), weight[0])]
    return [(data[0], weight[0], *_window(call, data[2:], kernel))]


def pool(call: Call) -> Sequence[Shape]:
    data = call.shape(0)
    kernel = call.attributes["kernel_shape"]
    if call.attributes.get("channels_last"):
        return [(data[0], *_window(call, data[1:-1], kernel), data[-1])]
    return [(*data[:2], *_window(call, data[2:], kernel))] * call.outputs


def _conv_transpose(call: Call) -> Sequence[Shape]:
    data, weight, attributes = call.shape(0), call.shape(1), call.attributes
    channels = weight[1] * attributes.get("group", 1)
    if attributes.get("output_shape"):
        return [(data[0], channels, *attributes["output_shape"][-(len(data) - 2) :])]
    rank = len(data) - 2
    kernel = attributes.get("kernel_shape") or weight[2:]
    strides, dilations = attributes.get("strides") or [1] * rank, attributes.get("dilations") or [1] * rank
    pads, extra = attributes.get("pads") or [0] * (2 * rank), attributes.get("output_padding") or [0] * rank
    same = attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    spatial: list[Dim] = []
    for axis, extent in enumerate(data[2:]):
        whole = (extent - 1) * strides[axis] + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        # ONNX wants extent * stride of "same"; ONNX Runtime crops to that, but does not add what is missing.
        spatial.append(minimum(whole, extent * strides[axis]) if same else whole - pads[axis] - pads[axis + rank])
    return [(data[0], channels, *spatial)]


def _concat(call: Call) -> Sequence[Shape]:
    shapes = [call.shape(i) for i in range(len(call.shapes))]
    axis = call.attributes["axis"] % len(shapes[0])
    joined = list(shapes[0])
    joined[axis] = total(shape[axis] for shape in shapes)
    for position in range(len(joined)):
        if position != axis:
            # All must agree when it runs; a number says more than a name.
            joined[position] = next((s[position] for s in shapes if isinstance(s[position], int)), joined[position])
    return [tuple(joined)]


def _reshape(call: Call) -> Sequence[Shape]:
    data, target = call.shape(0), call.numbers(1, "shape")
    result: list[Dim] = []
    for axis, extent in enumerate(target):
        result.append(data[axis] if extent == 0 and not call.attributes.get("allowzero") else extent)
    if -1 in result:
        rest = product(dim for dim in result if dim != -1)
        result[result.index(-1)] = 0 if rest == 0 else floor_div(product(data), rest)
    return [tuple(result)]


def _flatten(call: Call) -> Sequence[Shape]:
    data, axis = call.shape(0), call.attributes.get("axis", 1)
    return [(product(data[:axis]), product(data[axis:]))]


def _slice(call: Call) -> Sequence[Shape]:
    data = list(call.shape(0))
    starts, ends = call.numbers(1, "starts"), call.numbers(2, "ends")
    axes = call.numbers(3, "axes") if "axes" in call.attributes or call.has(3) else list(range(len(starts)))
    steps = call.numbers(4) if call.has(4) else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        position = _int(axis) % len(data)
        data[position] = _slice_extent(data[position], start, end, _int(step))
    return [tuple(data)]


def _slice_extent(extent: Dim, start: Dim, end: Dim, step: int) -> Dim:
    if step < 0:
        # Walking backwards: from at most the last element down to at least -1, the place before the first.
        first = _position(start, extent, 0, extent - 1)
        beyond = -1 if end in TO_THE_END else _position(end, extent, -1, extent)
        return maximum(0, ceil_div(first - beyond, -step))
    return maximum(0, ceil_div(_position(end, extent, 0, extent) - _position(start, extent, 0, extent), step))


# Exporters write "to the end" as some huge number; no dimension is that long.
_HUGE = 10**9


def _position(position: Dim, extent: Dim, lowest: Dim, highest: Dim) -> Dim:
    """A place in a dimension: counted from the end where it is negative, and no further than to the limits."""
    if isinstance(position, int) and abs(position) >= _HUGE:
        return highest if position > 0 else lowest
    if certainly_at_least(-1, position):
        position = extent + position
    elif not certainly_at_least(position, 0) and not _sign_is_of_no_account(position, extent):
        raise Undecided  # its sign decides which end it is counted from
    return minimum(maximum(position, lowest), highest)


def _sign_is_of_no_account(position: Dim, extent: Dim) -> bool:
    """Is it negative only where, counted from the end, it still lies before the beginning?

    So it is with 160*((N + 80)//160) - 80 in a dimension of N: it is no use to know the sign for N < 80.
    """
    names = symbols_of(position) | symbols_of(extent)
    if len(names) != 1 or not certainly_at_least(position, 0, dict.fromkeys(names, _SMALL)):
        return False
    for number in range(1, _SMALL):
        values = dict.fromkeys(names, number)
        place = evaluate(position, values)
        if place < 0 < evaluate(extent, values) + place + 1:
            return False
    return True


_SMALL = 1024


def _pad(call: Call) -> Sequence[Shape]:
    data, pads = list(call.shape(0)), call.numbers(1, "pads")
    axes = [_int(axis) for axis in call.numbers(3)] if call.has(3) else range(len(data))
    for k, axis in enumerate(axes):
        data[axis] = data[axis] + pads[k] + pads[k + len(pads) // 2]
    return [tuple(data)]


def _expand(call: Call) -> Sequence[Shape]:
    return [broadcast(call.shape(0), tuple(call.numbers(1)))]


def _tile(call: Call) -> Sequence[Shape]:
    return [tuple(dim * times for dim, times in zip(call.shape(0), call.numbers(1), strict=True))]


def _resize(call: Call) -> Sequence[Shape]:
    data, upsample = call.shape(0), call.op_type == "Upsample"
    sizes_at, scales_at = (9, 1) if upsample or call.opset < 11 else (3, 2)
    axes = [axis % len(data) for axis in call.attributes.get("axes", range(len(data)))]
    result: list[Dim | None] = list(data)
    if call.has(sizes_at) and call.shape(sizes_at) != (0,):
        if call.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Undecided
        for axis, size in zip(axes, call.numbers(sizes_at), strict=True):
            result[axis] = size
        return [tuple(result)]
    for axis, scale in zip(axes, call.numbers(scales_at, "scales"), strict=True):
        result[axis] = _scaled(data[axis], scale)
    return [tuple(result)]


def _scaled(extent: Dim, scale: Any) -> Dim | None:
    if isinstance(extent, int):
        return int(np.float32(extent) * np.float32(scale))  # 10 * 1.9 is 19 as ONNX Runtime rounds, 18.999… otherwise
    if float(scale).is_integer():
        return extent * int(scale)
    inverse = 1 / float(scale)
    return floor_div(extent, int(inverse)) if inverse.is_integer() else None


def _split(call: Call) -> Sequence[Shape]:
    data, axis = list(call.shape(0)), call.attributes.get("axis", 0)
    if "split" in call.attributes or call.has(1):
        parts = call.numbers(1, "split")
    else:
        # All equal but the last, which gets what is left.
        each = ceil_div(data[axis], call.outputs)
        parts = [each] * (call.outputs - 1) + [data[axis] - each * (call.outputs - 1)]
    return [(*data[: axis % len(data)], part, *data[axis % len(data) + 1 :]) for part in parts]


def _constant_of_shape(call: Call) -> Sequence[Shape]:
    return [tuple(call.numbers(0))]


def _range(call: Call) -> Sequence[Shape]:
    start, limit, delta = (call.numbers(position)[0] for position in range(3))
    return [(maximum(0, ceil_div(limit - start, delta)),)]


def _top_k(call: Call) -> Sequence[Shape]:
    data, axis = list(call.shape(0)), call.attributes.get("axis", -1)
    data[axis] = call.numbers(1)[0]
    return [tuple(data)] * 2


def _depth_to_space(call: Call) -> Sequence[Shape]:
    (batch, depth, height, width), block = call.shape(0), call.attributes["blocksize"]
    return [(batch, floor_div(depth, block * block), height * block, width * block)]


def _space_to_depth(call: Call) -> Sequence[Shape]:
    (batch, depth, height, width), block = call.shape(0), call.attributes["blocksize"]
    return [(batch, depth * block * block, floor_div(height, block), floor_div(width, block))]


def _stft(call: Call) -> Sequence[Shape]:
    signal, step = call.shape(0), call.numbers(1)[0]
    length = call.numbers(3)[0] if call.has(3) else call.shape(2)[0]
    bins = floor_div(length, 2) + 1 if call.attributes.get("onesided", 1) else length
    return [(signal[0], floor_div(signal[1] - length, step) + 1, bins, 2)]


def matmul(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape of a NumPy matrix product."""
    batch = broadcast(left[:-2], right[:-2]) if len(left) > 2 or len(right) > 2 else ()
    return (*batch, *(left[-2:-1] if len(left) > 1 else ()), *(right[-1:] if len(right) > 1 else ()))


def matmul_rule(call: Call) -> Sequence[Shape]:
    return [matmul(call.shape(0), call.shape(1))]


def _layer_norm(call: Call) -> Sequence[Shape]:
    data = call.shape(0)
    axis = call.attributes.get("axis", -1) % len(data)
    statistics = (*data[:axis], *[1] * (len(data) - axis))
    return [data, statistics, statistics][: call.outputs]


_BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Max", "Min", "Mean", "Sum", "And", "Or", "Xor"),
    *("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Where", "BitwiseAnd", "BitwiseOr"),
    *("BitwiseXor", "BitShift"),
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_BROADCASTING, _elementwise),
    "Conv": conv,
    "ConvInteger": conv,
    "QLinearConv": qlinear_conv,
    "MaxPool": pool,
    "AveragePool": pool,
    "LpPool": pool,
    "ConvTranspose": _conv_transpose,
    "Concat": _concat,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Slice": _slice,
    "Pad": _pad,
    "Expand": _expand,
    "Tile": _tile,
    "Resize": _resize,
    "Upsample": _resize,
    "Split": _split,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "TopK": _top_k,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "STFT": _stft,
    "MatMul": matmul_rule,
    "Dropout": same,
    # Of what is between a device and the host, which ONNX Runtime puts into graphs.
    "MemcpyFromHost": same,
    "MemcpyToHost": same,
    # ONNX Runtime puts these into graphs whose opset does not have them.
    "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": _layer_norm,
}
