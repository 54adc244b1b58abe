"""What a model may contain, and what is seen of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem.errors import ModelError
from onnxmem.model.dims import symbol
from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.schedule.timeline import lay_out
from onnxmem.unknown import Unknown
from tests.helpers import model_of

node = helper.make_node
F = TensorProto.FLOAT


def only(graph: Graph) -> Any:
    (weight,) = graph.weights
    return weight


@pytest.mark.parametrize(
    ("attributes", "dtype", "shape", "size"),
    [
        ({"value": numpy_helper.from_array(np.ones((2, 3), np.float16))}, "float16", (2, 3), 12),
        ({"value_float": 1.5}, "float32", (), 4),
        ({"value_floats": [1.5, 2.5]}, "float32", (2,), 8),
        ({"value_int": 3}, "int64", (), 8),
        ({"value_ints": [3, 4, 5]}, "int64", (3,), 24),
        ({"value_string": "text"}, "string", (), None),
        ({"value_strings": ["a", "b"]}, "string", (2,), None),
    ],
)
def test_constants_in_every_form(
    attributes: dict[str, Any], dtype: str, shape: tuple[int, ...], size: int | None
) -> None:
    nodes = [node("Constant", [], ["c"], **attributes), node("Shape", ["c"], ["y"])]
    weight = only(Model.of(model_of(nodes, {}, ["y"])).graph(view="raw"))
    assert (weight.name, weight.dtype, weight.shape, weight.size, weight.source) == (
        "c",
        dtype,
        shape,
        size,
        "constant",
    )


def sparse(name: str) -> Any:
    values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5, 30], np.int64)), [4, 8])


def test_sparse_weights_count_what_they_store_and_are_dense_to_their_readers() -> None:
    by_initializer = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 4)}, ["y"])
    by_initializer.graph.sparse_initializer.append(sparse("w"))
    by_node = model_of(
        [node("Constant", [], ["w"], sparse_value=sparse("")), node("MatMul", ["x", "w"], ["y"])],
        {"x": ("N", 4)},
        ["y"],
    )
    for model in (by_initializer, by_node):
        graph = Model.of(model).graph(view="raw")
        weight = only(graph)
        assert (weight.name, weight.shape, weight.size, weight.source) == ("w", (4, 8), 3 * 4 + 3 * 8, "sparse")
        assert graph.tensors["y"].shape == (symbol("N"), 8)


@pytest.mark.parametrize(
    ("elem_type", "dtype", "size"),
    [
        (TensorProto.UINT4, "uint4", 8),
        (TensorProto.INT4, "int4", 8),
        (TensorProto.FLOAT4E2M1, "float4e2m1", 8),
        (TensorProto.INT2, "int2", 4),
        (TensorProto.UINT2, "uint2", 4),
        (TensorProto.BOOL, "bool", 15),
        (TensorProto.FLOAT8E4M3FN, "float8e4m3fn", 15),
        (TensorProto.BFLOAT16, "bfloat16", 30),
        (TensorProto.COMPLEX64, "complex64", 120),
        (TensorProto.COMPLEX128, "complex128", 240),
    ],
)
def test_elements_are_as_wide_as_they_are_stored(elem_type: int, dtype: str, size: int) -> None:
    weight = TensorProto(name="w", data_type=elem_type, dims=[3, 5], raw_data=bytes(size))
    nodes = [node("Identity", ["w"], ["y"]), node("Identity", ["x"], ["z"])]
    graph = Model.of(model_of(nodes, {"x": (3, "N")}, ["y", "z"], [weight], dtype=elem_type, opset=25)).graph(
        {"N": 5}, view="raw"
    )
    assert (only(graph).dtype, only(graph).size) == (dtype, size)
    assert [graph.tensors[name].size for name in "xyz"] == [size] * 3


def typed(name: str, kind: Any) -> Any:
    return helper.make_value_info(name, kind)


def test_what_has_no_size_is_unknown_for_a_reason() -> None:
    tensor = helper.make_tensor_type_proto(F, ["N", 2])
    inputs = {
        "strings": helper.make_tensor_value_info("strings", TensorProto.STRING, ["N"]),
        "sequence": typed("sequence", helper.make_sequence_type_proto(tensor)),
        "optional": typed("optional", helper.make_optional_type_proto(tensor)),
        "x": ("N", 2),
        "rankless": typed("rankless", helper.make_tensor_type_proto(F, None)),
    }
    nodes = [
        node("Identity", ["strings"], ["same_strings"]),
        node("SequenceConstruct", ["x", "x"], ["made"]),
        node("Identity", ["sequence"], ["same_sequence"]),
        node("OptionalHasElement", ["optional"], ["has"]),
        node("Relu", ["rankless"], ["relu"]),
        node("Mine", ["x"], ["mine"], domain="my.own"),
    ]
    outputs = ["same_strings", "made", "same_sequence", "has", "relu", "mine"]
    graph = Model.of(model_of(nodes, inputs, outputs)).graph({"N": 3}, view="raw")
    reasons = {name: t.size.reason for name, t in graph.tensors.items() if isinstance(t.size, Unknown)}
    assert reasons.keys() == graph.tensors.keys() - {"x", "has"}
    for name, part in {
        "strings": "string",
        "same_strings": "string",
        "made": "sequence",
        "sequence": "sequence",
        "optional": "optional",
        "rankless": "rank",
        "mine": "Mine",
    }.items():
        assert part in reasons[name]
    assert all(reasons.values())
    assert graph.tensors["has"].size == 1
    timeline = lay_out(graph)
    assert {tensor.name for tensor in timeline.unknown} == reasons.keys() - set(graph.inputs)


def test_optional_inputs_empty_dimensions_and_scalars() -> None:
    nodes = [
        node("Clip", ["x", "", "most"], ["a"]),
        node("Concat", ["a", "nothing"], ["b"], axis=0),
        node("Resize", ["b", "", "", "sizes"], ["y"], mode="nearest"),
        node("ReduceSum", ["nothing"], ["s"], keepdims=0),
    ]
    constants = {
        "most": np.array(1, np.float32),
        "nothing": np.zeros((0, 4), np.float32),
        "sizes": np.array([2, 4]),
    }
    graph = Model.of(model_of(nodes, {"x": ("N", 4)}, ["y", "s"], constants)).graph(view="raw")
    assert graph.tensors["b"].shape == (symbol("N"), 4)
    assert graph.tensors["y"].size == 32
    assert (graph.tensors["s"].shape, graph.tensors["s"].size) == ((), 4)
    assert {weight.name: weight.size for weight in graph.weights} == {"most": 4, "nothing": 0, "sizes": 16}
    empty = Model.of(model_of([node("Relu", ["x"], ["y"])], {"x": (0, 4)}, ["y"])).graph(view="raw")
    assert empty.tensors["y"].size == 0


def test_weights_listed_as_inputs_are_weights() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 4), "w": (4, 4)}, ["y"], {"w": np.eye(4, dtype="f")}
    )
    opened = Model.of(model)
    assert list(opened.inputs) == ["x"]
    for view in ("raw", "optimized"):
        graph = opened.graph(view=view)
        assert graph.inputs == ("x",)
        assert only(graph).name == "w"
        assert set(graph.tensors) == {"x", "y"}


def test_nodes_may_stand_in_any_order() -> None:
    """Also where the producer is needed only inside a branch, or by a view of a view."""
    y = [helper.make_tensor_value_info("inner", F, None)]
    branch = helper.make_graph([node("Relu", ["b"], ["inner"])], "branch", [], y)
    other = helper.make_graph([node("Neg", ["b"], ["inner"])], "other", [], y)
    nodes = [
        node("If", ["c"], ["y"], then_branch=branch, else_branch=other),
        node("Flatten", ["v"], ["f"]),
        node("Exp", ["f"], ["e"]),
        node("Flatten", ["a"], ["v"]),
        node("Concat", ["a", "a"], ["b"], axis=0),
        node("Exp", ["x"], ["a"]),
    ]
    inputs: dict[str, Any] = {"c": helper.make_tensor_value_info("c", TensorProto.BOOL, []), "x": ("N", 4)}
    backwards, sorted_ = (Model.of(model_of(n, inputs, ["y", "e"])) for n in (nodes, nodes[::-1]))
    graph = backwards.graph(view="raw")
    assert graph.tensors["y"].size == 32 * symbol("N")
    assert lay_out(graph).total == lay_out(sorted_.graph(view="raw")).total
    assert {span.id for span in lay_out(graph).spans} == {"a", "b", "y", "e", *inside(graph)}


def inside(graph: Graph) -> set[str]:
    return {span.id for span in lay_out(graph).spans if ":" in span.id}


def test_functions_are_read_as_what_they_call() -> None:
    body = [node("Concat", ["a", "a"], ["b"], axis=0), node("Relu", ["b"], ["c"])]
    opsets = [helper.make_opsetid("", 21)]
    inner = helper.make_function("my.own", "Twice", ["a"], ["c"], body, opsets)
    outer_body = [node("Twice", ["a"], ["b"], domain="my.own"), node("Twice", ["b"], ["c"], domain="my.own")]
    outer = helper.make_function(
        "my.own", "Four", ["a"], ["c"], outer_body, [*opsets, helper.make_opsetid("my.own", 1)]
    )
    model = model_of([node("Four", ["x"], ["y"], domain="my.own")], {"x": ("N", 4)}, ["y"], functions=[inner, outer])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    graph = Model.of(model).graph(view="raw")
    assert [n.op_type for n in graph.nodes] == ["Concat", "Relu"] * 2
    assert graph.tensors["y"].size == 64 * symbol("N")


def test_a_function_that_calls_itself_is_an_error() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my.own", 1)]
    again = helper.make_function(
        "my.own", "Again", ["a"], ["b"], [node("Again", ["a"], ["b"], domain="my.own")], opsets
    )
    model = model_of([node("Again", ["x"], ["y"], domain="my.own")], {"x": ("N", 4)}, ["y"], functions=[again])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    with pytest.raises(ModelError, match=r"local functions .* cannot be followed"):
        Model.of(model)
