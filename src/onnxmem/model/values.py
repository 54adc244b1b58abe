"""Small integer tensors that a graph computes from shapes: `Shape → Gather → Mul → Reshape` followed symbolically.

Values are object arrays of dimensions (`int` or `Expr`), so that NumPy does the indexing and broadcasting and the
dimensions do the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onnxmem.model.comparing import certainly_at_least, maximum, minimum
from onnxmem.model.dims import Dim, Expr, is_modest, parts_of, product, total
from onnxmem.model.entries import (
    Undecided,
    add,
    c_modulo,
    ceil,
    choose,
    divide,
    divide_floats,
    equal,
    floor,
    greater,
    larger,
    less,
    multiply,
    negate,
    negated,
    python_modulo,
    smaller,
    subtract,
)

Value: TypeAlias = npt.NDArray[np.object_]
Shape: TypeAlias = "tuple[Dim, ...] | None"
Attributes: TypeAlias = Mapping[str, Any]

# Shapes are short; anything longer is data, and following it would cost more than it tells.
LARGEST_VALUE = 4096
# NumPy counts through no more. A shape that another tensor holds may have billions, which takes a few lines of a file.
MOST_DIMENSIONS = 32
# What a rule may be given: a node may have any number of inputs, also the same one each time.
_LARGEST_INPUTS = 16 * LARGEST_VALUE
# As the end of a slice these are NumPy's None: as far as it goes, in either direction.
TO_THE_END = (2**31 - 1, 2**63 - 1)


_NOT_FOLLOWED = (
    Undecided, IndexError, ValueError, TypeError, ZeroDivisionError, KeyError, OverflowError, AttributeError,
    MemoryError,
)  # fmt: skip


def propagate(
    op_type: str,
    attributes: Attributes,
    values: Sequence[Value | None],
    shapes: Sequence[Shape],
    opset: int,
    *,
    floats: bool = False,
) -> Value | None:
    """The value of a node's first output, or None where it cannot be known; `floats` are what its first input holds."""
    first = shapes[0] if shapes else None
    if op_type == "Shape":
        return _shape(first, attributes)
    rule = _FLOAT_RULES.get(op_type) if floats else None
    rule = rule or _RULES.get(op_type)
    try:
        if op_type == "Size":
            result = None if first is None else _value(product(first))
        elif rule is None or not values or values[0] is None or _total_size(values) > _LARGEST_INPUTS:
            result = None
        else:
            result = rule(attributes, values, opset)
    except _NOT_FOLLOWED:
        return None
    return result if result is not None and _can_be_followed(result) else None


def _total_size(values: Sequence[Value | None]) -> int:
    return sum(value.size for value in values if value is not None)


def _can_be_followed(value: Value) -> bool:
    if value.size > LARGEST_VALUE or value.ndim > MOST_DIMENSIONS:
        return False
    entries: list[Any] = list(value.flat)
    modest = all(is_modest(entry) for entry in entries if isinstance(entry, int | Expr))
    return modest and sum(parts_of(entry) for entry in entries) <= LARGEST_VALUE


def concrete(value: Value | None) -> bool:
    """Is every entry a plain number?"""
    return value is not None and not any(isinstance(entry, Expr) for entry in value.flat)


def entries_of(value: Value | None) -> list[Any]:
    """The entries, dimensions or floats, as a flat list; Undecided where there is no value."""
    if value is None:
        raise Undecided
    # Shapes take detours through floats (Cast, Floor, Range of floats); a whole number is a dimension again.
    return [int(entry) if isinstance(entry, float) and entry.is_integer() else entry for entry in value.flat]


def _value(entries: object) -> Value:
    array = np.empty((), dtype=object)
    array[()] = entries
    return array


def _shape(shape: Shape, attributes: Attributes) -> Value | None:
    if shape is None:
        return None
    try:
        part = shape[slice(attributes.get("start"), attributes.get("end"))]
    except TypeError:  # attributes that are no numbers
        return None
    array = np.empty(len(part), dtype=object)
    array[:] = part
    return array


def _needed(value: Value | None) -> Value:
    if value is None:
        raise Undecided
    return value


def _elementwise(function: Callable[..., Any]) -> Callable[[Attributes, Sequence[Value | None], int], Value]:
    ufunc = np.frompyfunc(function, function.__code__.co_argcount, 1)

    def rule(_: Attributes, values: Sequence[Value | None], __: int) -> Value:
        needed = [_needed(value) for value in values]
        # Before it is made: broadcasting three short values can take all memory.
        if prod(np.broadcast_shapes(*(value.shape for value in needed))) > LARGEST_VALUE:
            raise Undecided
        return np.asarray(ufunc(*needed), dtype=object)

    return rule


def _modulo(attributes: Attributes, values: Sequence[Value | None], opset: int) -> Value:
    # The remainder has the sign of the divisor, as in Python, or with fmod that of the dividend, as in C.
    return _elementwise(c_modulo if attributes.get("fmod") else python_modulo)(attributes, values, opset)


def _variadic(function: Callable[[Any, Any], Any]) -> Callable[[Attributes, Sequence[Value | None], int], Value]:
    pairwise = _elementwise(function)

    def rule(attributes: Attributes, values: Sequence[Value | None], opset: int) -> Value:
        result = _needed(values[0])
        for value in values[1:]:
            result = pairwise(attributes, [result, value], opset)
        return result

    return rule


