"""When buffers begin and end: outputs, inputs, views, subgraphs, and what has no known size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, TensorProto, helper

from onnxmem.model.comparing import evaluate
from onnxmem.model.dims import Dim, symbol
from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.schedule.orders import ORDERS
from onnxmem.schedule.scheduled import problem_of
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Span, Timeline, lay_out
from onnxmem.unknown import Unknown
from tests.helpers import model_of

F = TensorProto.FLOAT
node = helper.make_node
FLAG = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])


def raw(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], constants: Any = ()) -> Graph:
    return Model.of(model_of(nodes, inputs, outputs, constants)).graph(view="raw")


def span(timeline: Timeline, name: str) -> Span:
    return next(span for span in timeline.spans if span.id == name)


def life(timeline: Timeline, name: str) -> tuple[int, int]:
    return span(timeline, name).lower, span(timeline, name).upper


def branch(name: str, nodes: list[Any], output: str) -> GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, F, None)])


CHAIN = [
    node("Exp", ["x"], ["a"]),
    node("Reshape", ["a", "s"], ["v"]),
    node("Relu", ["v"], ["b"]),
    node("Exp", ["b"], ["c"]),
    node("Exp", ["c"], ["y"]),
    node("Sin", ["x"], ["z"]),
]
CONSTANTS = {"s": np.array([-1])}


def test_lifetimes_are_half_open_and_outputs_stay() -> None:
    timeline = lay_out(raw(CHAIN, {"x": ("N", 4)}, ["y", "z"], CONSTANTS))
    # The view and what overwrites it are one buffer, from the first writer to the last reader.
    assert [tensor.name for tensor in span(timeline, "a").tensors] == ["a", "v", "b"]
    assert life(timeline, "a") == (0, 4)
    assert life(timeline, "c") == (3, 5)
    assert life(timeline, "y") == (4, 6)
    assert life(timeline, "z") == (5, 6)
    assert {s.id: s.kind for s in timeline.spans} == {
        "a": "activation",
        "c": "activation",
        "y": "output",
        "z": "output",
    }
    assert timeline.live() == [16 * symbol("N") * k for k in (1, 1, 1, 2, 2, 2)]
    assert timeline.total == 64 * symbol("N")


def test_each_rule_can_be_switched_off() -> None:
    graph = raw(CHAIN, {"x": ("N", 4)}, ["y", "z"], CONSTANTS)
    ids = {s.id for s in lay_out(graph, rules=Rules(alias=False, in_place=False)).spans}
    assert ids == {"a", "v", "b", "c", "y", "z"}
    assert {s.id for s in lay_out(graph, rules=Rules(alias=True, in_place=False)).spans} == ids - {"v"}


def test_inputs_count_if_wanted_and_live_throughout() -> None:
    graph = raw(CHAIN, {"x": ("N", 4)}, ["y", "z"], CONSTANTS)
    timeline = lay_out(graph, rules=Rules(inputs=True))
    assert (span(timeline, "x").kind, life(timeline, "x")) == ("input", (0, 6))
    assert timeline.live()[0] == 32 * symbol("N")


def test_a_view_of_an_input_or_a_weight_takes_nothing_and_one_that_is_an_output_does() -> None:
    nodes = [
        node("Reshape", ["x", "s"], ["v"]),
        node("Exp", ["v"], ["y"]),
        node("Reshape", ["w", "s"], ["u"]),
        node("Exp", ["u"], ["z"]),
        node("Identity", ["y"], ["out"]),
    ]
    constants = CONSTANTS | {"w": np.ones((2, 2), np.float32)}
    timeline = lay_out(raw(nodes, {"x": (1, 4)}, ["out", "z"], constants))
    assert {s.id: s.kind for s in timeline.spans} == {"y": "activation", "z": "output", "out": "output"}


def test_the_branches_of_an_if_run_inside_it_one_after_the_other() -> None:
    big = branch("big", [node("Concat", ["a", "a"], ["t"], axis=0), node("ReduceMax", ["t", "k"], ["r"])], "r")
    small = branch("small", [node("ReduceMax", ["a", "k"], ["r"])], "r")
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("If", ["flag"], ["b"], name="choice", then_branch=big, else_branch=small),
        node("Exp", ["b"], ["y"]),
    ]
    timeline = lay_out(raw(nodes, {"x": (8, 4), "flag": FLAG}, ["y"], {"k": np.array([0])}))
    # Attributes are written by name: the else branch comes first.
    assert [step.label for step in timeline.steps[1:5]] == [
        "choice/0:ReduceMax→r",
        "choice/1:Concat→t",
        "choice/1:ReduceMax→r",
        "choice",
    ]
    # What is alive around the If is alive during all of it, its result included; the branches write into that.
    assert life(timeline, "a") == (0, 5)
    assert life(timeline, "b") == (1, 6)
    assert life(timeline, "choice/1:t") == (2, 4)
    assert {s.id for s in timeline.spans} == {"a", "b", "y", "choice/1:t"}
    assert timeline.live() == [128, 144, 144 + 256, 144 + 256, 144, 32]


def loop(body_nodes: list[Any], carried: list[str], results: list[str], scanned: list[str]) -> GraphProto:
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        *(helper.make_tensor_value_info(name, F, None) for name in carried),
    ]
    outputs = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        *(helper.make_tensor_value_info(name, F, None) for name in (*results, *scanned)),
    ]
    return helper.make_graph([node("Identity", ["go"], ["on"]), *body_nodes], "body", inputs, outputs)


def test_a_loop_counts_what_it_carries_as_it_comes_in_and_as_it_goes_out() -> None:
    body = loop([node("Exp", ["state"], ["t"]), node("Exp", ["t"], ["next"])], ["state"], ["next"], ["t"])
    nodes = [node("Loop", ["n", "", "x"], ["y", "rows"], name="loop", body=body)]
    graph = raw(nodes, {"x": (8, 4)}, ["y", "rows"], {"n": np.array(5)})
    assert graph.tensors["rows"].size == 5 * 128
    timeline = lay_out(graph)
    ids = {s.id: s.size for s in timeline.spans}
    assert (ids["loop/0:state"], ids["loop/0:next"], ids["loop/0:t"]) == (128, 128, 128)
    assert (ids["y"], ids["rows"]) == (128, 640)
    assert [step.op_type for step in timeline.steps] == ["Identity", "Exp", "Exp", "Loop"]
    # What is carried out of it is copied from what the last round made, and collected rounds are there from the start.
    assert life(timeline, "loop/0:state") == (0, 4)
    assert life(timeline, "loop/0:next") == (2, 4)
    assert life(timeline, "y") == (3, 4)
    assert life(timeline, "rows") == (0, 4)


def test_what_a_loop_changes_is_not_known_nor_what_follows_from_it() -> None:
    """`first` takes over what `second` was, which grows: neither has a shape that holds in every round."""
    body = loop(
        [node("Identity", ["second"], ["first_next"]), node("Concat", ["second", "x"], ["second_next"], axis=0)],
        ["first", "second"],
        ["first_next", "second_next"],
        [],
    )
    nodes = [node("Loop", ["n", "", "x", "x"], ["a", "b"], name="loop", body=body)]
    graph = raw(nodes, {"x": (8, 4)}, ["a", "b"], {"n": np.array(5)})
    (inner,) = graph.nodes[0].subgraphs
    for tensor in (graph.tensors["a"], graph.tensors["b"], inner.tensors["first"], inner.tensors["second"]):
        assert isinstance(tensor.size, Unknown), tensor.name
    names = {tensor.name for tensor in lay_out(graph).unknown}
    assert {"a", "b", "first", "second", "second_next"} <= names


def test_an_operator_of_others_that_is_called_a_loop_is_none() -> None:
    nodes = [node("Loop", ["x", "x"], ["y"], domain="of.others"), node("Exp", ["y"], ["z"])]
    assert [step.label for step in lay_out(raw(nodes, {"x": (4,)}, ["z"])).steps] == ["Loop→y", "Exp→z"]


def test_a_loop_that_may_not_run_hands_on_what_it_was_given() -> None:
    body = loop([node("ConstantOfShape", ["k"], ["next"])], ["state"], ["next"], [])
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body)]
    inputs: dict[str, Any] = {"x": (8,), "n": helper.make_tensor_value_info("n", TensorProto.INT64, [])}
    graph = raw(nodes, inputs, ["y"], {"k": np.array([3])})
    assert isinstance(graph.tensors["y"].size, Unknown)


def test_scan_slices_and_stacks() -> None:
    body = helper.make_graph(
        [node("Add", ["state", "part"], ["next"]), node("Exp", ["next"], ["row"])],
        "body",
        [helper.make_tensor_value_info(name, F, None) for name in ("state", "part")],
        [helper.make_tensor_value_info(name, F, None) for name in ("next", "row")],
    )
    nodes = [node("Scan", ["x", "parts"], ["last", "rows"], name="scan", body=body, num_scan_inputs=1)]
    graph = raw(nodes, {"x": (4,), "parts": ("T", 4)}, ["last", "rows"])
    assert graph.tensors["rows"].shape == (symbol("T"), 4)
    timeline = lay_out(graph)
    assert span(timeline, "scan/0:part").size == 16
    assert span(timeline, "rows").size == 16 * symbol("T")


def test_names_used_again_in_a_branch_stay_apart() -> None:
    one = branch("one", [node("Exp", ["x"], ["t"]), node("Exp", ["t"], ["r"])], "r")
    nodes = [
        node("Exp", ["x"], ["t0"]),
        node("If", ["flag"], ["b"], name="same", then_branch=one, else_branch=one),
        node("If", ["flag"], ["c"], name="same", then_branch=one, else_branch=one),
        node("Sum", ["t0", "b", "c"], ["y"]),
    ]
    timeline = lay_out(raw(nodes, {"x": (4,), "flag": FLAG}, ["y"]))
    ids = [s.id for s in timeline.spans]
    assert len(set(ids)) == len(ids) == 8
    assert "same/0:t#2" in ids


def test_unknown_sizes_are_listed_and_never_counted_as_nothing() -> None:
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node("Identity", ["where"], ["same"]),
        node("Exp", ["x"], ["y"]),
        node("Cast", ["same"], ["z"], to=F),
    ]
    timeline = lay_out(raw(nodes, {"x": (4,)}, ["y", "z"]))
    assert [tensor.name for tensor in timeline.unknown] == ["where", "same", "z"]
    assert {s.id for s in timeline.spans} == {"y"}
    assert all(s.size for s in timeline.spans)


def test_a_graph_of_constants_alone_has_a_timeline() -> None:
    graph = raw([node("Constant", [], ["c"], value_ints=[1, 2])], {"x": (4,)}, ["c"])
    for counted in (False, True):
        timeline = lay_out(graph, rules=Rules(inputs=counted))
        assert timeline.steps == ()
        assert timeline.live() == ([16] if counted else [])


@pytest.mark.parametrize("order", ORDERS)
def test_sizes_may_stay_symbolic_in_every_order(order: str) -> None:
    graph = raw(CHAIN, {"x": ("N", 4)}, ["y", "z"], CONSTANTS)
    live: list[Dim] = lay_out(graph, order, sample={"N": 100}).live()
    assert max(evaluate(dim, {"N": 3}) for dim in live) >= 96


def test_the_best_order_is_the_best_of_what_tensors_take_in_a_plan() -> None:
    # While big is there, so is t (96 bytes), or else the six that are made of it (24). In a plan each of them begins at
    # a multiple of 64, and then it is the six that take more.
    reduced = [node(f"Reduce{how}", ["t"], [how], keepdims=1) for how in ("Max", "Min", "Sum", "Mean", "L1", "L2")]
    nodes = [
        node("Split", ["x", "parts"], ["t", "u"], axis=0),
        node("Expand", ["u", "long"], ["big"]),
        node("ReduceMax", ["big"], ["r"], keepdims=1),
        *reduced,
        node("Concat", [*(each.output[0] for each in reduced), "r"], ["y"], axis=0),
    ]
    graph = raw(nodes, {"x": (25,)}, ["y"], {"parts": np.array([24, 1]), "long": np.array([250])})
    for alignment in (1, 64):
        timelines = {order: lay_out(graph, order, alignment=alignment) for order in ORDERS}
        peaks = {order: problem_of(timeline, alignment).lower_bound for order, timeline in timelines.items()}
        best = timelines["best"].search
        assert best.optimal
        assert best.peak == peaks["best"] == min(peaks.values())
