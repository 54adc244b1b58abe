"""Options of planned runs: one record, checked when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from onnxmem import Arena, UsageError
from onnxmem.session.planning import PlanningOptions


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_plans": 0}, "max_plans cannot be 0"),
        ({"max_plans": "2"}, "max_plans cannot be '2'"),
        ({"plan_seconds": -1}, "plan_seconds must be a number of seconds, not -1"),
        ({"plan_seconds": float("nan")}, "plan_seconds must be a number of seconds"),
        ({"trim_after": "x"}, "trim_after must be a number of seconds, not 'x'"),
        ({"arena": 3}, r"arena must be an onnxmem\.Arena, not 3"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PlanningOptions(**wrong)


def test_a_shared_arena_has_its_own_settings() -> None:
    given: list[dict[str, Any]] = [{"trim_after": 1.0}, {"huge_pages": True}]
    for more in given:
        with pytest.raises(UsageError, match="has its own trim_after and huge_pages"):
            PlanningOptions(arena=Arena(), **more)
    PlanningOptions(arena=Arena(), huge_pages=False)


def test_it_knows_what_was_given() -> None:
    assert PlanningOptions().given == []
    assert PlanningOptions(plans=iter([]), debug=False).given == ["plans", "debug"]


def test_plans_can_be_read_more_than_once() -> None:
    options = PlanningOptions(plans=iter([{"inputs": []}]))
    assert options.plans == ({"inputs": []},)
