"""Which searches are made for a budget: as few as will do, and none less than needed for what is told of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onnxmem.rewriting import budgets
from onnxmem.rewriting.budgets import within


def rewriting(after: int, extra_work: float) -> Any:
    return SimpleNamespace(after=after, extra_work=extra_work, added_nodes=1)


def searches(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[float, int]]:
    """Those that were made. A real one takes seconds, and what it answers is tested elsewhere."""
    made: list[tuple[float, int]] = []

    def search(_: object, *, extra_work: float, budget: int, time_limit: float) -> Any:
        made.append((extra_work, budget))
        return answer(extra_work, budget)

    monkeypatch.setattr(budgets, "search", search)
    return made


def test_the_least_work_that_meets_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made = searches(monkeypatch, lambda work, _: rewriting(100 if work < 0.1 else 50, work))
    found = within(None, 60, time_limit=1.0)  # type: ignore[arg-type]
    assert found.after == 50 and found.extra_work == 0.1 and made == [(0.02, 60), (0.05, 60), (0.1, 60)]


def test_what_more_work_does_not_change_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = searches(monkeypatch, lambda work, budget: rewriting(100, 0.01))
    assert within(None, 1, time_limit=1.0).after == 100  # type: ignore[arg-type]
    assert made == [(0.02, 1), (0.05, 1), (4.0, 1), (4.0, 75)]


def test_the_least_is_not_what_a_budget_out_of_reach_happens_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    # As with MobileNet: for 10 KiB a search finds nothing below 1.2 MiB, and for 1 MiB it does.
    made = searches(monkeypatch, lambda work, budget: rewriting(budget if 60 <= budget <= 80 else 100, 0.01))
    assert within(None, 1, time_limit=1.0).after == 75  # type: ignore[arg-type]
    assert made[-2:] == [(4.0, 75), (4.0, 56)]
