"""Does a kernel give the same bits for a row, however many rows it is given at once?

Read in ONNX Runtime's source and asked of its kernels (a test asks again). Most take one row, one image or one element
after the other. The exceptions:

- Kernels written with Eigen begin with single elements until an address is aligned, and end with single elements. Sums
  and a few functions (`_BY_VECTOR`) come out differently in there; of two zeros with different signs, the larger or
  smaller one is the first for single elements and the second otherwise. If a row takes a multiple of 64 bytes, every
  element is where it was; but threads share the work at any element, so that the functions are the same in one thread
  only.
- A sum over the first of two axes is another loop than one over the second of three: one row is not the same as two.
- A convolution that is not blocked lets threads share an image if it is the only one.
- A product of matrices that are both computed is done in steps along the inner axis, and how long those are depends on
  how many columns a thread has: `_steps`. For one row there is another kernel. A constant right side is packed before,
  in steps of one length.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from onnxmem.model.comparing import evaluate
from onnxmem.model.dims import Dim, floor_div, product
from onnxmem.rewriting.flow import CONTRIB, Flow, Operator

_ALIGNED = 64
_BY_VECTOR = {"Sin", "Cos", "Atan", "Log", "Softplus", "Elu", "Selu", "Celu", "Mish", "LRN", "Max", "Min"}
_SUMS = {"ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
         "ReduceProd", "ReduceMax", "ReduceMin"}  # fmt: skip
_NORMALIZED = {"InstanceNormalization", "LpNormalization"}
_NEVER = {"RNN", "GroupNormalization", "Acosh", "Asinh", "Atanh", "Cosh", "Sinh", "Tan", "Acos", "Asin", "Swish",
          "RMSNormalization", "GlobalLpPool"}  # fmt: skip
"""What nobody has looked at, or what is different for no reason that could be avoided."""
_EXACT_DOUBLE = {
    "Abs", "Add", "Cast", "CastLike", "Concat", "Div", "Equal", "Expand", "Flatten", "Gather", "GatherElements",
    "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Mul", "Neg", "Pad", "Reciprocal",
    "Reshape", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
"""What only moves numbers, or rounds each of them for itself. Kernels for doubles are Eigen's in many more places than
those for floats."""
_PRODUCTS = {("", "MatMul"), ("", "Gemm"), (CONTRIB, "FusedMatMul"), (CONTRIB, "FusedGemm")}
_CONVOLUTIONS: Container[object] = {("", "Conv"), (CONTRIB, "FusedConv")}
_PACKED = {"float32"}
_Dims: TypeAlias = "tuple[Dim, ...]"
_FLOATS = {"float16", "float32", "float64", "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What exactness may depend on: the model's free dimensions, the rows at once, and the threads of the session."""

    dims: Mapping[str, int]
    rows: int
    threads: int

    def of(self, dim: Dim) -> int:
        """The number that a dimension is."""
        return evaluate(dim, self.dims)


@dataclass(frozen=True)
class Condition:
    """When a node gives the same bits: a name in `_RULES`, and the sizes it is about."""

    rule: str
    sizes: tuple[Dim, ...]
    node: str = ""

    def differs(self, now: Sizes, whole: Sizes) -> str:
        """Given what is run at once and what would be: why rows may come out differently; empty if they do not."""
        return _RULES[self.rule](self.sizes, now, whole)


def condition(
    operator: Operator, flow: Flow, unit: Dim, dtypes: tuple[str, ...], *, constant: Callable[[int], bool]
) -> Condition | str | None:
    """When this operator is exact: None for always, a sentence for never, or what can be asked once sizes are known.

    `constant` says whether an input is a weight that nobody can replace.
    """
    if dtypes and dtypes[0] not in _FLOATS:
        return None
    if (operator.domain, operator.op_type) in _PRODUCTS:
        return _product(operator, flow, unit, dtypes, constant)
    if dtypes and dtypes[0] == "float64" and operator.op_type not in _EXACT_DOUBLE:
        return "nobody has looked at its kernel for float64"
    if operator.op_type in _NEVER:
        return "its kernel may do the same row differently among others"
    if operator.op_type in ("LSTM", "GRU") and not all(constant(place) for place in (1, 2)):
        return "its weights are computed"
    key = (operator.domain, operator.op_type)
    rule = next((name for name, operators in _BY_ROW.items() if key in operators or operator.op_type in operators), "")
    return Condition(rule, (_row_bytes(operator, flow, unit, dtypes),)) if rule else None


