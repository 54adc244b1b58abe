"""The operators that an axis can be followed through, each with the rule that says where it goes.

A rule is asked with an axis of the operator's first output, and says where that is in its inputs and other outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from onnxmem.model.dims import Dim, product
from onnxmem.rewriting.flow import CONTRIB, NCHWC, Flow, Operator, Shape, is_multiple


class NotFollowed(Exception):
    """The operator mixes what is to be kept apart, or it cannot be shown that it does not."""


def follow(operator: Operator, axis: int, unit: Dim) -> Flow | None:
    """Where the axis `axis` of the operator's first output is elsewhere; None if it cannot be cut along it."""
    rule = _RULES.get((operator.domain, operator.op_type))
    shape = operator.outputs[0] if operator.outputs else None
    if rule is None or shape is None or not is_multiple(shape[axis], unit):
        return None
    try:
        flow = rule(operator, axis, unit)
    except (NotFollowed, IndexError, KeyError, TypeError, ValueError):
        return None
    tensors = zip((*operator.inputs, *operator.outputs), (*flow.inputs, *flow.outputs), strict=True)
    return flow if all(_fits(shape, place, unit) for shape, place in tensors) else None


def _fits(shape: Shape, axis: int | None, unit: Dim) -> bool:
    return axis is None or (shape is not None and 0 <= axis < len(shape) and is_multiple(shape[axis], unit))


def _need(holds: bool) -> None:
    if not holds:
        raise NotFollowed


def _shape(shape: Shape) -> tuple[Dim, ...]:
    if shape is None:
        raise NotFollowed
    return shape


def _first_only(operator: Operator, axis: int | None) -> tuple[int | None, ...]:
    """The axis is in the first input, and the others are the same for all parts."""
    return (axis, *[None] * (len(operator.inputs) - 1))


def _all_outputs(operator: Operator, axis: int) -> tuple[int, ...]:
    return (axis,) * len(operator.outputs)


# Element by element.


def _broadcast(operator: Operator, axis: int, _: Dim, places: Iterable[int] | None = None) -> Flow:
    from_end = axis - operator.rank
    whole = _shape(operator.outputs[0])[axis]
    places = range(len(operator.inputs)) if places is None else places
    found: list[int | None] = [None] * len(operator.inputs)
    for place in places:
        if not operator.has(place):
            continue
        shape = _shape(operator.inputs[place])
        if -from_end > len(shape) or shape[from_end] == 1:
            continue
        _need(shape[from_end] == whole)
        found[place] = len(shape) + from_end
    return Flow(tuple(found), _all_outputs(operator, axis))


def _same(operator: Operator, axis: int, _: Dim) -> Flow:
    return Flow(_first_only(operator, axis), _all_outputs(operator, axis))


