"""Each native function against its slow reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement_instances import cut_rectangle, random_buffers
from onnxmem._native import placement
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Buffer, Int64Array, Problem
from onnxmem.placement.validate import validate_plan
from tests.unit.placement import reference


def columns(problem: Problem) -> tuple[Int64Array, Int64Array, Int64Array]:
    return problem.lowers, problem.uppers, problem.footprints


@given(reference.problems(), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_greedy_places_like_the_reference(problem: Problem, chance: object, best_fit: bool, by_start: bool) -> None:
    order = list(range(len(problem)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    if by_start:
        order.sort(key=lambda i: int(problem.lowers[i]))
    rows = np.array(order, dtype=np.int64)
    offsets, interrupted = placement.place_in_order(*columns(problem), rows, best_fit, math.inf)
    assert offsets is not None and not interrupted
    assert offsets.tolist() == reference.place_in_order(problem, order, best_fit=best_fit)


def test_greedy_with_an_index_places_like_the_reference() -> None:
    problem = random_buffers(5000, 0, alive=30)
    order = np.lexsort((problem.lowers, -problem.footprints))
    offsets, _ = placement.place_in_order(*columns(problem), order, False, math.inf)
    small = random_buffers(400, 0, alive=30)
    assert offsets is not None
    validate_plan(Plan(problem, offsets))
    # The first 4,096 buffers go into a list, more into a tree: put a small problem among far-away others.
    far = [Buffer(f"far {i}", 10**9 + i, 10**9 + i + 1, 1) for i in range(4100)]
    padded = Problem.of([*small, *far])
    rows = np.lexsort((padded.lowers, -padded.footprints))
    indexed, _ = placement.place_in_order(*columns(padded), rows, False, math.inf)
    assert indexed is not None
    few = [int(i) for i in rows if i < len(small)]
    assert indexed[: len(small)].tolist() == reference.place_in_order(small, few, best_fit=False)


@given(reference.problems())
def test_at_once_it_is_the_best_of_three_orders(problem: Problem) -> None:
    offsets, peak, bound = placement.place_at_once(*columns(problem))
    plan = Plan(problem, offsets)
    validate_plan(plan)
    assert (plan.peak, problem.lower_bound) == (peak, bound)
    rows, sizes = list(range(len(problem))), problem.footprints
    keys = (
        lambda i: problem.lowers[i],
        lambda i: -sizes[i],
        lambda i: -sizes[i] * (problem.uppers - problem.lowers)[i],
    )
    peaks = []
    for key in keys:
        rows.sort(key=key)
        placed = Plan(problem, np.array(reference.place_in_order(problem, rows, best_fit=False), np.int64))
        peaks.append(placed.peak)
    assert peak == min(peaks)


@given(reference.problems())
def test_reduction_keeps_what_lives_together_and_nothing_else(problem: Problem) -> None:
    reduced = placement.reduce(*columns(problem))
    assert reduced["unit"] == max(math.gcd(*problem.footprints.tolist()), 1)
    assert {frozenset(row for row, *_ in part) for part in reduced["parts"]} == reference.connected_parts(problem)
    sections = set()
    for part in reduced["parts"]:
        for section in range(max(last for _, _, last, _ in part)):
            sections.add(frozenset(row for row, first, last, _ in part if first <= section < last))
        for row, _, _, size in part:
            assert size * reduced["unit"] == problem.footprints[row]
    assert sections == reference.maximal_live_sets(problem)


@settings(max_examples=60)
@given(reference.problems(most=6, largest=6), st.integers(0, 3), st.integers(1, 3))
def test_search_knows_what_fits(problem: Problem, seed: int, lanes: int) -> None:
    smallest = reference.smallest_peak(problem)
    for capacity in {smallest, smallest + 1, max(smallest - 1, 0), problem.lower_bound}:
        verdict, offsets, _ = placement.search(*columns(problem), capacity, 60.0, seed, lanes)
        assert verdict == ("fits" if capacity >= smallest else "impossible")
        if offsets is not None:
            plan = Plan(problem, offsets)
            validate_plan(plan)
            assert plan.peak <= capacity


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("trim", [0.0, 0.1])
def test_search_solves_puzzles_without_waste(seed: int, trim: float) -> None:
    problem = cut_rectangle(60, seed, trim=trim)
    assert problem.capacity is not None
    verdict, offsets, _ = placement.search(*columns(problem), problem.capacity, 60.0, 0, 2)
    assert verdict == "fits" and offsets is not None
    plan = Plan(problem, offsets)
    validate_plan(plan)
    assert plan.fits


def test_search_proves_that_a_live_sum_is_not_always_enough() -> None:
    problem = Problem.of(SMALLEST_GAP)
    assert problem.lower_bound == 5
    assert placement.search(*columns(problem), 5, 60.0, 0, 2)[0] == "impossible"
    assert placement.search(*columns(problem), 6, 60.0, 0, 2)[0] == "fits"


def test_wrong_columns_are_refused() -> None:
    one, two = np.array([1]), np.array([1, 2])
    with pytest.raises(ValueError, match="different length"):
        placement.search(one, two, two, 5, 1.0, 0, 1)
    with pytest.raises(ValueError, match="empty lifetime"):
        placement.search(two, two, two, 5, 1.0, 0, 1)
    with pytest.raises(ValueError, match="permutation"):
        placement.place_in_order(one - 1, one, one, one, False, 1.0)
    with pytest.raises(ValueError, match="negative capacity"):
        placement.search(one - 1, one, one, -1, 1.0, 0, 1)


# Never more than 5 alive, but no plan within 5: whatever lies in the middle at step 4 has to lie at the edge at 5.
SMALLEST_GAP = [
    Buffer(str(i), *row)
    for i, row in enumerate([(0, 2, 4), (2, 3, 2), (2, 4, 2), (0, 5, 1), (3, 5, 1), (3, 6, 1), (4, 6, 1), (5, 6, 3)])
]


def test_a_plan_as_large_as_can_be_has_offsets() -> None:
    largest = np.array([2**63 - 1], np.int64)
    offsets, peak, bound = placement.place_at_once(np.array([0], np.int64), np.array([1], np.int64), largest)
    assert (offsets.tolist(), peak, bound) == ([0], 2**63 - 1, 2**63 - 1)
