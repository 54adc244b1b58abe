"""Smaller and smaller capacities, each put to the exact search."""

from __future__ import annotations

from onnxmem.placement.plan import Plan
from onnxmem.placement.strategies._hunt import Hunt

# The share of the remaining time that one target gets at first; it doubles with every round. A capacity is all that
# is asked for and gets more; the bound is a hope.
_FIRST_SHARE = {"capacity": 0.5, "bound": 0.1}
_LARGEST_SHARE = 0.5
_SHORTEST_SECONDS = 0.05


def minimize(hunt: Hunt) -> None:
    """Search at the goal, then between it and the best plan, until they meet or the time is up.

    A target is open, met (the best plan moves down to it), impossible (the bound moves above it) or undecided within
    its share of the time. The goal comes first, because good instances meet it; then the middle of what is open above
    the undecided ones. When nothing is open any more, the undecided get another round with more patience.
    """
    share = _FIRST_SHARE["bound" if hunt.problem.capacity is None else "capacity"]
    unit, attempt, undecided = hunt.unit, 0, -1
    while not hunt.over and hunt.best is not None:
        # Whole units: between two of them there is no other peak.
        goal = hunt.goal // unit * unit
        low, high = max(goal, undecided + unit), hunt.best.peak - unit
        if low > high:
            undecided, share = -1, min(share * 2, _LARGEST_SHARE)
            continue
        target = low if undecided < goal else low + (high - low) // (2 * unit) * unit
        if not _fit(hunt, target, max(hunt.seconds_left * share, _SHORTEST_SECONDS), attempt):
            undecided = target
        attempt += 1


def _fit(hunt: Hunt, capacity: int, seconds: float, attempt: int) -> bool:
    """Did the search come to a verdict?"""
    verdict, offsets = hunt.search(capacity, seconds, attempt=attempt)
    if offsets is not None:
        hunt.offer(Plan(hunt.problem, offsets))
    return verdict != "unknown"
