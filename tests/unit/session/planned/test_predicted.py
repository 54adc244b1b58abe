"""Shapes that never ran are planned by those that did, and give the answers of a stock session all the same."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxmem import zoo
from tests import small_models as models
from tests.unit.session.planned.test_planned import array, planned, same, stock


def always_new(count: int, *ranges: range, seed: int = 0) -> list[tuple[int, ...]]:
    chance, found = np.random.default_rng(seed), dict[tuple[int, ...], None]()
    while len(found) < count:
        found[tuple(int(chance.choice(values)) for values in ranges)] = None
    return list(found)


@pytest.mark.parametrize(
    ("network", "most_recorded", "sides"),
    [("unet", 10, range(32, 192, 16)), ("mobilenet", 35, range(33, 160)), ("resnet18", 35, range(33, 160))],
)
def test_most_shapes_are_never_recorded(network: str, most_recorded: int, sides: range) -> None:
    model = bytes(zoo.build(network).SerializeToString()) if network != "unet" else models_unet()
    session, reference = planned(model), stock(model)
    for shape in always_new(60, sides, sides):
        feeds = {"image": array(1, 3, *shape)}
        assert same(session.run(None, feeds), reference.run(None, feeds))
    memory = session.memory
    assert memory.runs_recorded <= most_recorded
    assert memory.runs_recorded + memory.shapes_predicted == 60
    assert (memory.runs_deviated, memory.runs_from_heap) == (0, 0)


def models_unet() -> bytes:
    return bytes(zoo.build("unet", channels=4).SerializeToString())


def test_threads_predict_and_record_at_once() -> None:
    session, reference = planned(models_unet()), stock(models_unet())
    shapes = iter(always_new(120, range(32, 320, 16), range(32, 320, 16)))
    lock, wrong = threading.Lock(), []

    def work() -> None:
        while True:
            with lock:
                shape = next(shapes, None)
            if shape is None:
                return
            feeds = {"image": array(1, 3, *shape)}
            if not same(session.run(None, feeds), reference.run(None, feeds)):
                wrong.append(shape)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory = session.memory
    assert not wrong
    assert memory.runs_recorded + memory.shapes_predicted == 120
    assert memory.shapes_predicted >= 100
    assert memory.regions <= session.arena.limit


def test_a_predicted_plan_is_kept() -> None:
    session = planned(models.tower())
    for width in (10, 25, 37, 52, 71, 88, 93, 97, 105, 111, 116, 122):
        session.run(None, {"x": array(width, 50)})
    recorded = session.memory.runs_recorded
    for _ in range(3):
        session.run(None, {"x": array(64, 50)})
    memory = session.memory
    assert memory.runs_recorded == recorded and memory.shapes_predicted >= 1
    assert memory.shapes[-1].inputs == {"x": (64, 50)} and memory.shapes[-1].replayed == 3


def kinked() -> bytes:
    """The sum of x once for each row, but at most 40 times: what it needs is no product any more from there on."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Min", ["shape", "most"], ["rows"]),
        helper.make_node("Expand", ["one", "rows"], ["many"]),
        helper.make_node("Exp", ["many"], ["exp"]),
        helper.make_node("ReduceSum", ["exp"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    constants = [
        helper.make_tensor("most", TensorProto.INT64, [2], [40, 1 << 40]),
        helper.make_tensor("one", TensorProto.FLOAT, [1, 1], [0.5]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "kinked", [value("x", TensorProto.FLOAT, ["rows", 50])], [value("y", TensorProto.FLOAT, None)], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_a_wrong_prediction_gives_the_right_answer_and_is_recorded_next_time() -> None:
    session, reference = planned(kinked()), stock(kinked())

    def run(rows: int) -> None:
        feeds: dict[str, Any] = {"x": array(rows, 50)}
        assert same(session.run(None, feeds), reference.run(None, feeds))

    for rows in (3, 9, 14, 22, 26, 31, 33, 38, 39):
        run(rows)
    before = session.memory
    assert before.shapes_predicted > 0 and before.runs_deviated == 0
    run(100)
    assert session.memory.runs_deviated == 1
    run(100)
    after = session.memory
    assert after.runs_deviated == 1 and after.runs_recorded == before.runs_recorded + 1
    for rows in range(101, 140):
        run(rows)
