"""From a trace to offsets: what a run's buffers need, solved, and made into a tape that runs can follow."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from onnxmem._native import arena as native
from onnxmem._native import placement
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Int64Array, Problem
from onnxmem.placement.shares import NO_PAIRS
from onnxmem.placement.strategies import solve
from onnxmem.session.planned.trace import OUTLIVES, Trace

# The first plan must not keep the caller waiting. The background has more time, but a search takes memory, too: here
# it takes it while the arena is still empty, there on top of it.
AT_ONCE = 0.25
# Above this many buffers, those that hardly matter for the peak are placed without a search. All of them together may
# cost this part of the peak.
_MANY = 4000
_HARDLY = 0.004


@dataclass(frozen=True, eq=False)
class Placement:
    """One offset per buffer of a trace, -1 for those on the heap; and how good that is."""

    offsets: Int64Array
    peak: int
    bound: int
    """The best lower bound that was proven."""
    problem: Problem | None = None
    """What a longer search could work on; nothing if it cannot get any better."""
    shared: Int64Array = field(default_factory=lambda: NO_PAIRS)
    """Pairs of rows (before, after) at one place."""
    saved: int = 0
    """How much less that takes, at the least: than the most that is alive at once."""

    @property
    def optimal(self) -> bool:
        return self.peak <= self.bound

    @property
    def over(self) -> Int64Array | None:
        """For each buffer the one over which it is written, -1 for none; None if nothing shares."""
        if not len(self.shared):
            return None
        over = np.full(len(self.offsets), -1, np.int64)
        over[self.shared[:, 1]] = self.shared[:, 0]
        return over


def place(
    trace: Trace, *, guard: int = 0, seconds: float = AT_ONCE, seed: int = 0, pairs: Int64Array = NO_PAIRS
) -> Placement:
    """Offsets for the buffers that live within the run, of which `pairs` may share a place."""
    small = _small_ones(trace, guard)
    large = np.setdiff1d(trace.inside, small, assume_unique=True)
    problem = trace.problem(guard=guard, rows=large, pairs=pairs)
    return _combined(trace, guard, small, _solve(problem, seconds, seed))


def improve(trace: Trace, before: Placement, *, guard: int, seconds: float, seed: int) -> Placement:
    """A longer search where `before` left off; what it returns is never worse."""
    assert before.problem is not None
    small = _small_ones(trace, guard)
    plan = _solve(before.problem, seconds, seed)
    after = _combined(trace, guard, small, plan)
    return after if after.peak <= before.peak else before


def follow(trace: Trace, placement: Placement, *, guard: int = 0, cut: int | None = None) -> native.Tape:
    """The tape that runs are checked against. With `cut`, it ends at that step, and anything may come after it."""
    uppers = trace.uppers
    if cut is not None:
        # There is no call for what is alive at the end: it may be freed at any time after, in any order.
        uppers = np.where(uppers >= cut, OUTLIVES, uppers)
    return native.Tape(trace.sizes, trace.lowers, uppers, placement.offsets, guard, cut is not None, placement.over)


@functools.cache
def warm_up() -> None:
    """Place two buffers: what does it is imported and in memory before a session is loaded, not in its first run."""
    trace = Trace(*(np.array(column, np.int64) for column in ([64, 128, 64], [0, 1, 3], [2, 4, OUTLIVES])))
    follow(trace, place(trace))


def _solve(problem: Problem, seconds: float, seed: int) -> Plan:
    # A search shall not take more than a small part of the memory that it is about.
    memory = min(placement.MEMORY, problem.lower_bound // 32)
    return solve(problem, "best", time_limit=seconds, seed=seed, threads=1, memory=memory)


def _combined(trace: Trace, guard: int, small: Int64Array, plan: Plan) -> Placement:
    """The solved large buffers below, the many small ones above them."""
    offsets = np.full(len(trace), -1, np.int64)
    large = np.setdiff1d(trace.inside, small, assume_unique=True)
    offsets[large] = plan.offsets
    peak, bound = plan.peak, plan.proven_bound
    if len(small):
        sizes = trace.padded(guard)[small]
        above = native.place_in_sequence(sizes, trace.lowers[small], trace.uppers[small])
        offsets[small] = plan.peak + above
        peak += int((above + sizes).max())
        bound = bound if len(plan.problem.shares) else max(bound, trace.bound(guard))
    shared = large[plan.shared] if len(plan.problem.shares) else NO_PAIRS
    saved = max(0, trace.bound(guard) - peak) if len(shared) else 0
    return Placement(offsets, peak, bound, None if plan.optimal else plan.problem, shared, saved)


def _small_ones(trace: Trace, guard: int) -> Int64Array:
    """Rows of the buffers that are so small that even all of them at once hardly matter; none if there are few."""
    if len(trace.inside) <= _MANY:
        return np.empty(0, np.int64)
    sizes = trace.padded(guard)
    allowed = trace.bound(guard) * _HARDLY
    # Halving: the largest power of two below which they still hardly matter.
    for limit in (2**power for power in range(30, 5, -1)):
        rows: Int64Array = trace.inside[sizes[trace.inside] <= limit]
        if len(rows) < len(trace.inside) and trace.bound(guard, rows) <= allowed:
            return rows
    return np.empty(0, np.int64)
