"""Rows of a batch are split where they are proven not to mix, and where the same bits come out; nowhere else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from onnxmem import zoo
from onnxmem.rewriting.batch import ROWS, Batch
from onnxmem.rewriting.proof import find_batch
from onnxmem.unknown import Unknown
from tests.unit.rewriting.texts import feeds, in_parts, model, same, session


def batch_of(proto: ModelProto) -> Batch:
    found = find_batch(proto)
    assert isinstance(found, Batch), found
    return found


def why_not(proto: ModelProto) -> str:
    found = find_batch(proto)
    assert isinstance(found, Unknown), found
    return found.reason


def check_parts(proto: ModelProto, threads: int = 1, **dims: int) -> list[int]:
    """Run in parts of every size that is said to be exact; which sizes were those?"""
    batch, fed = batch_of(proto), feeds(proto, **dims)
    numbers = batch.dims({name: array.shape for name, array in fed.items()})
    assert numbers is not None
    run = session(proto, threads).run
    whole, rows = run(None, fed), numbers[ROWS]
    sizes = list(batch.exact(numbers, threads))
    for at_once in sizes:
        parts = in_parts(run, fed, batch.inputs, batch.outputs.values(), rows, at_once)
        assert same(parts, whole), f"{at_once} rows at once are not the same"
    assert Batch.from_document(json.loads(json.dumps(batch.document()))) == batch
    for name, shape in batch.made_shapes(numbers).items():
        assert shape == dict(zip(batch.outputs, (array.shape for array in whole), strict=True))[name]
    return sizes


APART: dict[str, ModelProto] = {
    "elementwise": model("a = Add(x, w) y = Sigmoid(a)", w=(8,)),
    "merged with tokens": model(
        "f = Reshape(x, flat) m = MatMul(f, w) y = Reshape(m, back)", "float[n, 4, 8] x",
        w=(8, 6), flat=np.array([-1, 8]), back=np.array([-1, 4, 6]),
    ),
    "the second axis": model("y = Transpose<perm = [1, 0, 2]>(x)", "float[n, 4, 8] x"),
    "a shape that is computed": model(
        "s = Shape(x) g = Gather(s, zero) u = Unsqueeze(g, zero1) t = Concat<axis = 0>(u, rest) y = Reshape(x, t)",
        "float[n, 4, 8] x", zero=np.array(0), zero1=np.array([0]), rest=np.array([-1]),
    ),
    "a token for each row": model(
        "s = Shape<start = 0, end = 1>(x) t = Concat<axis = 0>(s, rest) e = Expand(w, t) y = Concat<axis = 1>(e, x)",
        "float[n, 4, 8] x", w=(1, 1, 8), rest=np.array([1, 8]),
    ),
    "zeros for each row": model(
        "s = Shape(x) z = ConstantOfShape(s) y = Add(x, z)", "float[n, 4] x",
    ),
    "a table": model("y = Gather(table, x)", "int64[n, 5] x", table=(2, 16)),
    "attention": model(
        "t = Transpose<perm = [0, 1, 3, 2]>(x) s = MatMul(x, t) p = Softmax<axis = -1>(s) y = MatMul(p, x)",
        "float[n, 2, 7, 8] x",
    ),
    "a slice of all rows": model(
        "y = Slice(x, a, b, c)", "float[n, 8] x", a=np.array([0, 2]), b=np.array([2**31 - 1, 7]), c=np.array([0, 1]),
    ),
    "a mask for each row": model(
        "m = Cast<to = 1>(mask) u = Unsqueeze(m, one) y = Mul(x, u)", "float[n, 4, 8] x, int64[n, 8] mask",
        one=np.array([1]),
    ),
    "a scale that all rows share": model("y = Mul(x, s)", "float[n, 8] x, float[1] s"),
    "an image": model(
        "a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a) c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b) "
        "d = GlobalAveragePool(c) y = Flatten(d)", "float[n, 3, 8, 8] x", w=(16, 3, 3, 3),
    ),
    "words that are all known": model("a = Gelu(x) y = BiasGelu(a, b)".replace("Gelu", "com.microsoft.Gelu", 1)
                                      .replace("BiasGelu", "com.microsoft.BiasGelu"), b=(8,)),
    "a recurrent network": model(
        "t = Transpose<perm = [1, 0, 2]>(x) h, l = LSTM<hidden_size = 5>(t, w, r) s = Squeeze(h, one) "
        "y = Transpose<perm = [1, 0, 2]>(s)", "float[n, 7, 4] x", "y, l",
        w=(1, 20, 4), r=(1, 20, 5), one=np.array([1]),
    ),
    "the same for all rows": model(
        "y = Relu(x) s = Sqrt(w)", "float[n, 8] x", "y, s", w=np.ones(3, np.float32),
    ),
}  # fmt: skip

MIXED: dict[str, tuple[str, ModelProto]] = {
    "softmax over rows": ("Softmax", model("y = Softmax<axis = 0>(x)")),
    "old softmax over all": ("Softmax", model("y = Softmax<axis = 0>(x)", opset=11)),
    "a running sum": ("CumSum", model("y = CumSum(x, a)", a=np.array(0))),
    "a reshape": ("Reshape", model("y = Reshape(x, s)", "float[n, 4] x", s=np.array([4, -1]))),
    "rows that become columns": (
        "MatMul", model("t = Transpose<perm = [1, 0]>(x) y = MatMul(x, t)"),
    ),
    "the sum of all": ("ReduceSum", model("s = ReduceSum<keepdims = 0>(x) y = Add(x, s)")),
    "the mean of rows": ("ReduceMean", model("s = ReduceMean(x, a) y = Sub(x, s)", a=np.array([0]))),
    "attention between rows": (
        "MatMul", model("t = Transpose<perm = [1, 0]>(x) s = MatMul(t, x) y = MatMul(x, s)"),
    ),
    "training": (
        "BatchNormalization",
        model("y, m, v = BatchNormalization<training_mode = 1>(x, s, s, s, s)", s=(8,)),
    ),
    "the first row": ("Gather", model("f = Gather<axis = 0>(x, zero) y = Add(x, f)", zero=np.array(0))),
    "half of the rows": (
        "Slice",
        model("y = Slice(x, a, b, a)", a=np.array([0]), b=np.array([-1])),
    ),
    "backwards": (
        "Slice",
        model("y = Slice(x, a, b, z, a)", a=np.array([-1]), b=np.array([-(2**31)]), z=np.array([0])),
    ),
    "all rows one after the other": ("Concat", model("y = Concat<axis = 0>(x, x)")),
    "divided by their number": (
        "Div",
        model("s = Shape<start = 0, end = 1>(x) f = Cast<to = 1>(s) y = Div(x, f)"),
    ),
    "numbers of rows": (
        "Range",
        model("s = Shape<start = 0, end = 1>(x) q = Squeeze(s, z) r = Range(zero, q, one) c = Cast<to = 1>(r) "
              "u = Unsqueeze(c, o) y = Add(x, u)",
              z=np.array([0]), zero=np.array(0), one=np.array(1), o=np.array([1])),
    ),
    "how many there are": ("output 's'", model("y = Relu(x) s = Shape(x)", "float[n, 8] x", "y, int64[2] s")),
    "quantized by the largest": ("DynamicQuantizeLinear", model("a, b, c = DynamicQuantizeLinear(x) y = "
                                                                "DequantizeLinear(a, b, c)")),
    "noise": ("Random", model("r = RandomNormalLike(x) y = Add(x, r)")),
    "noise that all share": ("Random", model("r = RandomNormal<shape = [8]>() y = Add(x, r)")),
    "weights that are dropped": (
        "Dropout", model("d = Dropout(w, r, t) y = Mul(x, d)", "float[n, 8] x, bool t",
                         w=(8,), r=np.array(0.5, np.float32)),
    ),
    "noise in a branch": (
        "If", model("r = If (t) <then_branch = a () => (float[8] b) {b = RandomNormal<shape = [8]>()}, "
                    "else_branch = c () => (float[8] d) {d = Identity(w)}> y = Add(x, r)",
                    "float[n, 8] x, bool t", w=(8,)),
    ),
    "as many as are not zero": ("NonZero", model("i = NonZero(x) y = Cast<to = 1>(i)")),
    "places in all images": (
        "MaxPool",
        model("y, i = MaxPool<kernel_shape = [2, 2]>(x)", "float[n, 3, 8, 8] x", "y, int64[] i"),
    ),
    "padded rows": ("Pad", model("y = Pad(x, p)", p=np.array([1, 0, 0, 0]))),
    "repeated rows": ("Tile", model("y = Tile(x, r)", r=np.array([2, 1]))),
    "sorted rows": ("TopK", model("y, i = TopK<axis = 0>(x, k)", k=np.array([1]))),
    "a squeeze of what is one": ("Squeeze", model("y = Squeeze(x)", "float[n, 1, 8] x")),
    "a plain recurrent network": (
        "bit for bit",
        model("t = Transpose<perm = [1, 0, 2]>(x) h, y = RNN<hidden_size = 5>(t, w, r)", "float[n, 7, 4] x",
              w=(1, 5, 4), r=(1, 5, 5)),
    ),
    "doubles": ("float64", model("y = MatMul(x, w)", "double[n, 8] x", "double[] y", w=np.ones((8, 8)))),
    "no batch": ("no input", model("y = Relu(x)", "float[4, 8] x")),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_rows_that_do_not_mix_are_split(name: str) -> None:
    for threads in (1, 2):
        assert check_parts(APART[name], threads, n=6)


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_mix_are_left_alone(name: str) -> None:
    word, proto = MIXED[name]
    assert word in why_not(proto)


def test_a_branch_that_works_on_the_batch_is_left_alone() -> None:
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "then", [], [_value("a")])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["b"])], "else", [], [_value("b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph([node], "g", [_value("x", ["n", 4]), condition], [_value("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert "graph of its own" in why_not(proto)


def _value(name: str, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def test_what_a_file_says_of_shapes_proves_nothing() -> None:
    proto = model("i = NonZero(x) y = Cast<to = 1>(i)")
    proto.graph.output[0].CopyFrom(_value("y", ["n", 8]))
    proto.graph.value_info.append(helper.make_tensor_value_info("i", TensorProto.INT64, ["n", 8]))
    assert "NonZero" in why_not(proto)


def test_inputs_without_names_are_one_batch_if_they_have_as_many_rows() -> None:
    batch = batch_of(model("y = Add(x, z)", "float[n, 8] x, float[m, 8] z"))
    assert batch.inputs == {"x": 0, "z": 0}
    assert batch.dims({"x": (4, 8), "z": (4, 8)}) is not None
    assert batch.dims({"x": (4, 8), "z": (1, 8)}) is None
    assert batch.dims({"x": (4, 9), "z": (4, 9)}) is None


def test_weights_that_a_caller_may_replace_are_not_packed() -> None:
    line, inputs = "y = MatMul(x, w)", "float[n, 300] x"
    packed = batch_of(model(line, inputs, w=(300, 8)))
    replaceable = batch_of(model(line, f"{inputs}, float[300, 8] w", w=(300, 8)))
    fed, threads = {"x": (64, 300)}, 4
    assert next(packed.exact(packed.dims(fed) or {}, threads)) == 1
    assert next(replaceable.exact(replaceable.dims(fed) or {}, threads), 64) > 1


ZEROS = [
    "y = ReduceMax(z, axes)", "y = ReduceMin(z, axes)", "m = Neg(z) y = Max(z, m)", "m = Neg(z) y = Min(z, m)",
    "y = MaxPool<kernel_shape = [2, 2]>(z)", "y = GlobalMaxPool(z)", "y = Relu(z)", "y = LeakyRelu(z)", "y = Clip(z)",
]  # fmt: skip
"""Of numbers that became too small, zeros of both signs are left, which are equal: which of them is the larger one?"""
CONDITIONAL = [
    *(f"y = {name}(x)" for name in ("Sin", "Cos", "Atan", "Log", "Softplus", "Elu", "Selu", "Celu", "Mish")),
    *(f"y = {name}<keepdims = {keep}>(x, axes)" for name in ("ReduceMean", "ReduceSum", "ReduceL2", "ReduceLogSumExp")
      for keep in (0, 1)),
    "y = InstanceNormalization(x, w, w)", "y = LRN<size = 3>(x)",
    "y = Conv(x, k)", "y = Conv<group = 4>(x, d)", "y = ConvTranspose(x, k)",
    "y = BatchNormalization(x, w, w, p, p)", "y = LpNormalization<axis = 1>(x)",
    *(f"y = {name}(x)" for name in ("Exp", "Tanh", "Erf", "Sigmoid", "HardSigmoid", "LeakyRelu", "Gelu", "Sqrt")),
    *(f"y = {name}<kernel_shape = [2, 2]>(x)" for name in ("MaxPool", "AveragePool", "LpPool")),
    *(f"y = Softmax<axis = {axis}>(x)" for axis in (1, 2, 3)), "y = LogSoftmax<axis = -1>(x)",
    "y = LayerNormalization<axis = 3>(x, l, l)", "y = GlobalAveragePool(x)", "y = ReduceMax(x, axes)",
    *(f"h = Mul(x, q) z = Mul(h, q) {line}" for line in ZEROS),
]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(
    line=st.sampled_from(CONDITIONAL),
    sizes=st.tuples(*[st.sampled_from((1, 3, 4, 7, 16))] * 2),
    rows=st.integers(2, 9),
    threads=st.sampled_from((1, 2, 4)),
    axes=st.sampled_from(([1], [2], [3], [2, 3], [1, 2, 3])),
    channels=st.sampled_from((3, 4)),  # with three, rows begin where no register would be loaded from
)
def test_kernels_give_the_bits_that_are_promised(
    line: str, sizes: tuple[int, int], rows: int, threads: int, axes: list[int], channels: int
) -> None:
    high, wide = sizes[0] + 1, sizes[1] + 1
    proto = model(
        line.replace("group = 4", f"group = {channels}"), f"float[n, {channels}, {high}, {wide}] x",
        opset=18 if "Gelu" not in line else 20, w=(channels,), p=np.ones(channels, np.float32), l=(wide,),
        k=(channels, channels, 1, 1), d=(channels, 1, 2, 2), axes=np.array(axes),
        q=np.array(1e-30, np.float32),
    )  # fmt: skip
    check_parts(proto, threads, n=rows)


DOUBLES = [
    *(f"y = {name}(x)" for name in ("Exp", "Tanh", "Sigmoid", "Softmax", "LogSoftmax", "Log", "Sqrt", "Reciprocal",
                                    "Relu", "Neg")),
    "y = LayerNormalization(x, w, w)", "y = ReduceSum(x, axes)", "y = Div(x, w)", "y = Mul(x, w)", "y = Pow(x, w)",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    line=st.sampled_from(DOUBLES),
    wide=st.sampled_from((2, 5, 8, 64, 101)),
    rows=st.integers(2, 9),
    threads=st.sampled_from((1, 2)),
)
def test_kernels_for_doubles_give_the_bits_that_are_promised(line: str, wide: int, rows: int, threads: int) -> None:
    proto = model(
        line, f"double[n, 3, {wide}] x", "double[] y", opset=20, w=np.linspace(0.1, 3, wide), axes=np.array([2])
    )
    if isinstance(find_batch(proto), Batch):
        check_parts(proto, threads, n=rows)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(*[st.sampled_from((1, 2, 5, 16, 33, 64, 130, 300))] * 3),
    heads=st.integers(1, 3),
    rows=st.integers(2, 6),
    threads=st.sampled_from((1, 2, 4)),
    kind=st.sampled_from(("dynamic", "constant", "one for all", "per head", "shared")),
)
def test_products_give_the_bits_that_are_promised(
    sizes: tuple[int, int, int], heads: int, rows: int, threads: int, kind: str
) -> None:
    high, inner, wide = sizes
    inputs = f"float[n, {heads}, {high}, {inner}] x"
    if kind == "dynamic":
        proto = model("y = MatMul(x, z)", f"{inputs}, float[n, {heads}, {inner}, {wide}] z")
    elif kind == "shared":
        proto = model("y = MatMul(x, z)", f"{inputs}, float[{inner}, {wide}] z")
    else:
        shape = {"constant": (inner, wide), "one for all": (1, 1, inner, wide), "per head": (heads, inner, wide)}[kind]
        proto = model("y = MatMul(x, w)", inputs, w=shape)
    check_parts(proto, threads, n=rows)


LAYERS = {
    4: ["b = Conv<pads = [1, 1, 1, 1]>(a, c3)", "b = Relu(a)", "b = Conv<group = 8>(a, c1)", "b = Sigmoid(a)",
        "b = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)", "b = Mul(a, a)", "b = Softplus(a)",
        "m = ReduceMean(a, hw) b = Mul(a, m)", "b = Softmax<axis = 1>(a)", "b = Softmax<axis = 0>(a)",
        "m = ReduceMean(a, none) b = Add(a, m)", "b = InstanceNormalization(a, v8, v8)",
        "m = GlobalAveragePool(a) b = Add(a, m)", "b = Transpose<perm = [0, 1, 3, 2]>(a)"],
    3: ["b = MatMul(a, m8)", "b = LayerNormalization(a, v8, v8)", "b = Softmax<axis = 1>(a)", "b = Tanh(a)",
        "t = Transpose<perm = [0, 2, 1]>(a) s = MatMul(a, t) p = Softmax(s) b = MatMul(p, a)", "b = Add(a, v8)",
        "f = Reshape(a, flat) g = Gemm(f, m8, v8) b = Reshape(g, back)", "b = Gelu(a)", "b = Exp(a)",
        "t = Transpose<perm = [1, 0, 2]>(a) u = Reshape(t, back) b = Add(a, u)", "b = Softmax<axis = 0>(a)",
        "b = CumSum(a, one)", "b = CumSum(a, zero)", "m = ReduceMean(a, last) b = Sub(a, m)"],
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rank=st.sampled_from((3, 4)), rows=st.integers(2, 7), threads=st.sampled_from((1, 2)))
def test_networks_are_split_only_where_that_changes_nothing(data: Any, rank: int, rows: int, threads: int) -> None:
    chosen = data.draw(st.lists(st.sampled_from(LAYERS[rank]), min_size=1, max_size=6))
    lines = []
    for number, layer in enumerate(chosen):
        names = {"a": f"a{number}", "b": f"a{number + 1}", **{each: f"{each}{number}_" for each in "fgmpstu"}}
        lines.append(_renamed(layer, names))
    size = data.draw(st.sampled_from((5, 8)))
    shape = f"n, 8, {size}, {size}" if rank == 4 else f"n, {size}, 8"
    proto = model(
        lines, f"float[{shape}] a0", f"a{len(chosen)}", opset=20, c3=(8, 8, 3, 3), c1=(8, 1, 1, 1), v8=(8,), m8=(8, 8),
        hw=np.array([2, 3]), none=np.array([0, 1, 2, 3][:rank]), last=np.array([-1]), flat=np.array([-1, 8]),
        back=np.array([-1, size, 8]), zero=np.array(0), one=np.array(1),
    )  # fmt: skip
    mixes = any("axis = 0" in line or "none" in line or "zero" in line or "[1, 0, 2]" in line for line in lines)
    found = find_batch(proto)
    assert isinstance(found, Unknown) == mixes, found
    if isinstance(found, Batch):
        check_parts(proto, threads, n=rows)


def _renamed(layer: str, names: dict[str, str]) -> str:
    import re  # noqa: PLC0415

    return re.sub(r"\b[a-z]\b", lambda match: names.get(match[0], match[0]), layer)


@pytest.mark.parametrize("name", ["mobilenet", "shufflenet", "transformer", "yolo", "lstm"])
def test_networks_of_the_zoo_are_split(name: str) -> None:
    batch = batch_of(zoo.build(name))
    assert set(batch.outputs.values()) == {0}
