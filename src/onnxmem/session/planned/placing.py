"""From a trace to offsets: what a run's buffers need, solved, and made into a tape that runs can follow."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxmem._native import arena as native
from onnxmem._native import placement
from onnxmem.placement.problem import Int64Array, Problem
from onnxmem.placement.shares import NO_PAIRS, Places, choose, within
from onnxmem.session.planned.trace import OUTLIVES, Trace

if TYPE_CHECKING:
    from onnxmem.placement.plan import Plan

# The first plan must not keep the caller waiting. The background has more time, but a search takes memory, too: here
# it takes it while the arena is still empty, there on top of it.
AT_ONCE = 0.25
# A search takes memory, too: for less than that, none begins.
WORTHWHILE = 128 * 2**10
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
    improvable: bool = False
    """Whether a longer search could find a better one."""
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
    trace: Trace,
    *,
    guard: int = 0,
    seconds: float = AT_ONCE,
    room: int = 0,
    worthwhile: int = WORTHWHILE,
    pairs: Int64Array = NO_PAIRS,
) -> Placement:
    """Offsets for the buffers that live within the run, of which `pairs` may share a place.

    The first will do that need no more than the `room` there is, or of which no others could save a `worthwhile` part.
    """
    if len(trace.inside) > _MANY:
        return _searched(trace, guard, seconds, 0, pairs)
    quick = at_once(trace, guard, pairs)
    if len(quick.shared) and quick.peak >= trace.bound(guard):
        # Where sharing saves nothing, it might cost something.
        apart = at_once(trace, guard, NO_PAIRS)
        quick = apart if apart.peak <= quick.peak else quick
    if quick.peak > quick.bound + worthwhile and quick.peak > room:
        return _searched(trace, guard, seconds, 0, pairs)
    return replace(quick, improvable=quick.peak > quick.bound + worthwhile)


def at_once(trace: Trace, guard: int, pairs: Int64Array) -> Placement:
    """Offsets that take no search. As many pairs share a place as can, whether that saves anything or not."""
    rows, offsets, padded = trace.inside, np.full(len(trace), -1, np.int64), trace.padded(guard)
    lowers, uppers, sizes = trace.lowers[rows], trace.uppers[rows], padded[rows]
    if not len(pairs):
        offsets[rows], peak, bound = placement.place_at_once(lowers, uppers, sizes)
        return Placement(offsets, peak, bound)
    used = choose(lowers, uppers, sizes, within(pairs, rows, len(trace)))
    places = Places.made(lowers, uppers, sizes, used)
    found, peak, _ = placement.place_at_once(places.lowers, places.uppers, places.sizes)
    offsets[rows] = found[places.of]
    saved = max(0, trace.bound(guard) - peak)
    return Placement(offsets, peak, trace.bound(guard, pairs=pairs), False, rows[used], saved)


def improve(
    trace: Trace, before: Placement, *, guard: int, seconds: float, seed: int, pairs: Int64Array = NO_PAIRS
) -> Placement:
    """A longer search; what it returns is never worse than what was there before."""
    after = _searched(trace, guard, seconds, seed, pairs)
    return after if after.peak <= before.peak else before


def _searched(trace: Trace, guard: int, seconds: float, seed: int, pairs: Int64Array) -> Placement:
    small = _small_ones(trace, guard)
    large = np.setdiff1d(trace.inside, small, assume_unique=True)
    problem = trace.problem(guard=guard, rows=large, pairs=pairs)
    return _combined(trace, guard, small, _solve(problem, seconds, seed))


def follow(trace: Trace, placement: Placement, *, guard: int = 0, cut: int | None = None) -> native.Tape:
    """The tape that runs are checked against. With `cut`, it ends at that step, and anything may come after it."""
    uppers = trace.uppers
    if cut is not None:
        # There is no call for what is alive at the end: it may be freed at any time after, in any order.
        uppers = np.where(uppers >= cut, OUTLIVES, uppers)
    columns = trace.sizes, trace.lowers, uppers, placement.offsets
    return native.Tape(*columns, guard, cut is not None, placement.over, trace.alignment)


@functools.cache
def warm_up() -> None:
    """Place two buffers: what does it is imported and in memory before a session is loaded, not in its first run."""
    trace = Trace(*(np.array(column, np.int64) for column in ([64, 128, 64], [0, 1, 3], [2, 4, OUTLIVES])))
    follow(trace, place(trace))


def _solve(problem: Problem, seconds: float, seed: int) -> Plan:
    from onnxmem.placement.strategies import solve  # noqa: PLC0415  most traces are placed without a search

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
        above = native.place_in_sequence(sizes, trace.lowers[small], trace.uppers[small], trace.alignment)
        offsets[small] = plan.peak + above
        peak += int((above + sizes).max())
        bound = max(bound, trace.bound(guard, pairs=large[plan.problem.shares]))
    shared = large[plan.shared]
    saved = max(0, trace.bound(guard) - peak) if len(shared) else 0
    return Placement(offsets, peak, bound, not plan.optimal, shared, saved)


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
