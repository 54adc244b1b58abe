"""The order of a graph that was made for fixed shapes is that of the graph it was made from; and what is said of it."""

from __future__ import annotations

from dataclasses import replace

from onnx import ModelProto, TensorProto, helper

from onnxmem.packing.tiling import Tiled, refusal, shapes_text, sort_like
from onnxmem.session.packed_graphs import Reduced, ReducedPart, TiledGraph


def model(*nodes: tuple[str, str]) -> ModelProto:
    """Nodes that each read one thing and make another."""
    made = [helper.make_node("Relu", [read], [write], name=write) for read, write in nodes]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(made, "g", [ends[0]], [ends[1]]))


def names(proto: ModelProto) -> list[str]:
    return [node.name for node in proto.graph.node]


def test_nodes_stand_as_they_did() -> None:
    own = model(("x", "a"), ("x", "b"), ("a", "c"), ("b", "d"), ("c", "y"))
    fixed = model(("x", "b"), ("b", "d"), ("x", "a"), ("a", "c"), ("c", "y"))
    sort_like(fixed, own)
    assert names(fixed) == names(own)


def test_new_nodes_stand_before_those_that_read_them() -> None:
    own = model(("x", "a"), ("a", "b"), ("b", "y"))
    fixed = model(("x", "a"), ("a", "new"), ("new", "b"), ("b", "y"))
    sort_like(fixed, own)
    assert names(fixed) == ["a", "new", "b", "y"]


def test_an_input_without_dimensions_is_called_a_scalar() -> None:
    assert shapes_text({"state": (2, 1, 128), "sr": ()}) == "state 2x1x128, sr scalar"
    assert shapes_text({}) == "no inputs"


def test_what_costs_hardly_anything_does_not_cost_nothing() -> None:
    free = Reduced(inputs={}, before_bytes=2**20, after_bytes=2**20, output_bytes=0)
    graph = TiledGraph(
        inputs={}, peak_bytes=2**19, lower_bound_bytes=2**19, model="t", plan="p", nodes=9, extra_work=0.0004
    )
    part = ReducedPart(part="stripes", gave_bytes=2**19, nodes=3, extra_work=0.0004)
    reduced = replace(free, after_bytes=2**19, parts=(part,))
    said = str(refusal(1024, Tiled(free=free, reduced=reduced, graph=graph)))
    assert said.endswith("512.0 KiB, which costs < 0.1% more work and 3 more nodes")
