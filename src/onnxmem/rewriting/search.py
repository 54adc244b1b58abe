"""Which regions of a graph should be computed in stripes, and in how many?

    estimate every interval ─▶ cover what is above each of many levels ─▶ write the best out ─▶ improve step by step

Estimates only choose; what counts is the graph written out, by the bytes alive in it and the nodes it has more. What
is left of it is then searched for parts that can be computed in blocks (`block_search.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from onnxmem.rewriting.axes import follow
from onnxmem.rewriting.block_search import with_blocks
from onnxmem.rewriting.candidates import PIECES, Profile, candidates
from onnxmem.rewriting.cover import Table, cover
from onnxmem.rewriting.emit import write
from onnxmem.rewriting.live import NODE_BYTES, live_bytes, peak
from onnxmem.rewriting.order import ordered
from onnxmem.rewriting.rewriting import EXTRA_WORK, Part, Rewriting
from onnxmem.rewriting.static import StaticGraph
from onnxmem.rewriting.stripes import Region, Span, members_of, plan

_STEP = 0.94
"""Levels that are tried lie so close to each other."""
_LEVELS, _MOST_FAILURES = 60, 2
_BELOW_BUDGET = (1.0, 0.95, 0.9, 0.8)
_COVERS, _STARTS = 8, 3
"""How many of the covers are put in order, and how many of those improved."""
_ROUNDS = 60
_NEAREST, _REACH = 24, 6
_CLOSE, _SETTLED = 1.1, 4
"""Order can make good for so much; it is tried for so many changes at a time."""
_EFFORT, _LAST_EFFORT = 0.05, 0.5
"""Seconds of work for one order, and for the one that is kept."""


class State(NamedTuple):
    """Regions, and what they come to."""

    score: int
    peak: int
    extra: int
    spans: tuple[Span, ...]
    place: int
    """The node of the graph as it was at which most is alive."""


def search(
    graph: StaticGraph, *, extra_work: float = EXTRA_WORK, budget: int | None = None, time_limit: float = 30.0
) -> Rewriting:
    """The rewriting that needs least, with at most that fraction of multiplications more.

    With a `budget` in bytes it is the one with fewest nodes that meets it, or else the one that needs least. The answer
    is the same each time: the search is bounded by its steps, for which `time_limit` seconds are enough on an ordinary
    processor.
    """
    searching = _Search(ordered(graph, _LAST_EFFORT), extra_work, budget, time_limit)
    found = searching.rewriting(graph, searching.best())
    return with_blocks(found, budget=budget, time_limit=time_limit)


class _Search:
    def __init__(self, graph: StaticGraph, extra_work: float, budget: int | None, time_limit: float) -> None:
        self.graph = graph
        self.budget = budget
        self.profile = Profile(graph)
        self.extra = int(min(extra_work * self.profile.total, sys.maxsize))
        self.live = live_bytes(graph)
        self.axes = {seed: follow(graph, seed) for seed in _seeds(graph)}
        self._regions: dict[Span, Region | None] = {}
        self._states: dict[tuple[Span, ...], State | None] = {}
        self._settled: dict[tuple[Span, ...], State | None] = {}
        # Bounded by work, not by a clock: so many nodes written out in a second.
        self.left = int(time_limit * 40_000)

    def best(self) -> State:
        """The regions that come to least."""
        start = self.settled(())
        assert start is not None
        if not any(local is not None for axes in self.axes.values() for local in axes.nodes):
            return start
        found = (candidates(self.profile, axes, self.extra, max(self.live)) for axes in self.axes.values())
        table = Table(chain.from_iterable(found))
        covers = sorted(set(self._covers(table)))[:_COVERS]
        settled = {state for cover in covers if (state := self.settled(cover.spans)) is not None}
        return min(self._improved(state, table) for state in sorted({start, *settled})[:_STARTS])

    def _covers(self, table: Table) -> Iterator[State]:
        """What keeps below each of many levels, as far as one can tell before it is written out."""
        most, failures = max(self.live, default=0), 0
        levels = [most * _STEP**number for number in range(1, _LEVELS)]
        if self.budget is not None:
            levels = [level for level in levels if level >= self.budget] + [self.budget * s for s in _BELOW_BUDGET]
        for level in levels:
            chosen = cover(table, self.live, int(level), self.extra)
            state = None if chosen is None else self.state(tuple(each.span for each in chosen))
            failures = failures + 1 if chosen is None else 0
            if failures > _MOST_FAILURES:
                break
            if state is not None:
                yield state

    def _improved(self, state: State, table: Table) -> State:
        """The best that changes of one thing at a time lead to."""
        for _ in range(_ROUNDS):
            for changes in self._neighbours(state, table):
                found = sorted({each for spans in changes if (each := self.state(spans)) is not None})
                close = [each for each in found if each.score < _CLOSE * state.score][:_SETTLED]
                better = min((each for c in close if (each := self.settled(c.spans)) is not None), default=state)
                if better < state:
                    state = better
                    break
            else:
                return state
        return state

    def _neighbours(self, state: State, table: Table) -> Iterator[list[tuple[Span, ...]]]:
        """The same with one thing changed, what helps most first."""
        close = sorted(table.over(state.place), key=lambda c: (c.handed + NODE_BYTES * c.nodes, c.span))
        yield [_placed(state.spans, each.span) for each in close[:_NEAREST]]
        for number, span in enumerate(state.spans):
            others = state.spans[:number] + state.spans[number + 1 :]
            yield [others, *(_placed(others, changed) for changed in _changed(span))]
        for number, (span, following) in enumerate(pairwise(state.spans)):
            others = state.spans[:number] + state.spans[number + 2 :]
            yield [
                _placed(others, span._replace(last=following.last, pieces=p)) for p in {span.pieces, following.pieces}
            ]
            # The border between two regions moves, with what is between them.
            yield [
                tuple(sorted((*others, span._replace(last=border), following._replace(first=border + 1))))
                for border in range(max(span.first, span.last - _REACH), min(following.last, following.first + _REACH))
                if border + 1 != following.first or border != span.last
            ]
        for number, span in enumerate(state.spans):
            others = state.spans[:number] + state.spans[number + 1 :]
            near = (each for each in table.over((span.first + span.last) // 2) if _near(each.span, span))
            best = sorted(near, key=lambda c: (c.handed + NODE_BYTES * c.nodes, c.span))
            yield [_placed(others, each.span) for each in best[:_NEAREST]]

    def region(self, span: Span) -> Region | None:
        if span not in self._regions:
            axes, found = self.axes[span.seed], None
            if 0 <= span.first <= span.last < len(self.graph.nodes) and span.pieces > 1:
                members = members_of(self.graph, axes, span.first, span.last, sunk=span.sunk)
                if members is not None and members.inside:
                    found = plan(self.graph, axes, span, members)
            self._regions[span] = found
        return self._regions[span]

    def state(self, spans: tuple[Span, ...]) -> State | None:
        """What these regions come to; None if they cannot be, or take too many multiplications."""
        if spans not in self._states:
            self._states[spans] = self._state(spans)
        return self._states[spans]

    def settled(self, spans: tuple[Span, ...]) -> State | None:
        """The same with the nodes in the best order."""
        if spans not in self._settled:
            state = self.state(spans)
            if state is not None:
                written = ordered(self._write(spans), _EFFORT)
                state = self._counted(written, state.extra, spans)
            self._settled[spans] = state
        return self._settled[spans]

    def _state(self, spans: tuple[Span, ...]) -> State | None:
        regions = [self.region(span) for span in spans]
        known = [region for region in regions if region is not None]
        extra = sum(region.extra for region in known)
        if len(known) < len(regions) or extra > self.extra or self.left <= 0:
            return None
        return self._counted(self._write(spans), extra, spans)

    def _write(self, spans: tuple[Span, ...]) -> StaticGraph:
        written = write(self.graph, [region for span in spans if (region := self.region(span)) is not None])
        self.left -= len(written.nodes)
        return written

    def _counted(self, written: StaticGraph, extra: int, spans: tuple[Span, ...]) -> State:
        alive = live_bytes(written)
        most = max(alive, default=0)
        nodes = NODE_BYTES * (len(written.nodes) - len(self.graph.nodes))
        score = most + nodes
        if self.budget is not None and most <= self.budget:  # then only nodes count, and it is better than any other
            score = nodes * self.budget // (nodes + self.budget + 1)
        return State(score, most, extra, spans, self._place(written, alive.index(most) if alive else 0))

    def _place(self, written: StaticGraph, step: int) -> int:
        """The node of the graph as it was that is computed there, or next."""
        for node in written.nodes[step:]:
            if node.origin in self.graph.makers:
                return self.graph.makers[node.origin]
        return len(self.graph.nodes) - 1

    def rewriting(self, source: StaticGraph, state: State) -> Rewriting:
        before = peak(source)
        # Order alone is no rewriting, unless it is all that a budget takes.
        if not state.spans and (self.budget is None or before <= self.budget or state.peak > self.budget):
            return Rewriting(
                parts=(), graph=source, nodes_before=len(source.nodes), before=before, after=before, extra_work=0.0
            )
        written = ordered(self._write(state.spans), _LAST_EFFORT)
        return Rewriting(
            parts=tuple(self._part(state, number) for number in range(len(state.spans))),
            graph=written,
            nodes_before=len(source.nodes),
            before=before,
            after=peak(written),
            extra_work=state.extra / self.profile.total,
        )

    def _part(self, state: State, number: int) -> Part:
        region = self.region(state.spans[number])
        without = self.settled(state.spans[:number] + state.spans[number + 1 :])
        assert region is not None
        return Part(
            kind="stripes",
            nodes=tuple(self.graph.nodes[place].first_output for place in region.members.inside),
            axis=region.axes.seed,
            pieces=region.span.pieces,
            before=without.peak if without is not None else state.peak,
            after=state.peak,
            extra_work=region.extra / self.profile.total,
        )


def _seeds(graph: StaticGraph) -> tuple[int, ...]:
    """The height of images; their width, too, if many of them are wider than high."""
    images = [tensor for tensor in graph.tensors.values() if len(tensor.shape) == 4]
    wide = sum(tensor.bytes for tensor in images if 4 * tensor.shape[2] < 3 * tensor.shape[3])
    return (2, 3) if 4 * wide > sum(tensor.bytes for tensor in images) else (2,)


def _changed(span: Span) -> Iterator[Span]:
    """A span with other ends, or another number of pieces."""
    number = PIECES.index(span.pieces)
    for pieces in PIECES[max(0, number - 1) : number + 2]:
        if pieces != span.pieces:
            yield span._replace(pieces=pieces)
    for move in (1, -1, 2, -2, 4, -4):
        yield span._replace(first=span.first + move)
        yield span._replace(last=span.last + move)
    yield span._replace(sunk=not span.sunk)


def _near(span: Span, other: Span) -> bool:
    return abs(span.first - other.first) <= _REACH and abs(span.last - other.last) <= _REACH


def _placed(others: Iterable[Span], span: Span) -> tuple[Span, ...]:
    """A span and those others that have no node in common with it."""
    kept = (other for other in others if other.last < span.first or other.first > span.last)
    return tuple(sorted((*kept, span)))
