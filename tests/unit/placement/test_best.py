"""The best strategy: as small as possible, in time, with a proof where there is one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.placement_instances import cut_rectangle, random_buffers
from onnxmem.errors import BudgetExceeded, UsageError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Buffer, Problem
from onnxmem.placement.strategies import STRATEGIES, solve
from onnxmem.placement.strategies import best as best_strategy
from tests.patience import patience
from tests.unit.placement import reference
from tests.unit.placement.test_native import SMALLEST_GAP


@settings(max_examples=60)
@given(reference.problems(most=6, largest=6))
def test_it_finds_and_proves_the_smallest_peak(problem: Problem) -> None:
    plan = solve(problem, "best")
    assert plan.peak == reference.smallest_peak(problem)
    assert plan.optimal


@settings(max_examples=60)
@given(reference.problems())
def test_it_is_never_worse_than_any_other(problem: Problem) -> None:
    smallest = solve(problem, "best", time_limit=5.0).peak
    assert all(smallest <= solve(problem, name).peak for name in STRATEGIES)


def test_a_tight_puzzle_is_solved_at_its_bound() -> None:
    problem = cut_rectangle(150, 1).with_capacity(None)
    plan = solve(problem, "best", time_limit=30.0)
    assert plan.optimal
    assert solve(problem, "greedy_by_size").gap > 0.05


def test_a_capacity_ends_the_search_as_soon_as_it_is_met() -> None:
    problem = cut_rectangle(150, 1)
    assert problem.capacity is not None
    generous = problem.with_capacity(problem.capacity * 2)
    assert solve(generous, "best").peak > problem.capacity
    assert solve(problem, "best", time_limit=30.0).fits


def test_a_capacity_below_the_bound_is_refused_at_once_with_the_bound() -> None:
    problem = Problem.of(SMALLEST_GAP, capacity=4)
    with pytest.raises(BudgetExceeded) as caught:
        solve(problem, "best")
    assert "5 bytes" in caught.value.hint


def test_a_proof_raises_the_bound() -> None:
    plan = solve(Problem.of(SMALLEST_GAP), "best")
    assert (plan.problem.lower_bound, plan.proven_bound, plan.peak) == (5, 6, 6)
    assert plan.optimal
    impossible = solve(Problem.of(SMALLEST_GAP, capacity=5), "best")
    assert not impossible.fits
    assert impossible.proven_bound == 6


def test_the_same_seed_gives_the_same_plan() -> None:
    problem = cut_rectangle(120, 3)
    plans = [solve(problem, "best", seed=7, threads=3, time_limit=30.0) for _ in range(3)]
    assert all(plan.fits for plan in plans)
    assert all(np.array_equal(plan.offsets, plans[0].offsets) for plan in plans)


def test_a_search_that_proves_nothing_ends_in_the_same_place() -> None:
    """Its end is by work and not by time: a busy machine takes longer, and finds the same."""
    problem = cut_rectangle(600, 0, trim=0.05).with_capacity(None)

    def search(_: int) -> Plan:
        return solve(problem, "best", seed=7, threads=3, effort=0.1, time_limit=600)

    plans = [search(0), search(1)]
    with ThreadPoolExecutor(3) as pool:
        plans += pool.map(search, range(3))
    assert not plans[0].optimal
    assert all(np.array_equal(plan.offsets, plans[0].offsets) for plan in plans)
    assert len({plan.proven_bound for plan in plans}) == 1


def test_a_large_problem_meets_its_bound_around_the_core() -> None:
    # One step at which most is live, and thousands of buffers elsewhere with room to spare.
    tight = cut_rectangle(40, 5, steps=500, unit=1 << 12)
    others = random_buffers(4000, 0, alive=3)
    shifted = [Buffer(f"other {b.id}", b.lower - 2000, b.upper - 2000, b.size // 8 + 1) for b in others]
    problem = Problem.of([*tight, *shifted])
    assert solve(problem, "best", time_limit=30.0).optimal
    assert min(solve(problem, name).gap for name in ("greedy_by_size", "first_fit")) > 0.05


def test_the_time_limit_is_kept() -> None:
    problem = cut_rectangle(800, 0, trim=0.2).with_capacity(None)
    started = time.perf_counter()
    plan = solve(problem, "best", time_limit=0.5)
    assert time.perf_counter() - started < 0.5 + patience(4)
    assert not plan.interrupted


@pytest.mark.parametrize("options", [{"time_limit": 0.0}, {"time_limit": float("nan")}, {"threads": 0}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        solve(Problem.of(SMALLEST_GAP), "best", **options)


def test_nothing_overflows_near_the_largest_number() -> None:
    third = LARGEST // 3
    huge = [
        Buffer("a", -LARGEST, LARGEST, third),
        Buffer("b", -LARGEST, 0, third),
        Buffer("c", 0, LARGEST, third),
        Buffer("d", -1, 1, third),
        Buffer("e", 5, 6, third),
    ]
    plan = solve(Problem.of(huge), "best")
    assert plan.peak == plan.problem.lower_bound == 3 * third
    assert solve(Problem.of([Buffer("x", 0, 1, LARGEST)]), "best").peak == LARGEST


def test_empty_buffers_and_problems_take_nothing() -> None:
    assert solve(Problem.of([]), "best").peak == 0
    assert solve(Problem.of([Buffer("a", 0, 1, 0), Buffer("b", 0, 1, 0)]), "best").peak == 0


def test_the_orders_differ() -> None:
    orders = [
        tuple(order.tolist()) for order, best_fit in best_strategy._orders(random_buffers(200, 1)) if not best_fit
    ]
    assert len(set(orders)) == len(orders)
