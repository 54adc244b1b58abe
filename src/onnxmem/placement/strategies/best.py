"""The smallest plan within a time limit, with a proof where there is one.

Stages, each of which ends the whole as soon as the goal is met (the capacity, or else the proven bound):

1. `portfolio`: greedy orderings × fits, the cheap ones first.
2. `minimize`: the exact search for a plan within the goal; then within capacities between the bound and the best plan.
   `grow_core` instead, where there are too many buffers for that: exact where most is live, greedy around it.

Where buffers may share places, `share_places` decides which do, and takes these stages for each choice that it tries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from onnxmem._native import placement
from onnxmem.errors import UsageError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Int64Array, Problem
from onnxmem.placement.strategies._core import grow_core
from onnxmem.placement.strategies._minimize import minimize
from onnxmem.placement.strategies._share import share_places
from onnxmem.placement.strategies._state import SearchState
from onnxmem.placement.strategies.greedy_by_breadth import widest_step


def plan(
    problem: Problem,
    *,
    time_limit: float = 10.0,
    effort: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    memory: int = placement.MEMORY,
) -> Plan:
    """The smallest plan found within `time_limit` seconds, or the first within the problem's capacity.

    The search does as much as an ordinary processor does in `effort` seconds, or else in `time_limit`. Unless the limit
    ends it, it gives the same plan for the same `seed`, `effort`, number of `threads` and `memory`, the bytes in
    which each of them remembers what failed. Ctrl-C ends it with the best plan so far.
    """
    if not time_limit > 0:
        raise UsageError(f"the time limit must be more than 0 seconds, not {time_limit}")
    if threads is not None and threads < 1:
        raise UsageError(f"a search needs at least one thread, not {threads}")
    state = SearchState(
        problem,
        time_limit=time_limit,
        effort=time_limit if effort is None else effort,
        seed=seed,
        threads=threads or min(os.cpu_count() or 1, 8),
        memory=memory,
    )
    try:
        if len(problem.shares):
            share_places(state, portfolio, deepen)
        else:
            portfolio(state)
            deepen(state)
    except KeyboardInterrupt:
        state.interrupted = True
    return state.result()


def deepen(state: SearchState) -> None:
    """Search for smaller plans than those of the portfolio."""
    if state.over:
        return
    problem = state.problem
    largest_part = placement.largest_part(problem.lowers, problem.uppers, problem.footprints)
    (minimize if largest_part <= placement.MOST_FOR_SEARCH else grow_core)(state)


def portfolio(state: SearchState) -> None:
    """Greedy plans until one meets the goal."""
    for order, best_fit in _orders(state.problem):
        state.place(order, best_fit=best_fit)
        if state.over:
            return


def _orders(problem: Problem) -> Iterator[tuple[Int64Array, bool]]:
    """Orderings by falling merit; those by start come first because they are fast at any size."""
    sizes = problem.footprints.astype(np.float64)
    steps = problem.uppers.astype(np.float64) - problem.lowers
    by_start = np.lexsort((-problem.footprints, problem.lowers))
    by_area = np.lexsort((problem.lowers, -(sizes * steps)))
    by_size = np.lexsort((problem.lowers, -problem.footprints))
    yield by_start, False
    yield by_start, True
    yield by_area, False
    yield by_size, False
    yield np.lexsort((-sizes, -steps)), False
    yield np.lexsort((-problem.footprints, -widest_step(problem))), False
    yield by_size, True
