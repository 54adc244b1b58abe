"""Large problems: exact where most is live, greedy around it.

In a large problem few steps come near the bound. The buffers alive there, the core, go through the exact search; all
others have room to spare and are placed greedily into what the core leaves. Those that do not fit below the target
were underestimated: they join the core, and it starts again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxmem._native import placement
from onnxmem.placement.problem import Int64Array, Problem
from onnxmem.placement.strategies._state import SearchState
from onnxmem.placement.strategies.greedy_by_breadth import widest_step

# Steps at which at least this share of the bound is live are where it gets tight.
_TIGHT = 0.95
_LARGEST_FIRST_CORE = 1000
_NEARLY_TIGHT, _LARGE_ONES = 0.9, 400
# Below this share of the bound, halving the distance to the best plan is no longer worth a round.
_SMALLEST_STEP = 1e-4
# The part of the remaining work that one core gets.
_SHARE = 0.25


def grow_core(state: SearchState) -> None:
    """Plans within the goal, or else within targets half-way from there to the best plan, until the work is done."""
    cores = _first_cores(state.problem)
    low = target = state.goal
    attempt = 0
    while not state.over and state.best is not None:
        if not _meet(state, cores[attempt % len(cores)].copy(), target, attempt):
            low = target
        attempt += 1
        if attempt < len(cores):
            continue  # first of all, each of them at the goal
        target = low + (state.best.peak - low) // 2 // state.unit * state.unit
        if state.best.peak - target < max(state.bound * _SMALLEST_STEP, state.unit):
            low = target = state.goal


def _meet(state: SearchState, core: npt.NDArray[np.bool_], target: int, attempt: int) -> bool:
    """Can a plan within the target be built around a core that grows as needed?"""
    while _has_room(state.problem, core) and not state.exhausted:
        rows = np.flatnonzero(core)
        _, offsets = state.search(target, _SHARE, rows=rows, attempt=attempt)
        if offsets is None:
            return False
        plan = state.place(_around(state.problem, rows, offsets))
        if plan is None:
            return False
        above = plan.offsets > target - state.problem.footprints
        if not above.any():
            return True
        if not (above & ~core).any():
            return False
        core |= above
    return False


def _has_room(problem: Problem, core: npt.NDArray[np.bool_]) -> bool:
    """Do the tables of the search hold so many, and who is alive with whom, in no more memory than without a core?"""
    lowers, uppers = problem.lowers[core], problem.uppers[core]
    together = np.searchsorted(np.sort(lowers), uppers) - np.searchsorted(np.sort(uppers), lowers, side="right")
    return len(lowers) <= placement.MOST_IN_TABLES and int(together.sum()) <= placement.MOST_FOR_SEARCH**2


def _first_cores(problem: Problem) -> list[npt.NDArray[np.bool_]]:
    """The buffers of the widest steps; and the largest of more steps, between which the others find gaps."""
    widest = widest_step(problem)
    most = min(_LARGEST_FIRST_CORE, len(problem))
    # Not more than can be searched quickly; those of the very widest steps in any case.
    limit = min(max(_TIGHT * problem.lower_bound, float(np.sort(widest)[-most])), float(widest.max()))
    near = np.flatnonzero(widest >= _NEARLY_TIGHT * problem.lower_bound)
    large = np.zeros(len(problem), dtype=bool)
    large[near[np.argsort(-problem.footprints[near], kind="stable")[:_LARGE_ONES]]] = True
    return [widest >= limit, large]


def _around(problem: Problem, core: Int64Array, offsets: Int64Array) -> Int64Array:
    """An order in which the greedy step puts the core where the search did or lower, and then all others by size."""
    # From the bottom up nothing is in a core buffer's way that was not there in the search.
    rest = np.ones(len(problem), dtype=bool)
    rest[core] = False
    others = np.flatnonzero(rest)
    by_size = np.lexsort((problem.lowers[others], -problem.footprints[others]))
    return np.concatenate([core[np.argsort(offsets, kind="stable")], others[by_size]])
