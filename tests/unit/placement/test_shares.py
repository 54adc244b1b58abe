"""Pairs that may share a place: what is possible, the bound, the validator, and plans that use them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement_instances import random_buffers, sharing_run
from onnxmem.errors import PlanError
from onnxmem.placement import shares
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.placement.strategies import STRATEGIES, best, solve
from onnxmem.placement.table import read_plan, read_problem, write_plan, write_problem
from onnxmem.placement.validate import validate_plan
from tests.unit.placement import reference

# A chain: each is written over the one before it, which is freed a little later.
CHAIN = [Buffer("a", 0, 3, 8), Buffer("b", 2, 6, 8), Buffer("c", 5, 9, 4)]
CHAINED = Problem.of(CHAIN, shares=[(0, 1), (1, 2)])


def test_a_chain_takes_one_place() -> None:
    assert CHAINED.without_shares().lower_bound == 16
    plan = solve(CHAINED, "best")
    assert (plan.peak, plan.proven_bound, plan.optimal) == (8, 8, True)
    assert plan.shared.tolist() == [[0, 1], [1, 2]]
    assert CHAINED.peak_step == (0, 8)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Buffer("x", 0, 4, 8), Buffer("y", 2, 6, 9)),  # larger
        (Buffer("x", 0, 4, 8), Buffer("y", 0, 6, 8)),  # begins with it
        (Buffer("x", 0, 4, 8), Buffer("y", 4, 6, 8)),  # begins when it is gone
        (Buffer("x", 0, 4, 8), Buffer("y", 2, 3, 8)),  # ends sooner
    ],
)
def test_impossible_pairs_are_refused_by_name(before: Buffer, after: Buffer) -> None:
    with pytest.raises(PlanError, match=r"buffer 'y' .* cannot be written over 'x'"):
        Problem.of([before, after], shares=[(0, 1)])


def test_rows_that_are_not_there_are_refused() -> None:
    for pair in ((0, 3), (-1, 0)):
        with pytest.raises(PlanError, match="a row that is not there"):
            Problem.of(CHAIN, shares=[pair])


def check(problem: Problem, *offsets: int) -> None:
    validate_plan(Plan(problem, np.array(offsets)))


def test_the_validator_takes_pairs_at_one_place_and_nothing_else() -> None:
    check(CHAINED, 0, 0, 0)
    check(CHAINED, 0, 8, 8)
    check(CHAINED, 8, 0, 8)
    with pytest.raises(PlanError, match="'a' and 'b' overlap at step 2"):
        check(CHAINED.without_shares(), 0, 0, 0)
    with pytest.raises(PlanError, match="'a' and 'b' may share a place, but overlap at step 2 with offsets 0 and 4"):
        check(CHAINED, 0, 4, 0)
    with pytest.raises(PlanError, match="'b' and 'c' overlap at step 5"):
        check(Problem.of(CHAIN, shares=[(0, 1)]), 0, 0, 0)


def test_the_validator_refuses_three_at_one_place() -> None:
    one_over_two = [Buffer("a", 0, 5, 8), Buffer("b", 1, 5, 8), Buffer("c", 2, 6, 8)]
    all_pairs = [(0, 1), (0, 2), (1, 2)]
    with pytest.raises(PlanError, match="'a', 'b' and 'c' lie at one place at step 2: only two may share"):
        check(Problem.of(one_over_two, shares=all_pairs), 0, 0, 0)
    check(Problem.of(one_over_two, shares=all_pairs), 0, 8, 0)
    # Nor is a chain possible whose first buffer is still there when its third begins.
    with pytest.raises(PlanError, match="'a' and 'c' overlap at step 2"):
        check(Problem.of(one_over_two, shares=[(0, 1), (1, 2)]), 0, 0, 0)


def test_what_shares_a_place_keeps_others_away_until_the_last_has_ended() -> None:
    buffers = [Buffer("a", 0, 3, 8), Buffer("b", 2, 6, 8), Buffer("x", 4, 5, 1)]
    problem = Problem.of(buffers, shares=[(0, 1)])
    with pytest.raises(PlanError, match="'b' and 'x' overlap at step 4"):
        check(problem, 0, 0, 7)
    check(problem, 0, 0, 8)
    # What is smaller than what it is written over leaves the rest free once that is gone.
    smaller = Problem.of([buffers[0], Buffer("b", 2, 6, 4), buffers[2]], shares=[(0, 1)])
    check(smaller, 0, 0, 7)
    with pytest.raises(PlanError, match="'a' and 'x' overlap at step 2"):
        check(Problem.of([buffers[0], Buffer("b", 2, 6, 4), Buffer("x", 2, 5, 1)], shares=[(0, 1)]), 0, 0, 7)


@settings(max_examples=60)
@given(reference.sharing_problems(most=6, largest=6))
def test_the_bound_is_never_above_the_smallest_peak(problem: Problem) -> None:
    smallest = reference.smallest_shared_peak(problem)
    assert problem.lower_bound <= smallest <= reference.smallest_peak(problem)


@given(reference.sharing_problems())
def test_the_validator_agrees_with_a_plain_one(problem: Problem) -> None:
    """Random offsets out of few: pairs meet, in all ways that are right and wrong."""
    offsets = [(7 * i * i + len(problem)) % 3 * problem.alignment * 8 for i in range(len(problem))]
    sizes = problem.sizes.tolist()
    pairs = {tuple(pair) for pair in problem.shares.tolist()}
    right = True
    for i, one in enumerate(problem):
        for j, other in enumerate(problem):
            apart = (
                offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i] or not sizes[i] * sizes[j]
            )
            if i < j and reference.overlap(one, other) and not apart:
                right = right and offsets[i] == offsets[j] and bool({(i, j), (j, i)} & pairs)
    for step in {b.lower for b in problem}:
        at = [offsets[i] for i, b in enumerate(problem) if b.size and b.lower <= step < b.upper]
        right = right and all(at.count(offset) <= 2 for offset in at)
    try:
        check(problem, *offsets)
        assert right
    except PlanError:
        assert not right


@settings(max_examples=100)
@given(reference.sharing_problems(most=6, largest=6))
def test_the_best_plan_is_the_smallest_and_proven(problem: Problem) -> None:
    plan = solve(problem, "best")
    assert plan.peak == reference.smallest_shared_peak(problem)
    assert plan.optimal


@settings(max_examples=60)
@given(reference.sharing_problems(most=8))
@pytest.mark.parametrize("strategy", [*STRATEGIES, "tests.unit.placement.test_shares:stacked"])
def test_sharing_is_never_worse_than_without(strategy: str, problem: Problem) -> None:
    assert solve(problem, strategy).peak <= solve(problem.without_shares(), strategy).peak


def stacked(problem: Problem) -> Plan:
    """A strategy of someone who knows nothing of sharing."""
    assert not len(problem.shares)
    return Plan(problem, np.cumsum(problem.footprints) - problem.footprints)


def test_the_choice_prefers_what_counts_where_most_is_live() -> None:
    # 'late' can be written over 'long' or 'short', and 'early' over 'short' only.
    buffers = [Buffer("short", 0, 3, 8), Buffer("long", 0, 9, 8), Buffer("early", 2, 9, 8), Buffer("late", 2, 9, 8)]
    problem = Problem.of(buffers, shares=[(0, 2), (0, 3), (1, 3)])
    assert solve(problem, "best").peak == 16 == problem.lower_bound


@given(reference.sharing_problems())
def test_files_keep_what_may_share(tmp_path_factory: pytest.TempPathFactory, problem: Problem) -> None:
    path = tmp_path_factory.mktemp("csv") / "problem.csv"
    # Names with separators and quotes in them.
    ids = tuple(f'{index}"; {index}' if index % 3 else f"n{index}" for index in range(len(problem)))
    problem = replace(problem, ids=ids)
    write_problem(problem, path)
    again = read_problem(path, alignment=problem.alignment)
    assert list(again) == list(problem)
    assert again.shares.tolist() == problem.shares.tolist()
    assert path.read_text().splitlines()[0] == "id,lower,upper,size" + ",shares" * bool(len(problem.shares))
    plan = solve(problem, "greedy_by_size")
    write_plan(plan, path)
    read = read_plan(path, alignment=problem.alignment)
    assert read.offsets.tolist() == plan.offsets.tolist()
    assert read.shared.tolist() == plan.shared.tolist()


def test_a_file_that_names_a_buffer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "problem.csv"
    path.write_text("id,lower,upper,size,shares\na,0,2,8,\nb,1,3,8,a  x\n")
    with pytest.raises(PlanError, match=r"problem.csv': buffer 'b' may share with 'x', which is not there"):
        read_problem(path)
    path.write_text("id,lower,upper,size,shares\na,0,2,8,\nb,1,3,8, a\n")
    assert read_problem(path).shares.tolist() == [[0, 1]]


@given(reference.sharing_problems(), st.randoms(use_true_random=False))
def test_pairs_within_some_rows(problem: Problem, chance: object) -> None:
    rows = np.array([i for i in range(len(problem)) if chance.random() < 0.7], np.int64)  # type: ignore[attr-defined]
    kept = shares.within(problem.shares, rows, len(problem))
    assert [rows[pair].tolist() for pair in kept] == [
        pair for pair in problem.shares.tolist() if set(pair) <= set(rows.tolist())
    ]


def test_numbers_near_the_largest_do_not_overflow() -> None:
    huge = 2**62
    buffers = [Buffer(str(i), 2 * i, 2 * i + 3, huge) for i in range(9)]
    problem = Problem.of(buffers, shares=[(i, i + 1) for i in range(8)])
    assert (problem.lower_bound, solve(problem, "best").peak) == (huge, huge)


@pytest.mark.parametrize("seed", range(6))
def test_longer_runs_are_planned_at_their_bound(seed: int) -> None:
    problem = sharing_run(250, seed)
    plan = solve(problem, "best", time_limit=30.0)
    assert plan.optimal and len(plan.shared) > 50
    assert plan.peak <= problem.without_shares().lower_bound


def test_the_same_seed_shares_the_same_places() -> None:
    """Also where the search goes through many choices and proves nothing."""
    buffers = random_buffers(100, 2, alive=12)
    every = np.array([(b, a) for b in range(100) for a in range(100)])
    possible = every[shares.allowed(buffers.lowers, buffers.uppers, buffers.sizes, every)]
    problem = replace(buffers, shares=possible[::3])
    plans = [solve(problem, "best", seed=3, threads=2, effort=0.1, time_limit=600.0) for _ in range(3)]
    assert not plans[0].optimal and plans[0].peak < buffers.lower_bound
    assert all(np.array_equal(plan.offsets, plans[0].offsets) for plan in plans)


# Nobody hears of one that comes when a generator is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_call_ends_a_search_with_a_plan_or_as_it_is() -> None:
    # Three at once, of which two can share: the bound cannot be met, so that all choices are tried.
    problem = Problem.of([Buffer("a", 0, 4, 4), Buffer("b", 1, 5, 4), Buffer("c", 2, 6, 4)], shares=[(0, 1), (1, 2)])
    left, limit = 0, 0

    def interrupt(_frame: Any, event: str, _what: Any) -> None:
        nonlocal left
        left -= event == "call"
        if left < 0 and event == "call":
            raise KeyboardInterrupt

    while limit < 10_000:
        left = limit
        sys.setprofile(interrupt)
        try:
            plan = best.plan(problem, threads=1)
        except KeyboardInterrupt:
            plan = None
        finally:
            sys.setprofile(None)
        if plan is not None:
            validate_plan(plan)
            assert plan.proven_bound <= 8 <= plan.peak
        if left >= 0:
            return
        limit += 1
    raise AssertionError("it never came to its end")
