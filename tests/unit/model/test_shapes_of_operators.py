"""The shapes of single operators, attribute by attribute: as expressions, and really, when ONNX Runtime runs them.

Every model here has free dimensions. Whatever its shapes are said to be must hold at the sizes it is run at; `known`
cases must be said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxmem.model.comparing import evaluate
from onnxmem.model.dims import symbols_of
from onnxmem.model.model import Model
from onnxmem.unknown import Unknown
from tests.helpers import model_of, random_feeds, tensors_when_run

SIZES = ({"N": 2, "C": 4, "H": 7, "W": 12}, {"N": 1, "C": 4, "H": 20, "W": 9})
IMAGE = {"x": ("N", 4, "H", "W")}
extent = st.integers(1, 24)


def run(model: ModelProto, dims: Mapping[str, int]) -> dict[str, Any] | None:
    """Every tensor, or None where ONNX Runtime refuses the model at these sizes."""
    try:
        return tensors_when_run(model, random_feeds(model, dims))
    except Exception:  # onnxruntime raises a dozen classes of its own
        return None


def agree(model: ModelProto, real: Mapping[str, Any], dims: Mapping[str, int], *, known: bool) -> None:
    """Do the expressions, and the numbers at these dimensions, say what really came out?"""
    opened = Model.of(model)
    for bindings in ({}, dims):
        graph = opened.graph(bindings, view="raw")
        for name, value in real.items():
            tensor = graph.tensors[name]
            if isinstance(tensor.size, Unknown):
                assert not known, f"{name} is not known: {tensor.size.reason}"
                continue
            said = tuple(evaluate(dim, dims) for dim in tensor.shape or ())
            assert said == value.shape, f"{name} is said to be {tensor.shape}"
            assert evaluate(tensor.size, dims) == value.nbytes


def node(op: str, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **attributes: Any) -> NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def weights(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


NAMED: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    "conv": ([node("Conv", ["x", "w"], strides=[2, 2], pads=[1, 1, 1, 1])], {"w": weights(5, 4, 3, 3)}),
    "concat": ([node("Concat", ["x", "x"], axis=-1)], {}),
    "flatten": ([node("Flatten", axis=-2)], {}),
    "flatten all": ([node("Flatten", axis=0)], {}),
    "transpose": ([node("Transpose", perm=[0, 2, 3, 1])], {}),
    "reshape keep": ([node("Reshape", ["x", "s"])], {"s": ints(0, 4, -1)}),
    "reshape rest": ([node("Reshape", ["x", "s"])], {"s": ints(0, 2, 2, -1)}),
    "squeeze": ([node("Unsqueeze", ["x", "a"], ["u"]), node("Squeeze", ["u", "a"])], {"a": ints(1, -1)}),
    "gather rows": ([node("Gather", ["x", "i"], axis=2)], {"i": ints(0, -1, 3)}),
    "gather scalar": ([node("Gather", ["x", "i"], axis=-1)], {"i": np.array(1)}),
    "tile": ([node("Tile", ["x", "r"])], {"r": ints(1, 2, 3, 1)}),
    "expand": ([node("Expand", ["x", "s"])], {"s": ints(3, 1, 1, 1, 1)}),
    "depth": ([node("DepthToSpace", blocksize=2)], {}),
    "split two": ([node("Split", outputs=["y", "z"], axis=1, num_outputs=2)], {}),
    "split given": ([node("Split", ["x", "p"], ["y", "z"], axis=1)], {"p": ints(1, 3)}),
    "global": ([node("GlobalAveragePool")], {}),
    "reduce": ([node("ReduceMean", ["x", "a"], keepdims=0)], {"a": ints(-1, 1)}),
    "argmax": ([node("ArgMax", axis=2, keepdims=0)], {}),
    "one hot": (
        [node("ArgMax", outputs=["i"], axis=1), node("OneHot", ["i", "d", "v"])],
        {"d": ints(5), "v": np.array([0, 1], np.float32)},
    ),
    "einsum": ([node("Einsum", ["x", "x"], equation="nchw,nchv->nwv")], {}),
    "matmul": ([node("Transpose", outputs=["t"], perm=[0, 1, 3, 2]), node("MatMul", ["x", "t"])], {}),
    "topk": ([node("TopK", ["x", "k"], ["y", "i"], axis=1)], {"k": ints(3)}),
    "cast": ([node("Cast", to=TensorProto.FLOAT16)], {}),
    "shape": ([node("Shape", start=1, end=-1)], {}),
    "size": ([node("Size")], {}),
    "range": (
        [
            node("Shape", outputs=["s"], start=2, end=3),
            node("Squeeze", ["s"], ["h"]),
            node("Range", ["zero", "h", "two"]),
        ],
        {"zero": np.array(0), "two": np.array(2)},
    ),
    "constant of shape": ([node("Shape", outputs=["s"]), node("ConstantOfShape", ["s"])], {}),
    "half of height": (
        [
            node("Shape", outputs=["s"], start=2, end=3),
            node("Div", ["s", "two"], ["h"]),
            node("Concat", ["one", "h"], ["e"], axis=0),
            node("Slice", ["x", "zeros", "e", "axes"]),
        ],
        {"two": ints(2), "one": ints(1), "zeros": ints(0, 0), "axes": ints(1, 2)},
    ),
    "upsample": ([node("Resize", ["x", "", "k"], mode="nearest")], {"k": np.array([1, 1, 2, 3], np.float32)}),
    "downsample": ([node("Resize", ["x", "", "k"], mode="nearest")], {"k": np.array([1, 1, 0.5, 0.25], np.float32)}),
    "resize axes": (
        [node("Resize", ["x", "", "", "s"], mode="nearest", axes=[3, 2])],
        {"s": ints(6, 5)},
    ),
    "lstm": (
        [node("Reshape", ["x", "s"], ["f"]), node("LSTM", ["f", "w", "r"], ["y", "h", "c"], hidden_size=3)],
        {"s": ints(-1, 2, 4), "w": weights(1, 12, 4), "r": weights(1, 12, 3)},
    ),
    "stft": (
        [
            node("Reshape", ["x", "s"], ["f"]),
            node("STFT", ["f", "step", "", "length"], onesided=1),
        ],
        {"s": ints(1, -1, 1), "step": np.array(3), "length": np.array(16)},
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_operators(name: str) -> None:
    nodes, constants = NAMED[name]
    outputs = [output for node in nodes for output in node.output]
    model = model_of(nodes, IMAGE, outputs[-1:], constants)
    for dims in SIZES:
        real = run(model, dims)
        assert real is not None
        agree(model, real, dims, known=True)


paddings = st.one_of(
    st.lists(st.integers(0, 2), min_size=4, max_size=4).map(lambda pads: {"pads": pads}),
    st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]).map(lambda kind: {"auto_pad": kind}),
)
pairs = st.lists(st.integers(1, 3), min_size=2, max_size=2)


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    given = {"kernel_shape": draw(st.lists(st.integers(1, 4), min_size=2, max_size=2)), "strides": draw(pairs)}
    return given | {"dilations": draw(pairs)} | draw(paddings)


@given(windows(), extent, extent)
@settings(max_examples=60)
def test_convolution(attributes: dict[str, Any], height: int, width: int) -> None:
    model = model_of(
        [node("Conv", ["x", "w"], **attributes)], IMAGE, ["y"], {"w": weights(3, 4, *attributes["kernel_shape"])}
    )
    sizes_agree(model, height, width, known=True)


def sizes_agree(model: ModelProto, height: int, width: int, *, known: bool) -> None:
    dims = {"N": 2, "C": 4, "H": height, "W": width}
    real = run(model, dims)
    assume(real is not None and all(value.size for value in real.values()))
    agree(model, real or {}, dims, known=known)


@given(windows(), st.booleans(), st.sampled_from(["MaxPool", "AveragePool"]), extent, extent)
@settings(max_examples=100)
def test_pooling(attributes: dict[str, Any], ceil_mode: bool, op: str, height: int, width: int) -> None:
    reach = [(k - 1) * d + 1 for k, d in zip(attributes["kernel_shape"], attributes["dilations"], strict=True)]
    # Where there is no room for a window, ONNX Runtime may run one all the same.
    assume(reach[0] <= height and reach[1] <= width)
    model = model_of([node(op, ceil_mode=int(ceil_mode), **attributes)], IMAGE, ["y"])
    sizes_agree(model, height, width, known=True)


@given(windows(), st.lists(st.integers(0, 2), min_size=2, max_size=2) | st.none(), st.booleans(), extent, extent)
@settings(max_examples=60)
def test_transposed_convolution(
    attributes: dict[str, Any], extra: list[int] | None, sized: bool, height: int, width: int
) -> None:
    if extra is not None:
        attributes = attributes | {"output_padding": extra}
    if sized:
        attributes = attributes | {"output_shape": [height * 2, width * 2]}
    constants = {"w": weights(4, 3, *attributes["kernel_shape"])}
    model = model_of([node("ConvTranspose", ["x", "w"], **attributes)], IMAGE, ["y"], constants)
    sizes_agree(model, height, width, known=False)


ends = st.integers(-30, 30) | st.sampled_from([2**63 - 1, -(2**63), 2**31 - 1, -(2**31), -(2**31) + 1])
steps = st.integers(-3, 3).filter(bool)


@given(ends, ends, steps, extent)
@settings(max_examples=200)
def test_slice(start: int, end: int, step: int, height: int) -> None:
    constants = {"s": ints(start), "e": ints(end), "a": ints(-2), "k": ints(step)}
    model = model_of([node("Slice", ["x", "s", "e", "a", "k"])], IMAGE, ["y"], constants)
    dims = {"N": 1, "C": 4, "H": height, "W": 3}
    real = run(model, dims)
    assert real is not None
    agree(model, real, dims, known=True)


@given(st.integers(-12, 12), st.integers(-3, 12), st.sampled_from([1, -1]), steps, extent)
@settings(max_examples=100)
def test_slice_up_to_a_computed_place(shift: int, start: int, sign: int, step: int, height: int) -> None:
    """The end is ±H + shift, as when a model crops one tensor to another; its sign decides what it means."""
    nodes = [
        node("Shape", outputs=["h"], start=2, end=3),
        node("Mul", ["h", "sign"], ["signed"]),
        node("Add", ["signed", "shift"], ["e"]),
        node("Slice", ["x", "s", "e", "a", "k"]),
    ]
    constants = {"sign": ints(sign), "shift": ints(shift), "s": ints(start), "a": ints(3), "k": ints(step)}
    model = model_of(nodes, IMAGE, ["y"], constants)
    dims = {"N": 1, "C": 4, "H": height, "W": 8}
    real = run(model, dims)
    assert real is not None
    agree(model, real, dims, known=False)


@given(st.lists(st.integers(-2, 3), min_size=4, max_size=4), st.sampled_from(["constant", "edge", "reflect"]), extent)
@settings(max_examples=40)
def test_pad(pads: list[int], mode: str, height: int) -> None:
    constants = {"p": ints(*pads), "v": np.array(0, np.float32), "a": ints(2, -1)}
    model = model_of([node("Pad", ["x", "p", "v", "a"], mode=mode)], IMAGE, ["y"], constants)
    sizes_agree(model, height, 5, known=True)


@given(st.lists(st.floats(0.125, 4, width=32), min_size=2, max_size=2), extent, extent)
@settings(max_examples=60)
def test_resize_by_any_scale(scales: list[float], height: int, width: int) -> None:
    constants = {"k": np.array([1, 1, *scales], np.float32)}
    model = model_of([node("Resize", ["x", "", "k"], mode="nearest")], IMAGE, ["y"], constants)
    sizes_agree(model, height, width, known=False)


@given(
    st.sampled_from(["stretch", "not_larger", "not_smaller"]), st.integers(1, 20), st.integers(1, 20), extent, extent
)
@settings(max_examples=40)
def test_resize_to_a_size(policy: str, a: int, b: int, height: int, width: int) -> None:
    attributes: dict[str, Any] = {"mode": "nearest", "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    model = model_of([node("Resize", ["x", "", "", "s"], **attributes)], IMAGE, ["y"], {"s": ints(a, b)})
    sizes_agree(model, height, width, known=policy == "stretch")


@given(st.integers(1, 5), st.sampled_from([2, -1]), extent, extent)
@settings(max_examples=40)
def test_split_into_equal_parts(parts: int, axis: int, height: int, width: int) -> None:
    outputs = [f"y{k}" for k in range(parts)]
    model = model_of([node("Split", outputs=outputs, axis=axis, num_outputs=parts)], IMAGE, outputs)
    sizes_agree(model, height, width, known=True)


@given(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 12]), min_size=1, max_size=5), st.booleans(), extent)
@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
def test_reshape(target: list[int], allow_zero: bool, height: int) -> None:
    model = model_of([node("Reshape", ["x", "s"], allowzero=int(allow_zero))], IMAGE, ["y"], {"s": ints(*target)})
    dims = {"N": 1, "C": 4, "H": height, "W": 3}
    real = run(model, dims)
    assume(real is not None)
    agree(model, real or {}, dims, known=not allow_zero)


@given(st.integers(-5, 9), st.integers(-4, 4).filter(bool), st.sampled_from([1, -1]), extent)
@settings(max_examples=60)
def test_range_to_a_dimension(first: int, delta: int, sign: int, height: int) -> None:
    nodes = [
        node("Shape", outputs=["s"], start=2, end=3),
        node("Squeeze", ["s"], ["h"]),
        node("Mul", ["h", "sign"], ["limit"]),
        node("Range", ["first", "limit", "delta"]),
    ]
    constants = {"sign": np.array(sign), "first": np.array(first), "delta": np.array(delta)}
    model = model_of(nodes, IMAGE, ["y"], constants)
    dims = {"N": 1, "C": 4, "H": height, "W": 3}
    real = run(model, dims)
    assert real is not None
    agree(model, real, dims, known=True)


shape_arithmetic = st.recursive(
    st.sampled_from(["h", "w", "one", "two", "five", "minus"]),
    lambda inner: st.tuples(st.sampled_from(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]), inner, inner),
    max_leaves=6,
)


@given(shape_arithmetic, st.booleans(), extent, extent)
@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
def test_arithmetic_on_shapes(tree: Any, floats: bool, height: int, width: int) -> None:
    """A size computed from sizes, in whole numbers or in floats, as exported models do."""
    nodes = [node("Shape", outputs=["h0"], start=2, end=3), node("Shape", outputs=["w0"], start=3, end=4)]
    kind = TensorProto.FLOAT if floats else TensorProto.INT64
    nodes += [node("Cast", ["h0"], ["h"], to=kind), node("Cast", ["w0"], ["w"], to=kind)]
    dtype = np.float32 if floats else np.int64
    numbers = {"one": 1, "two": 2, "five": 5, "minus": -3}
    constants: dict[str, Any] = {name: np.array([value], dtype) for name, value in numbers.items()}

    def build(part: Any) -> str:
        if isinstance(part, str):
            return part
        op, left, right = part
        name = f"t{len(nodes)}"
        # Modulo of floats is another function, with an attribute of its own.
        nodes.append(node("Sub" if floats and op == "Mod" else op, [build(left), build(right)], [name]))
        return name

    nodes.append(node("Cast", [build(tree)], ["whole"], to=TensorProto.INT64))
    nodes.append(node("ConstantOfShape", ["whole"], ["y"]))
    nodes.sort(key=lambda n: int(n.output[0][1:]) if n.output[0][1:].isdigit() and n.output[0][0] == "t" else -1)
    nodes.sort(key=lambda n: n.output[0] in ("whole", "y"))
    model = model_of(nodes, IMAGE, ["y"], constants)
    dims = {"N": 1, "C": 4, "H": height, "W": width}
    try:
        with np.errstate(all="ignore"):
            assume(0 <= compute(tree, dims, floats) <= 10_000)
    except ZeroDivisionError:
        assume(False)
    real = run(model, dims)
    assume(real is not None)
    agree(model, {"y": (real or {})["y"]}, dims, known=False)


def compute(part: Any, dims: Mapping[str, int], floats: bool) -> float:
    """What the tree comes to; ZeroDivisionError where ONNX Runtime must not be asked: it would die of it."""
    leaves = {"h": dims["H"], "w": dims["W"], "one": 1, "two": 2, "five": 5, "minus": -3}
    if isinstance(part, str):
        return float(leaves[part]) if floats else leaves[part]
    op, left, right = part
    a, b = compute(left, dims, floats), compute(right, dims, floats)
    if op == "Div":
        return a / b if floats else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if op == "Mod":
        return a - b if floats else a % b
    return {"Add": a + b, "Sub": a - b, "Mul": a * b, "Max": max(a, b), "Min": min(a, b)}[op]


def test_a_dimension_that_data_decides_is_unknown_and_says_so() -> None:
    model = Model.of(model_of([node("NonZero")], {"x": ("N", 3)}, ["y"]))
    tensor = model.graph({"N": 2}, view="raw").tensors["y"]
    assert isinstance(tensor.size, Unknown)
    assert "NonZero" in tensor.size.reason
    assert tensor.shape is not None
    assert tensor.shape[0] == 2
    assert all(name.startswith("?") for name in symbols_of(tensor.shape[1]))
