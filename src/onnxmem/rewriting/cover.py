"""Which intervals, together, keep a graph below a number of bytes with fewest nodes added?

Wherever more is alive, there has to be a region. They are chosen from first to last: at each node it is known what
the cheapest choices so far come to, in nodes and in multiplications, with the tensors whole or still in stripes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from onnxmem.rewriting.candidates import Candidate

_MOST_CHOICES = 6


class _Choice(NamedTuple):
    nodes: int
    extra: int
    before: _Choice | None = None
    taken: Candidate | None = None


class Table:
    """Candidates by where they begin and end, few pieces first."""

    def __init__(self, found: Iterable[Candidate]) -> None:
        by_place: dict[int, dict[int, list[Candidate]]] = {}
        for each in found:
            by_place.setdefault(each.span.first, {}).setdefault(each.span.last, []).append(each)
        self.by_first: Mapping[int, Sequence[tuple[int, Sequence[Candidate]]]] = {
            first: sorted((last, sorted(group, key=lambda c: (c.nodes, c.extra))) for last, group in by_last.items())
            for first, by_last in by_place.items()
        }

    def over(self, place: int) -> list[Candidate]:
        """Those that hold this node."""
        return [
            each
            for first, groups in self.by_first.items()
            if first <= place
            for last, group in groups
            if last >= place
            for each in group
        ]


def cover(table: Table, live: Sequence[int], most: int, extra: float) -> tuple[Candidate, ...] | None:
    """The candidates that keep everything below `most` bytes; None if none do with `extra` multiplications."""
    count = len(live)
    bad = [0, *accumulate(int(alive > most) for alive in live)]
    whole: list[list[_Choice]] = [[] for _ in range(count + 1)]
    striped: list[list[_Choice]] = [[] for _ in range(count + 1)]
    whole[0] = [_Choice(0, 0)]
    for place in range(count):
        whole[place], striped[place] = _fewest(whole[place]), _fewest(striped[place])
        if not whole[place] and not striped[place]:
            continue
        if live[place] <= most:
            whole[place + 1] += whole[place]
        for last, group in table.by_first.get(place, ()):
            if bad[last + 1] == bad[place]:
                continue
            for choices, size in ((whole[place], "peak"), (striped[place], "handed")):
                fitting = next((c for c in group if getattr(c, size) <= most), None) if choices else None
                if fitting is None:
                    continue
                more = [
                    _Choice(choice.nodes + fitting.nodes, choice.extra + fitting.extra, choice, fitting)
                    for choice in choices
                    if choice.extra + fitting.extra <= extra
                ]
                striped[last + 1] += more
                if fitting.joined <= most:
                    whole[last + 1] += more
    best = min((*whole[count], *striped[count]), default=None, key=lambda c: (c.nodes, c.extra))
    taken = []
    while best is not None and best.taken is not None:
        taken.append(best.taken)
        best = best.before
    return None if best is None else tuple(reversed(taken))


def _fewest(choices: list[_Choice]) -> list[_Choice]:
    """Those than which none has both fewer nodes and fewer multiplications."""
    kept: list[_Choice] = []
    for choice in sorted(choices, key=lambda c: (c.nodes, c.extra)):
        if not kept or choice.extra < kept[-1].extra:
            kept.append(choice)
    return kept[: _MOST_CHOICES - 1] + kept[_MOST_CHOICES - 1 :][-1:]