def _cast(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    to_float = attributes["to"] in (1, 10, 11, 16)
    to_bool = attributes["to"] == 9

    def convert(entry: Any) -> Any:
        if isinstance(entry, Expr):
            if to_bool and not certainly_at_least(entry, 1):
                raise Undecided
            return True if to_bool else entry  # a dimension stays exact, whatever type carries it
        return bool(entry) if to_bool else float(entry) if to_float else int(entry)

    return np.asarray(np.frompyfunc(convert, 1, 1)(_needed(values[0])), dtype=object)


def _axes(attributes: Attributes, values: Sequence[Value | None]) -> list[int] | None:
    if len(values) > 1 and values[1] is not None:
        return [int(axis) for axis in values[1].flat]
    if len(values) > 1:
        raise Undecided
    axes = attributes.get("axes")
    return None if axes is None else list(axes)


def _unsqueeze(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    return np.expand_dims(_needed(values[0]), tuple(_axes(attributes, values) or []))


def _squeeze(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    axes = _axes(attributes, values)
    return np.squeeze(_needed(values[0]), None if axes is None else tuple(axes))


def _reshape(_: Attributes, values: Sequence[Value | None], __: int) -> Value:
    target = [int(entry) for entry in entries_of(values[1])]
    return _needed(values[0]).reshape(target)


def _identity(_: Attributes, values: Sequence[Value | None], __: int) -> Value:
    return _needed(values[0])


def _flatten(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    value, axis = _needed(values[0]), attributes.get("axis", 1)
    return value.reshape(int(np.prod(value.shape[:axis])), -1)


def _transpose(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    return np.transpose(_needed(values[0]), attributes.get("perm"))


def _concat(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    return np.concatenate([_needed(value) for value in values], axis=attributes["axis"])


def _gather(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    indices = np.asarray(_needed(values[1])).astype(np.int64)
    taken = np.take(_needed(values[0]), indices, axis=attributes.get("axis", 0))
    return np.asarray(taken, dtype=object) if isinstance(taken, np.ndarray) else _value(taken)


def _slice(attributes: Attributes, values: Sequence[Value | None], opset: int) -> Value:
    value = _needed(values[0])
    if opset < 10:
        starts, ends, axes = attributes["starts"], attributes["ends"], attributes.get("axes")
        steps = None
    else:
        starts, ends = entries_of(values[1]), entries_of(values[2])
        axes = entries_of(values[3]) if len(values) > 3 and values[3] is not None else None
        steps = entries_of(values[4]) if len(values) > 4 and values[4] is not None else None
    chosen = [slice(None)] * value.ndim
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = int(axes[k]) if axes else k
        step = int(steps[k]) if steps else 1
        chosen[axis] = _python_slice(int(start), int(end), step, value.shape[axis])
    return value[tuple(chosen)]


def _python_slice(start: int, end: int, step: int, extent: int) -> slice:
    """What ONNX means by a slice: going backwards, a start before the first element is the first, not nothing."""
    if step > 0:
        return slice(start, end, step)
    return slice(max(start, -extent), None if end in TO_THE_END else end, step)


def _range(_: Attributes, values: Sequence[Value | None], __: int) -> Value:
    start, limit, delta = (entries_of(value)[0] for value in values)
    if not all(isinstance(entry, int) for entry in (start, limit, delta)) or abs(limit - start) > LARGEST_VALUE:
        raise Undecided
    return np.array(list(range(start, limit, delta)), dtype=np.object_)


def _expand(_: Attributes, values: Sequence[Value | None], __: int) -> Value:
    value, target = _needed(values[0]), [int(entry) for entry in entries_of(values[1])]
    return np.broadcast_to(value, np.broadcast_shapes(value.shape, tuple(target)))


def _constant_of_shape(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
    shape = [int(entry) for entry in entries_of(values[0])]
    if prod(shape) > LARGEST_VALUE:
        raise Undecided
    fill = attributes.get("value")
    return np.full(shape, 0.0 if fill is None else fill.flat[0].item(), dtype=object)


def _reduce(combine: Callable[[Sequence[Dim]], Dim]) -> Callable[[Attributes, Sequence[Value | None], int], Value]:
    def rule(attributes: Attributes, values: Sequence[Value | None], _: int) -> Value:
        value, axes = _needed(values[0]), _axes(attributes, values)
        if value.ndim > 1 or (axes not in (None, [], [0], [-1])):
            raise Undecided
        reduced = combine(entries_of(value))
        return np.array([reduced], dtype=object) if attributes.get("keepdims", 1) and value.ndim else _value(reduced)

    return rule


_RULES: dict[str, Callable[[Attributes, Sequence[Value | None], int], Value]] = {
    "Add": _elementwise(add),
    "Sub": _elementwise(subtract),
    "Mul": _elementwise(multiply),
    "Div": _elementwise(divide),
    "Mod": _modulo,
    "Neg": _elementwise(negate),
    "Not": _elementwise(negated),
    "Equal": _elementwise(equal),
    "Greater": _elementwise(greater),
    "Less": _elementwise(less),
    "Where": _elementwise(choose),
    "Floor": _elementwise(floor),
    "Ceil": _elementwise(ceil),
    "Max": _variadic(larger),
    "Min": _variadic(smaller),
    "Sum": _variadic(add),
    "Cast": _cast,
    "Identity": _identity,
    "MemcpyFromHost": _identity,
    "MemcpyToHost": _identity,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Range": _range,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "ReduceProd": _reduce(product),
    "ReduceSum": _reduce(total),
    "ReduceMax": _reduce(lambda dims: maximum(*dims)),
    "ReduceMin": _reduce(lambda dims: minimum(*dims)),
}

_FLOAT_RULES: dict[str, Callable[[Attributes, Sequence[Value | None], int], Value]] = {
    "Div": _elementwise(divide_floats),
}
