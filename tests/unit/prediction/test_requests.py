"""What a session asks for, on paper, against what ONNX Runtime asks for: sizes, and how long each is held."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper, parser

from onnxmem import zoo
from onnxmem.model.model import Model
from onnxmem.prediction.predict import Subject
from onnxmem.prediction.requests import as_saved
from onnxmem.schedule.scheduled import Question
from onnxmem.session.planned.trace import record
from tests.helpers import model_of, saved, session_options

WEIGHTS = np.ones((64, 64), np.float32)


@pytest.fixture
def unread(tmp_path: Path) -> Path:
    """Two of three parts are read by nobody."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], axis=0),
        helper.make_node("MatMul", ["a", "w"], ["d"]),
        helper.make_node("Concat", ["d", "d", "d", "d"], ["e"], axis=0),
        helper.make_node("MatMul", ["e", "w"], ["f"]),
        helper.make_node("ReduceSum", ["f"], ["y"]),
    ]
    return saved(model_of(nodes, {"x": [192, 64]}, ["y"], {"w": WEIGHTS}, opset=13), tmp_path)


def test_an_output_that_nobody_reads_stays_until_the_run_ends(unread: Path) -> None:
    predicted = Subject.of(Model.open(unread), Question(), threads=1).plain_runs.first
    trace = record(str(unread), {"x": np.ones((192, 64), np.float32)}, session_options("all"))
    assert predicted.peak == trace.bound()
    ends = {event.buffer.name: place for place, event in enumerate(predicted) if event.freed}
    assert ends["a"] < ends["d"] < ends["e"] < min(ends["b"], ends["c"])


def test_memory_of_an_output_that_nobody_reads_can_be_taken_over(unread: Path) -> None:
    predicted = Subject.of(Model.open(unread), Question(), threads=1).stock_runs.first
    taken = [event.buffer.name for event in predicted if not event.freed]
    assert taken == ["a", "b", "c", "e", "f", "y"]  # d lies where c lay
    ends = {event.buffer.name: place for place, event in enumerate(predicted) if event.freed}
    assert ends["c"] < ends["e"] < ends["b"]


def test_the_body_of_a_scan_writes_where_the_scan_says(tmp_path: Path) -> None:
    def floats(name: str, *shape: int) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    body = helper.make_graph(
        [helper.make_node("Concat", ["p", "c"], ["frame"], axis=1), helper.make_node("Add", ["p", "p"], ["next"])],
        "body",
        [floats("p", 3, 100), floats("c", 3, 50)],
        [floats("next", 3, 100), floats("frame", 3, 150)],
    )
    scan = helper.make_node(
        "Scan", ["s", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]
    )
    path = saved(model_of([scan], {"s": [3, 100], "x": [3, 5, 50]}, ["y"]), tmp_path)
    predicted = Subject.of(Model.open(path), Question(), threads=1).plain_runs.first
    feeds = {"s": np.ones((3, 100), np.float32), "x": np.ones((3, 5, 50), np.float32)}
    trace = record(str(path), feeds, session_options("all"))
    assert sorted(event.buffer.size for event in predicted if not event.freed) == sorted(trace.sizes)


@pytest.mark.parametrize("opset", [12, 13])
def test_old_models_have_old_kernels(opset: int, tmp_path: Path) -> None:
    softmax = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    path = saved(model_of([softmax], {"x": [2, 30, 40]}, ["y"], opset=opset), tmp_path)
    predicted = Subject.of(Model.open(path), Question(), threads=1).plain_runs.first
    trace = record(str(path), {"x": np.ones((2, 30, 40), np.float32)}, session_options("all"))
    assert [event.buffer.size for event in predicted if not event.freed] == list(trace.sizes)


def test_single_numbers_take_nothing_over(tmp_path: Path) -> None:
    """A chain of sums: each could lie where the one before the last lay."""
    names = ["x", "a", "b", "c", "d", "y"]
    nodes = [helper.make_node("ReduceSum", [one], [other], keepdims=0) for one, other in pairwise(names)]
    path = saved(model_of(nodes, {"x": [64, 64]}, ["y"], opset=13), tmp_path)
    options = session_options("disabled")
    predicted = Subject.of(Model.open(path), Question(level="disabled"), threads=1).stock_runs.first
    trace = record(str(path), {"x": np.ones((64, 64), np.float32)}, options)
    assert len([event for event in predicted if not event.freed]) == len(trace)


def test_a_package_is_not_put_into_another_order_once_more() -> None:
    """Its file has the order in which ONNX Runtime ran the nodes, which is not the one that it then runs them in."""
    source = Subject.of(Model.of(zoo.build("nas")), Question(), threads=1)
    package = replace(source, graph=as_saved(source.graph), loaded_as="prepacked")
    assert package.packaged_runs.first.peak == package.plain_runs.first.peak == source.packaged_runs.first.peak
    assert replace(package, loaded_as="").packaged_runs.first.peak != source.packaged_runs.first.peak


@pytest.mark.parametrize("products", [1, 2, 3])
def test_what_a_loop_hands_to_its_body_is_not_freed_in_there(products: int, tmp_path: Path) -> None:
    """The body makes what the next round is handed, and keeps what it was handed itself until the loop has its output,
    wherever it reads that for the last time."""

    def value(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (64, 64)) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    names = ["x", *(f"after {k}" for k in range(1, products)), "next"]
    body = helper.make_graph(
        [
            *(helper.make_node("MatMul", [one, "w"], [other]) for one, other in pairwise(names)),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "body",
        [value("turn", TensorProto.INT64, ()), value("on", TensorProto.BOOL, ()), value("x")],
        [value("still", TensorProto.BOOL, ()), value("next")],
    )
    nodes = [helper.make_node("Loop", ["turns", "yes", "image"], ["y"], body=body)]
    constants = {"w": WEIGHTS, "turns": np.array(3), "yes": np.array(True)}
    path = saved(model_of(nodes, {"image": [64, 64]}, ["y"], constants, opset=13), tmp_path)
    subject = Subject.of(Model.open(path), Question(), threads=1)
    for runs in (subject.stock_runs, subject.plain_runs):
        for run in (runs.first, runs.later):
            taken = [id(event.buffer) for event in run if not event.freed]
            assert {id(event.buffer) for event in run if event.freed} <= set(taken)
    trace = record(str(path), {"image": np.ones((64, 64), np.float32)}, session_options("all"))
    assert subject.plain_runs.first.peak == pytest.approx(trace.problem(outputs=True).lower_bound, abs=256)


def test_a_loop_does_not_free_what_its_body_is_fed(tmp_path: Path) -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        loops (float[4] x, int64 count) => (float[4] y) {
            go = Constant <value = bool {1}> ()
            y = Loop (count, go, x) <body = step (int64 i, bool c, float[4] s) => (bool on, float[4] next) {
                on = Identity(c)
                next = Add(s, s)
            }>
        }""")
    subject = Subject.of(Model.open(saved(model, tmp_path)), Question(), threads=1)
    for runs in (subject.plain_runs, subject.stock_runs):
        held: list[object] = []
        for event in runs.first:
            held.remove(event.buffer) if event.freed else held.append(event.buffer)
        assert len(held) == 1  # what it returns
