"""What runs are recorded with: several inputs of each shape, the caller's where there are any."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxmem.measurement.feeds import Feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Input, Signature
from onnxmem.model.dims import symbol
from onnxmem.packing.plan_feeds import feeds_for_plans

SIGNATURE = Signature((Input("x", "float32", (symbol("n"),)),), ())
GENERATED, SAVED = Scenario(Path("m")), Scenario(Path("m"), inputs=Path("feeds.npz"))


def fed(*values: float) -> Feeds:
    return Feeds({"x": np.array(values, np.float32)})


def test_generated_inputs_differ() -> None:
    ((first, *others),) = feeds_for_plans(SIGNATURE, GENERATED, [fed(1, 2)], [{"x": (2,)}])
    assert first.arrays["x"].tolist() == [1, 2]
    assert len(others) == 2
    assert len({array.arrays["x"].tobytes() for array in (first, *others)}) == 3


def test_the_callers_are_taken_where_they_fit() -> None:
    several = feeds_for_plans(SIGNATURE, SAVED, [fed(1, 2)], [{"x": (2,)}, {"x": (3,)}])
    assert [len(runs) for runs in several] == [1, 3]
    assert several[0][0].arrays["x"].tolist() == [1, 2]


def test_several_files_are_planned_without_being_asked_for() -> None:
    given = [fed(1, 2), fed(3, 4), fed(5)]
    assert feeds_for_plans(SIGNATURE, SAVED, given, []) == ((given[0], given[1]), (given[2],))
    assert feeds_for_plans(SIGNATURE, SAVED, given, [{"x": (1,)}]) == ((given[0], given[1]), (given[2],))
    assert feeds_for_plans(SIGNATURE, SAVED, given[:1], []) == ()
