"""What a session says about its memory: figures, or why there are none; as JSON and back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from onnxmem import InferenceSession, Unknown
from onnxmem.session.memory import SessionMemory
from tests import small_models as models


def returned(memory: SessionMemory) -> SessionMemory:
    return SessionMemory.from_document(json.loads(json.dumps(memory.document())))


def test_without_a_plan_there_are_no_figures_but_the_reason(chain: Path) -> None:
    unplanned = InferenceSession(chain, mode="stock").memory
    assert (
        unplanned.plan_bytes == unplanned.bound_bytes == unplanned.arena_bytes == Unknown("mode 'stock' does not plan")
    )
    assert unplanned.document()["plan_bytes"] is None
    new = InferenceSession(chain).memory
    assert new.plan_bytes == new.bound_bytes == Unknown("no run has been planned yet")
    assert new.arena_bytes == 0
    for memory in (unplanned, new):
        assert returned(memory) == memory


def test_a_shape_that_cannot_be_planned_says_why() -> None:
    session = InferenceSession(models.looping())
    for _ in range(2):  # so many calls for so little memory that no plan is made
        session.run(None, {"x": np.ones(1, np.float32), "turns": np.array(20_000)})
    memory = session.memory
    (shape,) = memory.shapes
    assert (memory.runs_recorded, memory.runs_from_heap) == (1, 1)
    assert isinstance(memory.plan_bytes, Unknown) and "so many" in memory.plan_bytes.reason
    assert shape.arena_bytes == shape.bound_bytes == memory.plan_bytes
    assert not shape.optimal
    assert returned(memory) == memory


def test_it_comes_back_equal(chain: Path) -> None:
    session = InferenceSession(models.branching())
    for turn in range(12):
        session.run(None, {"x": np.ones(5000, np.float32), "flag": np.array(turn % 2 == 1)})
    memory = session.memory
    assert memory.shapes[0].last_deviation is not None
    assert returned(memory) == memory
    assert memory.document()["shapes"][0]["last_deviation"]["kind"] == memory.shapes[0].last_deviation.kind.value
