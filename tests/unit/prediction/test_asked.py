"""What kernels say they take: asked of those of the CPU, whose answers are known, and read from calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from onnxmem import zoo
from onnxmem.deadline import Deadline
from onnxmem.model.model import Model
from onnxmem.prediction.asked import Asked, ask_kernels, scratch_in
from onnxmem.prediction.predict import Subject
from onnxmem.schedule.scheduled import Question
from onnxmem.scratch.kernel import Scratch
from onnxmem.session.planned.trace import OUTLIVES, Trace
from onnxmem.unknown import Unknown
from tests.helpers import model_of, saved


def trace(*rows: tuple[int, int, int]) -> Trace:
    return Trace(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


@pytest.mark.parametrize(
    ("rows", "inputs", "scratch"),
    [
        # an input, an output, and a workspace that ends before it
        ([(100, 0, 5), (300, 1, 4), (77, 2, 3)], [100], Scratch((77,))),
        # what is taken before the output, and given back before there is more
        ([(8, 0, 2), (9, 1, 5), (300, 3, OUTLIVES), (7, 4, 6)], [], Scratch((8, 9, -1, 7), before=3)),
        # of two of the output's size, the one that ends last is the output
        ([(300, 0, 3), (300, 1, 4)], [], Scratch((300,), before=1)),
        ([(100, 0, 3), (300, 1, 2)], [100], Scratch()),
    ],
)
def test_scratch_is_what_is_left_without_inputs_and_outputs(
    rows: list[tuple[int, int, int]], inputs: list[int], scratch: Scratch
) -> None:
    assert scratch_in(trace(*rows), inputs, [300]) == scratch


def test_kernels_of_the_cpu_say_what_our_formulas_say(tmp_path: Path) -> None:
    """There is a formula for every one of them, so that both can be wrong only together."""
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("transformer").SerializeToString())
    model = Model.open(path)
    subject = Subject.of(model, Question(dims={"batch": 1, "sequence": 8}), threads=None)
    graph = subject.graph
    asked = ask_kernels(graph, model.optimized("all", {}), None, Deadline(60))
    assert asked
    assert not any(isinstance(answer, Unknown) for answer in asked.values())
    runs = subject.plain_runs.first
    taken = sorted(event.buffer.size for event in runs if event.buffer.kind == "scratch" and not event.freed)
    said = [answer.later.buffers for answer in asked.values() if isinstance(answer, Asked)]
    assert sorted(size for buffers in said for size in buffers) == taken
    assert taken


def test_a_node_that_cannot_run_alone_says_why(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    path = saved(model_of(nodes, {"x": [4, 4]}, ["y"], {"i": np.array([9])}, opset=13), tmp_path)
    model = Model.open(path)
    graph = model.graph({}, level="disabled")
    asked = ask_kernels(graph, model.optimized("disabled", {}), None, Deadline(60))
    assert isinstance(asked["a"], Unknown)
    assert "does not run" in asked["a"].reason
    assert isinstance(asked["y"], Asked)


def test_a_time_limit_ends_the_asking(tmp_path: Path) -> None:
    path = saved(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [4, 4]}, ["y"], {}, opset=13), tmp_path)
    model = Model.open(path)
    graph, proto, deadline = model.graph({}), model.optimized("all", {}), Deadline(1e-9)
    assert ask_kernels(graph, proto, None, deadline) == {"y": Unknown("the time limit was over")}
