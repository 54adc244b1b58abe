"""The constraint program agrees with the search, and says what it needs."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmem.errors import RuntimeUnsupported
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies import STRATEGIES, solve
from tests.unit.placement import reference
from tests.unit.placement.test_native import SMALLEST_GAP


@settings(max_examples=15)
@given(st.one_of(reference.problems(), reference.sharing_problems(most=8)))
def test_it_agrees_with_the_search(problem: Problem) -> None:
    pytest.importorskip("ortools")
    program, search = solve(problem, "cp_sat", time_limit=20.0, threads=2), solve(problem, "best", time_limit=20.0)
    assert program.optimal and search.optimal
    assert program.peak == search.peak


def test_it_proves_what_the_search_proves() -> None:
    pytest.importorskip("ortools")
    plan = solve(Problem.of(SMALLEST_GAP), "cp_sat", threads=2)
    assert (plan.peak, plan.proven_bound) == (6, 6)
    plan = solve(Problem.of(SMALLEST_GAP, capacity=5), "cp_sat", threads=2)
    assert not plan.fits
    assert plan.proven_bound == 6


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(RuntimeUnsupported) as caught:
        solve(Problem.of(SMALLEST_GAP), "cp_sat")
    assert caught.value.hint == "pip install ortools"
    assert "cp_sat" not in STRATEGIES