def _bias_last(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(axis != operator.rank - 1)
    return _same(operator, axis, unit)


def _dropout(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(not operator.has(2) and len(operator.outputs) == 1)  # whether it trains, may be said there
    return _same(operator, axis, unit)


def _quantize(operator: Operator, axis: int, unit: Dim) -> Flow:
    for place in (1, 2):
        if operator.has(place):
            one_for_all = all(dim == 1 for dim in _shape(operator.inputs[place]))
            _need(one_for_all or operator.attribute("axis", 1) % operator.rank != axis)
            _need(one_for_all or not operator.attribute("block_size", 0))
    return _same(operator, axis, unit)


# Along other axes.


def _along(name: str, default: int) -> Rule:
    def rule(operator: Operator, axis: int, unit: Dim) -> Flow:
        _need(operator.attribute(name, default) % len(_shape(operator.inputs[0])) != axis)
        return _same(operator, axis, unit)

    return rule


def _softmax(operator: Operator, axis: int, unit: Dim) -> Flow:
    old = operator.opset < 13  # then all axes from this one on are taken together
    along = operator.attribute("axis", 1 if old else -1) % operator.rank
    _need(axis < along if old else axis != along)
    return _same(operator, axis, unit)


def _normalization(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(axis < operator.attribute("axis", -1) % operator.rank)
    return _same(operator, axis, unit)


def _skip_normalization(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(axis < operator.rank - 1)
    flow = _broadcast(operator, axis, unit, (0, 1))
    _need(None not in flow.inputs[:2])
    return flow


def _reduce(operator: Operator, axis: int, _: Dim) -> Flow:
    rank = len(_shape(operator.inputs[0]))
    axes = operator.integers(1, "axes")
    if axes is None or not axes:  # all of them, or none: nobody writes that for the second
        raise NotFollowed
    return _reduced(operator, axis, {each % rank for each in axes}, rank)


def _arg(operator: Operator, axis: int, _: Dim) -> Flow:
    rank = len(_shape(operator.inputs[0]))
    return _reduced(operator, axis, {operator.attribute("axis", 0) % rank}, rank)


def _reduced(operator: Operator, axis: int, axes: set[int], rank: int) -> Flow:
    left = [place for place in range(rank) if operator.attribute("keepdims", 1) or place not in axes]
    _need(left[axis] not in axes)
    return Flow(_first_only(operator, left[axis]), (axis,))


def _cumulative(operator: Operator, axis: int, unit: Dim) -> Flow:
    (along,) = operator.integers(1, "") or [axis]
    _need(along % operator.rank != axis)
    return _same(operator, axis, unit)


# Matrix products.


def _matmul(operator: Operator, axis: int, unit: Dim, places: tuple[int, int] = (0, 1)) -> Flow:
    left, right = (_shape(operator.inputs[place]) for place in places)
    _need(not any(operator.attribute(name, 0) for name in ("transA", "transBatchA", "transBatchB")))
    _need(len(left) >= 2 and len(right) >= 2 and axis != operator.rank - 1)
    if axis < operator.rank - 2:
        return _broadcast(operator, axis, unit, places)
    found: list[int | None] = [None] * len(operator.inputs)
    found[places[0]] = len(left) - 2
    return Flow(tuple(found), (axis,))


def _quantized_matmul(operator: Operator, axis: int, unit: Dim) -> Flow:
    # Scales and zero points may be of single rows: then they would have to be cut, too.
    for place in (1, 2, 4, 5, 6, 7):
        _need(not operator.has(place) or all(dim == 1 for dim in _shape(operator.inputs[place])))
    return _matmul(operator, axis, unit, (0, 3))


def _integer_matmul(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(not operator.has(2) or all(dim == 1 for dim in _shape(operator.inputs[2])))
    return _matmul(operator, axis, unit)


def _gemm(operator: Operator, axis: int, _: Dim) -> Flow:
    _need(axis == 0 and not operator.attribute("transA", 0))
    bias = None
    if operator.has(2):
        shape = _shape(operator.inputs[2])
        bias = 0 if len(shape) == 2 and shape[0] != 1 else None
        _need(bias is None or shape[0] == _shape(operator.inputs[0])[0])
    return Flow((0, None, bias)[: len(operator.inputs)], (0,))


# Images and sequences: the first axis is the batch.


def _batch_first(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(axis == 0)
    return _same(operator, axis, unit)


def _max_pool(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(len(operator.outputs) == 1)  # the second says where in the whole batch the largest are
    return _batch_first(operator, axis, unit)


def _with_sum(operator: Operator, axis: int, _: Dim) -> Flow:
    """A convolution; a fourth input is added to what it makes."""
    _need(axis == 0)
    found: list[int | None] = [0, *[None] * (len(operator.inputs) - 1)]
    if operator.has(3):
        _need(operator.inputs[3] == operator.outputs[0])
        found[3] = 0
    return Flow(tuple(found), (0,))


def _batch_normalization(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(not operator.attribute("training_mode", 0) and len(operator.outputs) == 1)
    _need(operator.opset >= 7 and axis != 1)
    return _same(operator, axis, unit)


def _resize(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(axis == 0 and operator.attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize")
    _need(_shape(operator.inputs[0])[0] == _shape(operator.outputs[0])[0])
    return _same(operator, axis, unit)


def _recurrent(operator: Operator, axis: int, _: Dim) -> Flow:
    _need(not operator.attribute("layout", 0) and axis == (2 if operator.rank == 4 else 1))
    states = (None, None, None, None, 0, 1, 1, None)
    inputs = (1, *states[1:])[: len(operator.inputs)]
    there = [place if operator.has(k) else None for k, place in enumerate(inputs)]
    return Flow(tuple(there), (2, 1, 1)[: len(operator.outputs)])


# Where elements go.


def _transpose(operator: Operator, axis: int, _: Dim) -> Flow:
    order = operator.attribute("perm", list(range(operator.rank))[::-1])
    return Flow((order[axis],), (axis,))


def _reshape(operator: Operator, axis: int, unit: Dim) -> Flow:
    # Reshape, Flatten, Squeeze and Unsqueeze leave elements in their order, so that a part is in one piece before and
    # after, if as many elements lie before the axis.
    before, after = _shape(operator.inputs[0]), _shape(operator.outputs[0])
    _need(product(before) == product(after))
    skipped = product(after[:axis])
    for place, dim in enumerate(before):
        if product(before[:place]) == skipped and is_multiple(dim, unit):
            return Flow(_first_only(operator, place), (axis,))
    raise NotFollowed


def _squeeze(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need(operator.integers(1, "axes") is not None)  # without, a batch of one would be squeezed, too
    return _reshape(operator, axis, unit)


def _concat(operator: Operator, axis: int, _: Dim) -> Flow:
    _need(operator.attribute("axis", 1) % operator.rank != axis)
    return Flow((axis,) * len(operator.inputs), (axis,))


def _slice(operator: Operator, axis: int, unit: Dim) -> Flow:
    starts = operator.integers(1, "starts")
    axes = operator.integers(3, "axes")
    if axes is None:
        _need(starts is not None and not operator.has(3))
        axes = list(range(len(starts or ())))
    if axis in [each % operator.rank for each in axes]:
        # It may keep all of it, in the order it has.
        _need(_shape(operator.inputs[0])[axis] == _shape(operator.outputs[0])[axis])
        steps = operator.integers(4, "steps")
        _need(all(step > 0 for step in steps) if steps is not None else not operator.has(4))
    return _same(operator, axis, unit)


def _pad(operator: Operator, axis: int, unit: Dim) -> Flow:
    pads, axes = operator.integers(1, "pads"), operator.integers(3, "")
    _need(pads is not None and (axes is not None or not operator.has(3)))
    axes = list(range(operator.rank)) if axes is None else [each % operator.rank for each in axes]
    around = {each: (pads or [])[k :: len(axes)] for k, each in enumerate(axes)}
    _need(not any(around.get(axis, ())))
    return _same(operator, axis, unit)


def _tile(operator: Operator, axis: int, unit: Dim) -> Flow:
    _need((operator.integers(1, "") or [])[axis] == 1)
    return _same(operator, axis, unit)


def _gather(operator: Operator, axis: int, _: Dim) -> Flow:
    data, indices = len(_shape(operator.inputs[0])), len(_shape(operator.inputs[1]))
    along = operator.attribute("axis", 0) % data
    if along <= axis < along + indices:
        return Flow((None, axis - along), (axis,))
    return Flow((axis if axis < along else axis - indices + 1, None), (axis,))


def _gather_elements(operator: Operator, axis: int, _: Dim) -> Flow:
    _need(operator.attribute("axis", 0) % operator.rank != axis)
    _need(operator.inputs[0] is not None and operator.inputs[0][axis] == _shape(operator.inputs[1])[axis])
    return Flow((axis, axis), (axis,))


def _top_k(operator: Operator, axis: int, _: Dim) -> Flow:
    _need(operator.attribute("axis", -1) % operator.rank != axis)
    return Flow(_first_only(operator, axis), _all_outputs(operator, axis))


def _expand(operator: Operator, axis: int, unit: Dim) -> Flow:
    return _broadcast(operator, axis, unit, (0,))


def _filled(operator: Operator, axis: int, _: Dim) -> Flow:
    return Flow((None,), (axis,))


Rule: TypeAlias = Callable[[Operator, int, Dim], Flow]


def _table(domain: str, rules: Mapping[str, Rule]) -> dict[tuple[str, str], Rule]:
    return {(domain, name): rule for names, rule in rules.items() for name in names.split()}


_RULES: Mapping[tuple[str, str], Rule] = {
    **_table(
        "",
        {
            "Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
            "HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign "
            "Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu BitwiseNot": _same,
            "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor CastLike Div Equal Greater GreaterOrEqual Less "
            "LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor": _broadcast,
            "Dropout": _dropout,
            "QuantizeLinear DequantizeLinear": _quantize,
            "Softmax LogSoftmax Hardmax": _softmax,
            "LayerNormalization RMSNormalization SimplifiedLayerNormalization": _normalization,
            "LpNormalization": _along("axis", -1),
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
            "ReduceSumSquare": _reduce,
            "ArgMax ArgMin": _arg,
            "CumSum": _cumulative,
            "MatMul": _matmul,
            "MatMulInteger": _integer_matmul,
            "QLinearMatMul": _quantized_matmul,
            "Gemm": _gemm,
            "Conv ConvTranspose ConvInteger QLinearConv AveragePool LpPool GlobalAveragePool GlobalMaxPool "
            "GlobalLpPool InstanceNormalization GroupNormalization LRN DepthToSpace SpaceToDepth": _batch_first,
            "MaxPool": _max_pool,
            "BatchNormalization": _batch_normalization,
            "Resize Upsample": _resize,
            "LSTM GRU RNN": _recurrent,
            "Transpose": _transpose,
            "Reshape Flatten Unsqueeze": _reshape,
            "Squeeze": _squeeze,
            "Concat": _concat,
            "Split": _along("axis", 0),
            "Slice": _slice,
            "Pad": _pad,
            "Tile": _tile,
            "Gather": _gather,
            "GatherElements": _gather_elements,
            "TopK": _top_k,
            "Expand": _expand,
            "ConstantOfShape": _filled,
        },
    ),
    **_table(
        CONTRIB,
        {
            "Gelu QuickGelu": _same,
            "BiasGelu FastGelu BiasAdd": _bias_last,
            "FusedMatMul": _matmul,
            "FusedGemm": _gemm,
            "FusedConv": _with_sum,
            "SkipLayerNormalization SkipSimplifiedLayerNormalization": _skip_normalization,
        },
    ),
    **_table(
        NCHWC,
        {
            "Conv": _with_sum,
            "MaxPool AveragePool GlobalAveragePool GlobalMaxPool ReorderInput ReorderOutput Upsample": _batch_first,
        },
    ),
}
