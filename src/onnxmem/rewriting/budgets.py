"""What does it cost to need less? Rewritings from what costs little to what needs least, and the one for a budget.

A budget in bytes is met by the search with the least extra work that does; more and more is allowed until one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from onnxmem.rewriting.rewriting import EXTRA_WORK, Rewriting
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import StaticGraph

LADDER = (0.02, 0.05, EXTRA_WORK, 0.25, 0.5, 1.0, 4.0)
"""The extra work that is tried for a budget, one after the other; the last stands for as much as it takes."""
_ENDS = (0.02, EXTRA_WORK, 0.5, LADDER[-1])
"""With so much each, the least there is; stops lie between."""
_BETWEEN = 4
_STRAIN = 0.75
_WORTH = 0.98
"""A stop that needs more than this of what the one before it does is none."""
OnSearch = Callable[[int, int], None]
"""Told how many searches are done, of how many."""


def steps_to(most: float) -> list[float]:
    """The extra work that is tried, up to this."""
    return [*(step for step in LADDER if step < most), most]


def within(graph: StaticGraph, budget: int, *, most: float = LADDER[-1], time_limit: float) -> Rewriting:
    """The rewriting that meets a budget with the least extra work; if none does, the one that needs least."""

    @cache
    def at(extra_work: float, budget: int = budget) -> Rewriting:
        return search(graph, extra_work=extra_work, budget=budget, time_limit=time_limit)

    steps, tried = steps_to(most), list[Rewriting]()
    for extra_work in steps:
        tried.append(at(extra_work))
        if tried[-1].after <= budget:
            return tried[-1]
        # Where twice as much work changes nothing, and all of it neither, what lies between does not.
        if len(tried) == 2 and _costs(tried[0]) == _costs(tried[1]) == _costs(at(steps[-1])):
            break
    least = min(tried, key=lambda each: each.after)
    # For a budget that is far away a search does not strain itself: it is asked for a little less, and again.
    while (asked := int(_STRAIN * least.after)) > budget and (found := at(steps[-1], asked)).after < least.after:
        least = found
    return least


def stops(graph: StaticGraph, *, time_limit: float, on_search: OnSearch | None = None) -> tuple[Rewriting, ...]:
    """Rewritings that need less and less, each the cheapest that needs so little; none that costs more for nothing.

    The last needs the least that was found, within `LADDER[-1]` of extra work. `time_limit` is for each search.
    """
    total, found = len(_ENDS) + _BETWEEN, list[Rewriting]()

    def look(extra_work: float, budget: int | None = None) -> None:
        found.append(search(graph, extra_work=extra_work, budget=budget, time_limit=time_limit))
        if on_search:
            on_search(len(found), total)

    for extra_work in _ENDS:
        look(extra_work)
    before, least = found[0].before, min(found, key=lambda each: each.after)
    # Even steps in how many times less: from 64 to 32 MiB is as much as from 8 to 4.
    for number in range(1, _BETWEEN + 1):
        budget = int(before * (least.after / before) ** (number / (_BETWEEN + 1))) if least.after < before else before
        look(next(work for work in _ENDS if work >= least.extra_work), budget)
    return cheapest(found)


def cheapest(found: Sequence[Rewriting]) -> tuple[Rewriting, ...]:
    """Those that nothing else beats in memory, work and nodes at once, each with less memory than the one before."""
    kept = [each for each in found if each.parts and not any(_beats(other, each) for other in found)]
    chosen: list[Rewriting] = []
    for each in sorted(kept, key=lambda each: (-each.after, each.extra_work, each.added_nodes)):
        before = chosen[-1].after if chosen else each.before
        if each.after <= _WORTH * before:
            chosen.append(each)
    return tuple(chosen)


def _costs(rewriting: Rewriting) -> tuple[int, float, int]:
    return rewriting.after, rewriting.extra_work, rewriting.added_nodes


def _beats(one: Rewriting, other: Rewriting) -> bool:
    mine, theirs = _costs(one), _costs(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))
