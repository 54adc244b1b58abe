"""What the stages of the best strategy share: the best plan and bound so far, the goal, and what may still be done.

Work is counted, not timed, so that the same seed gives the same plan however busy the machine is. The clock is there
for machines that are far slower than most.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

import numpy as np

from onnxmem._native import placement
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Int64Array, Problem
from onnxmem.placement.strategies._place import try_in_order

Verdict = Literal["fits", "impossible", "unknown"]

WORK_PER_SECOND = 10**8
"""What a thread of an ordinary processor does in a second, in the units of `placement.search`."""
_LEAST_WORK = WORK_PER_SECOND // 20


class SearchState:
    """A search in progress. Its `result` is valid at any moment, also after an interruption.

    `shrink` says which buffers take less from some step on, as `placement.search` wants it, and `bound` what is live
    then. Peaks of `limit` bytes or more are of no interest.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        time_limit: float,
        effort: float,
        seed: int,
        threads: int,
        memory: int,
        shrink: Int64Array | None = None,
        bound: int | None = None,
        limit: int = LARGEST,
    ) -> None:
        self.problem = problem
        self.shrink = shrink
        self.limit = limit
        self.seed = seed
        self.threads = threads
        self.memory = memory
        self.end = time.perf_counter() + time_limit
        self.work = self.work_left = int(min(effort, 1e6) * WORK_PER_SECOND)
        self.best: Plan | None = None
        self.bound = problem.lower_bound if bound is None else bound
        self.interrupted = False
        # Every size is a multiple of the unit, and so is every offset and peak worth considering.
        sizes = problem.footprints if shrink is None else np.concatenate([problem.footprints, shrink[:, 2]])
        self.unit = max(int(np.gcd.reduce(sizes)), 1) if len(problem) else 1

    @property
    def seconds_left(self) -> float:
        return max(self.end - time.perf_counter(), 0.0)

    @property
    def exhausted(self) -> bool:
        """Is the work done, or the time up?"""
        return self.interrupted or self.work_left * 100 < self.work or self.seconds_left <= 0

    @property
    def goal(self) -> int:
        """The peak that ends the search."""
        return self.bound if self.problem.capacity is None else max(self.problem.capacity, self.bound)

    @property
    def over(self) -> bool:
        """Is the goal met, or proven out of reach, or nothing more to be done?"""
        met = self.best is not None and self.best.peak <= self.goal
        out_of_reach = self.problem.capacity is not None and self.problem.capacity < self.bound
        return met or out_of_reach or self.bound >= self.limit or self.exhausted

    def offer(self, candidate: Plan | None) -> None:
        """Keep a plan if it is the smallest so far."""
        if candidate is not None and (self.best is None or candidate.peak < self.best.peak):
            self.best = candidate

    def place(self, order: Int64Array, *, best_fit: bool = False) -> Plan | None:
        """A greedy plan, offered; None if the time ran out. The first one may take what it needs."""
        seconds = self.seconds_left if self.best else float("inf")
        plan = try_in_order(self.problem, order, best_fit=best_fit, seconds=seconds)
        self.offer(plan)
        return plan

    def search(
        self, capacity: int, share: float, *, rows: Int64Array | None = None, attempt: int = 0
    ) -> tuple[Verdict, Int64Array | None]:
        """Do the buffers (or those in `rows`) fit? A proof that they do not raises the bound.

        `share` is the part of the work left that this may cost.
        """
        problem = self.problem
        chosen = slice(None) if rows is None else rows
        shrink = self.shrink
        if shrink is not None and rows is not None:
            # `rows` rise, and so do those in `shrink`.
            shrink = shrink[np.isin(shrink[:, 0], rows)]
            shrink[:, 0] = np.searchsorted(rows, shrink[:, 0])
        work = max(int(self.work_left * share), _LEAST_WORK)
        verdict, offsets, interrupted = placement.search(
            problem.lowers[chosen], problem.uppers[chosen], problem.footprints[chosen],
            min(capacity, LARGEST), self.seconds_left, (self.seed + attempt) % 2**64, self.threads, self.memory, work,
            shrink,
        )  # fmt: skip
        # An answer counts little: what it really took depends on which thread was first.
        self.work_left -= work if verdict == "unknown" else min(work, self.work // 100)
        self.interrupted = self.interrupted or interrupted
        if verdict == "impossible":
            self.bound = max(self.bound, capacity // self.unit * self.unit + self.unit)
        return verdict, offsets

    def result(self) -> Plan:
        """The best plan, with what is proven and whether it was cut short."""
        best = self.best or Plan(self.problem, _stacked(self.problem))
        return replace(best, proven_bound=self.bound, interrupted=self.interrupted)


def _stacked(problem: Problem) -> Int64Array:
    """All buffers one above the other: what is left when Ctrl-C comes before the first greedy plan is complete."""
    ends: Int64Array = np.cumsum(problem.footprints)
    if problem.total > LARGEST:
        raise KeyboardInterrupt
    return ends - problem.footprints
