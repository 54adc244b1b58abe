"""Smaller and smaller capacities, each put to the exact search."""

from __future__ import annotations

from onnxmem.plan.plan import Plan
from onnxmem.plan.strategies._hunt import Hunt

# The share of the remaining time that one capacity gets at first; it doubles with every round.
_FIRST_SHARE = 0.1
_LARGEST_SHARE = 0.5
_SHORTEST_SECONDS = 0.05


def minimize(hunt: Hunt) -> None:
    """Search at the bound, then between it and the best plan, until they meet or the time is up.

    A capacity is open, met (the best plan moves down to it), impossible (the bound moves above it) or undecided within
    its share of the time. The bound comes first, because good instances meet it; then the middle of what is open above
    the undecided ones. When nothing is open any more, the undecided get another round with more patience.
    """
    if hunt.problem.capacity is not None:
        _fit(hunt, hunt.problem.capacity, hunt.seconds_left, 0)
        return
    unit, share, attempt = hunt.unit, _FIRST_SHARE, 0
    undecided = hunt.bound - unit
    while not hunt.over and hunt.best is not None:
        low, high = max(hunt.bound, undecided + unit), hunt.best.peak - unit
        if low > high:
            undecided, share = hunt.bound - unit, min(share * 2, _LARGEST_SHARE)
            continue
        target = low if undecided < hunt.bound else low + (high - low) // (2 * unit) * unit
        if not _fit(hunt, target, max(hunt.seconds_left * share, _SHORTEST_SECONDS), attempt):
            undecided = target
        attempt += 1


def _fit(hunt: Hunt, capacity: int, seconds: float, attempt: int) -> bool:
    """Did the search come to a verdict?"""
    verdict, offsets = hunt.search(capacity, seconds, attempt=attempt)
    if offsets is not None:
        hunt.offer(Plan(hunt.problem, offsets))
    return verdict != "unknown"
