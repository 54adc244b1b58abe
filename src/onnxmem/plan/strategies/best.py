"""The smallest plan within a time limit, with a proof where there is one.

Stages, each of which ends the whole as soon as the goal is met (the capacity, or else the proven bound):

1. `_portfolio`: greedy orderings × fits, the cheap ones first.
2. `_search`: the exact search for a plan within the goal; then capacities between the bound and the best plan.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from onnxmem._native import placement
from onnxmem.errors import UsageError
from onnxmem.plan.plan import Plan
from onnxmem.plan.problem import LARGEST, Int64Array, Problem
from onnxmem.plan.strategies._place import try_in_order
from onnxmem.plan.strategies.greedy_by_breadth import widest_step


def plan(problem: Problem, *, time_limit: float = 10.0, seed: int = 0, threads: int | None = None) -> Plan:
    """The smallest plan found within `time_limit` seconds, or the first within the problem's capacity.

    A search that ends before the limit gives the same plan for the same `seed` and number of `threads`. Ctrl-C ends
    it at once with the best plan so far.
    """
    if not time_limit > 0:
        raise UsageError(f"the time limit must be more than 0 seconds, not {time_limit}")
    hunt = _Hunt(problem, time_limit, seed, threads or min(os.cpu_count() or 1, 8))
    try:
        _portfolio(hunt)
        if not hunt.over:
            _search(hunt)
    except KeyboardInterrupt:
        hunt.interrupted = True
    return hunt.result()


class _Hunt:
    """The best plan and the best bound so far, and when to stop."""

    def __init__(self, problem: Problem, time_limit: float, seed: int, threads: int) -> None:
        self.problem = problem
        self.seed = seed % 2**64
        self.threads = threads
        self.end = time.perf_counter() + time_limit
        self.best: Plan | None = None
        self.bound = problem.lower_bound
        self.interrupted = False

    @property
    def seconds_left(self) -> float:
        return max(self.end - time.perf_counter(), 0.0)

    @property
    def goal(self) -> int:
        return self.bound if self.problem.capacity is None else max(self.problem.capacity, self.bound)

    @property
    def over(self) -> bool:
        """Is the goal met, or proven out of reach, or the time up?"""
        met = self.best is not None and self.best.peak <= self.goal
        beyond = self.problem.capacity is not None and self.problem.capacity < self.bound
        return met or beyond or self.interrupted or self.seconds_left <= 0

    def offer(self, candidate: Plan | None) -> None:
        if candidate is not None and (self.best is None or candidate.peak < self.best.peak):
            self.best = candidate

    def result(self) -> Plan:
        # Before the first greedy plan is complete there is still one that takes no search at all.
        best = self.best or Plan(self.problem, _stacked(self.problem))
        return replace(best, proven_bound=self.bound, interrupted=self.interrupted)


def _stacked(problem: Problem) -> Int64Array:
    """All buffers one above the other."""
    ends: Int64Array = np.cumsum(problem.footprints)
    return ends - problem.footprints


def _portfolio(hunt: _Hunt) -> None:
    for order, best_fit in _orders(hunt.problem):
        # The first one may take what it needs: an answer always comes.
        seconds = hunt.seconds_left if hunt.best else float("inf")
        hunt.offer(try_in_order(hunt.problem, order, best_fit=best_fit, seconds=seconds))
        if hunt.over:
            return


def _orders(problem: Problem) -> Iterator[tuple[Int64Array, bool]]:
    """Orderings by falling merit; those by start come first because they are fast at any size."""
    sizes = problem.footprints.astype(np.float64)
    steps = problem.uppers.astype(np.float64) - problem.lowers
    by_start = np.lexsort((-problem.footprints, problem.lowers))
    yield by_start, False
    yield by_start, True
    area = np.lexsort((problem.lowers, -(sizes * steps)))
    yield area, False
    size = np.lexsort((problem.lowers, -problem.footprints))
    yield size, False
    yield np.lexsort((-sizes, -steps)), False
    yield np.lexsort((-problem.footprints, -widest_step(problem))), False
    yield area, True
    yield size, True
    yield np.lexsort((problem.lowers, -(sizes * np.sqrt(steps)))), False
    yield np.lexsort((problem.lowers, -(sizes * sizes * steps))), False


def _search(hunt: _Hunt) -> None:
    """Ask the exact search for plans within smaller and smaller capacities, nearest to the bound first."""
    problem = hunt.problem
    unit = int(np.gcd.reduce(problem.footprints))
    if problem.capacity is not None:
        _fit(hunt, problem.capacity, hunt.seconds_left, 0)
        return
    attempt, share, undecided = 0, 0.1, hunt.bound - unit
    while not hunt.over:
        assert hunt.best is not None
        low, high = max(hunt.bound, undecided + unit), hunt.best.peak - unit
        if low > high:
            # Everything between the bound and the best plan was tried in vain: again, with more patience.
            undecided, share = hunt.bound - unit, share * 2
            continue
        # The bound itself first: good instances meet it. Then the middle of what is open.
        target = low if undecided < hunt.bound else low + (high - low) // (2 * unit) * unit
        if not _fit(hunt, target, max(hunt.seconds_left * min(share, 0.5), 0.05), attempt):
            undecided = max(undecided, target)
        attempt += 1


def _fit(hunt: _Hunt, capacity: int, seconds: float, attempt: int) -> bool:
    """One exact search; True if it came to a verdict."""
    problem = hunt.problem
    verdict, offsets, interrupted = placement.search(
        problem.lowers, problem.uppers, problem.footprints, min(capacity, LARGEST), seconds,
        (hunt.seed + attempt) % 2**64, hunt.threads,
    )  # fmt: skip
    hunt.interrupted = hunt.interrupted or interrupted
    if offsets is not None:
        hunt.offer(Plan(problem, offsets))
    if verdict == "impossible":
        # Peaks are sums of sizes, so the next one that is possible is a whole unit higher.
        unit = int(np.gcd.reduce(problem.footprints))
        hunt.bound = max(hunt.bound, capacity // unit * unit + unit)
    return verdict != "unknown"