def _row_bytes(operator: Operator, flow: Flow, unit: Dim, dtypes: tuple[str, ...]) -> Dim:
    shape, axis = operator.inputs[0], flow.inputs[0]
    if shape is None or axis is None:
        return 1
    width = {"float16": 2, "bfloat16": 2, "float64": 8}.get(dtypes[0], 4)
    return product((*shape[axis + 1 :], floor_div(shape[axis], unit), width))


def _unaligned(sizes: _Dims, _: Sizes, whole: Sizes) -> str:
    row = whole.of(sizes[0])
    return f"a row takes {row} bytes, which is not a multiple of {_ALIGNED}" if row % _ALIGNED else ""


def _vector(sizes: _Dims, now: Sizes, whole: Sizes) -> str:
    return "threads share its elements as they come" if now.threads > 1 else _unaligned(sizes, now, whole)


def _sum(sizes: _Dims, now: Sizes, whole: Sizes) -> str:
    return _unaligned(sizes, now, whole) or _single(now, whole)


def _image(_: _Dims, now: Sizes, whole: Sizes) -> str:
    return "" if now.threads == 1 else _single(now, whole)


def _single(now: Sizes, whole: Sizes) -> str:
    return "" if now.rows > 1 or whole.rows == 1 else "one row alone is computed differently"


def _shared(sizes: _Dims, now: Sizes, whole: Sizes) -> str:
    """About a product of so many matrices, with so many rows, columns, and inner elements."""
    steps = set()
    for each in (now, whole):
        steps |= _steps(*(each.of(size) for size in sizes), threads=each.threads)
    batches, rows, columns, _ = sizes
    vector = now.of(rows) == 1 or whole.of(rows) == 1 or now.of(columns) == 1
    if vector and (now.of(rows) != whole.of(rows) or now.of(batches) < now.threads > 1):
        return "a single row or column is computed differently"
    return "" if len(steps) == 1 else "so few rows are shared among threads differently"


_RULES = {"vector": _vector, "sum": _sum, "aligned": _unaligned, "image": _image, "product": _shared}
_BY_ROW: Mapping[str, Container[object]] = {
    "vector": _BY_VECTOR,
    "sum": _SUMS,
    "aligned": _NORMALIZED,
    "image": _CONVOLUTIONS,
}


def _product(
    operator: Operator, flow: Flow, unit: Dim, dtypes: tuple[str, ...], constant: Callable[[int], bool]
) -> Condition | str | None:
    left, right, out = operator.inputs[0], operator.inputs[1], operator.outputs[0]
    if left is None or right is None or out is None or flow.outputs[0] is None:
        return "the shapes of its inputs are not known"
    if dtypes[0] not in _PACKED:
        return f"nobody has looked at its kernel for {dtypes[0]}"
    if constant(1) and len(right) == 2:
        return None
    inner, columns, rows = left[-1], out[-1], out[-2]
    batches: Dim = product(out[:-2])
    if product(right[:-2]) == 1:  # then it is one product of all rows
        batches, rows = 1, product(out[:-1])
    return Condition("product", (batches, rows, columns, inner))


def _steps(batches: int, rows: int, columns: int, inner: int, *, threads: int) -> set[int]:
    """How long the steps along the inner axis may be, with so many threads at the most."""
    found = set()
    for each in range(1, ceil(threads / max(batches, 1)) + 1):
        widths = {columns}
        if each > 1 and columns > rows:
            blocks = ceil(columns / 16)
            most = min(each, blocks)
            widths = {min(columns, 16 * (blocks // most)), min(columns, 16 * ceil(blocks / most))}
        for width in widths:
            high, step = 128, 128
            while width < inner and high > 16 and high // 2 >= width:
                high, step = high // 2, step * 2
            found.add(min(step, inner))
    return found
