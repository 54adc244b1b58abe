"""What a session asks for, on paper, against what ONNX Runtime asks for: sizes, and how long each is held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from onnxmem.model.model import Model
from onnxmem.prediction.predict import Subject
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
