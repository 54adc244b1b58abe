"""Smaller and smaller capacities, each put to the exact search."""

from __future__ import annotations

from onnxmem.placement.plan import Plan
from onnxmem.placement.strategies._state import SearchState

# The share of the remaining work that one target gets at first; it doubles with every round. A capacity is all that
# is asked for and gets more; the bound is a hope.
_FIRST_SHARE = {"capacity": 0.5, "bound": 0.1}
_LARGEST_SHARE = 0.5


def minimize(state: SearchState) -> None:
    """Search at the goal, then between it and the best plan, until they meet or the work is done.

    A target is open, met (the best plan moves down to it), impossible (the bound moves above it) or undecided within
    its share of the work. The goal comes first, because good instances meet it; then the middle of what is open above
    the undecided ones. When nothing is open any more, the undecided get another round with more patience.
    """
    share = _FIRST_SHARE["bound" if state.problem.capacity is None else "capacity"]
    unit, attempt, undecided = state.unit, 0, -1
    while not state.over and state.best is not None:
        # Whole units: between two of them there is no other peak.
        goal = state.goal // unit * unit
        low, high = max(goal, undecided + unit), min(state.best.peak, state.limit) - unit
        if low > high:
            undecided, share = -1, min(share * 2, _LARGEST_SHARE)
            continue
        target = low if undecided < goal else low + (high - low) // (2 * unit) * unit
        if not _fit(state, target, share, attempt):
            undecided = target
        attempt += 1


def _fit(state: SearchState, capacity: int, share: float, attempt: int) -> bool:
    """Did the search come to a verdict?"""
    verdict, offsets = state.search(capacity, share, attempt=attempt)
    if offsets is not None:
        state.offer(Plan(state.problem, offsets))
    return verdict != "unknown"
