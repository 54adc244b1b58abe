"""Buffers that may share places, for strategies that know nothing of it: what shares a place becomes one buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxmem.errors import PlanError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.shares import NO_PAIRS, Int64Array, Places, choose


def merged(problem: Problem, used: Int64Array) -> tuple[Problem, Places]:
    """The problem in which every chain of `used` pairs is one buffer. Nothing may share in it any more."""
    places = Places.made(problem.lowers, problem.uppers, problem.sizes, used)
    ids = tuple(problem.ids[row] for row in places.heads.tolist())
    merged = Problem(
        ids, places.lowers, places.uppers, places.sizes, problem.alignment, capacity=problem.capacity, shares=NO_PAIRS
    )
    return merged, places


def place_with_shares(problem: Problem, place: Callable[[Problem], Plan]) -> Plan:
    """Place the buffers with as many sharing as can; and without, where that might be smaller."""
    if not len(problem.shares):
        return place(problem)
    together, places = merged(problem, choose(problem.lowers, problem.uppers, problem.footprints, problem.shares))
    found = place(together)
    if not isinstance(found, Plan) or found.problem is not together:
        raise PlanError("a strategy did not return a Plan of the problem it was given")
    best = replace(found, problem=problem, offsets=found.offsets[places.of], proven_bound=problem.lower_bound)
    apart = problem.without_shares()
    if best.peak <= apart.lower_bound:
        return best
    alone = place(apart)
    better = alone if alone.peak < best.peak else best
    return replace(
        better, problem=problem, proven_bound=problem.lower_bound, interrupted=best.interrupted or alone.interrupted
    )
