"""Which regions of a graph should be computed in stripes, and in how many?

    estimate every interval ─▶ cover what is above each of many levels ─▶ write the best out ─▶ improve step by step

Estimates only choose; what counts is the graph written out, by the bytes alive in it and the nodes it has more. What
is left of it is then searched for parts that can be computed in blocks (`block_search.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from onnxmem.rewriting.axes import follow
from onnxmem.rewriting.block_search import with_blocks
from onnxmem.rewriting.candidates import PIECES, Profile, candidates
from onnxmem.rewriting.cover import Table, cover
from onnxmem.rewriting.emit import write
from onnxmem.rewriting.live import NODE_BYTES, live_bytes
from onnxmem.rewriting.rewriting import Part, Rewriting
from onnxmem.rewriting.static import StaticGraph
from onnxmem.rewriting.stripes import Region, Span, members_of, plan

_STEP = 0.94
"""Levels that are tried lie so close to each other."""
_MOST_FAILURES = 3
_STARTS = 4
_ROUNDS = 40


class State(NamedTuple):
    """Regions, and what they come to."""

    score: int
    peak: int
    extra: int
    spans: tuple[Span, ...]
    place: int
    """The node of the graph as it was at which most is alive."""


def search(
    graph: StaticGraph, *, extra_work: float = 0.10, budget: int | None = None, time_limit: float = 30.0
) -> Rewriting:
    """The rewriting that needs least, with at most that fraction of multiplications more.

    With a `budget` in bytes it is the one with fewest nodes that meets it, or else the one that needs least. The answer
    is the same each time: the search is bounded by its steps, for which `time_limit` seconds are enough on an ordinary
    processor.
    """
    searching = _Search(graph, extra_work, time_limit)
    best = searching.best(budget)
    return with_blocks(searching.rewriting(best), budget=budget, time_limit=time_limit)


class _Search:
    def __init__(self, graph: StaticGraph, extra_work: float, time_limit: float) -> None:
        self.graph = graph
        self.profile = Profile(graph)
        self.extra = int(extra_work * self.profile.total)
        self.live = live_bytes(graph)
        self.axes = {seed: follow(graph, seed) for seed in _seeds(graph)}
        self._regions: dict[Span, Region | None] = {}
        self._states: dict[tuple[Span, ...], State | None] = {}
        # Bounded by work, not by a clock: so many nodes written out in a second.
        self.left = int(time_limit * 40_000)

    def best(self, budget: int | None) -> State:
        state = self.state(())
        assert state is not None
        if not any(local is not None for axes in self.axes.values() for local in axes.nodes):
            return state
        found = (each for axes in self.axes.values() for each in candidates(self.profile, axes, self.extra))
        table = Table(found)
        starts = sorted({state, *self._covers(table)})[:_STARTS]
        return min(self._improved(start, table) for start in starts)

    def _covers(self, table: Table) -> Iterator[State]:
        level, failures = max(self.live, default=0) * _STEP, 0
        while failures < _MOST_FAILURES and level > 1:
            chosen = cover(table, self.live, int(level), self.extra)
            state = None if chosen is None else self.state(tuple(each.span for each in chosen))
            failures = failures + 1 if chosen is None else 0
            if state is not None:
                yield state
            level *= _STEP

    def _improved(self, state: State, table: Table) -> State:
        for _ in range(_ROUNDS):
            if self.left <= 0:
                break
            better = min(
                (found for spans in self._neighbours(state, table) if (found := self.state(spans)) is not None),
                default=state,
            )
            if better >= state:
                break
            state = better
        return state

    def _neighbours(self, state: State, table: Table) -> Iterator[tuple[Span, ...]]:
        """The same with one thing changed."""
        for number, span in enumerate(state.spans):
            others = state.spans[:number] + state.spans[number + 1 :]
            yield others
            for changed in _changed(span):
                yield _placed(others, changed)
        close = sorted(table.over(state.place), key=lambda c: (c.handed + NODE_BYTES * c.nodes, c.span))
        for each in close[:24]:
            yield _placed(state.spans, each.span)

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

    def _state(self, spans: tuple[Span, ...]) -> State | None:
        regions = [self.region(span) for span in spans]
        known = [region for region in regions if region is not None]
        extra = sum(region.extra for region in known)
        if len(known) < len(regions) or extra > self.extra or self.left <= 0:
            return None
        written = write(self.graph, known)
        self.left -= len(written.nodes)
        alive = live_bytes(written)
        peak = max(alive, default=0)
        score = peak + NODE_BYTES * (len(written.nodes) - len(self.graph.nodes))
        return State(score, peak, extra, spans, self._place(written, alive.index(peak) if alive else 0))

    def _place(self, written: StaticGraph, step: int) -> int:
        """The node of the graph as it was that is computed there, or next."""
        for node in written.nodes[step:]:
            if node.origin in self.graph.makers:
                return self.graph.makers[node.origin]
        return len(self.graph.nodes) - 1

    def rewriting(self, state: State) -> Rewriting:
        regions = [region for span in state.spans if (region := self.region(span)) is not None]
        start = self.state(())
        assert start is not None
        parts = []
        for number, region in enumerate(regions):
            without = self.state(state.spans[:number] + state.spans[number + 1 :]) or start
            names = tuple(self.graph.nodes[place].first_output for place in region.members.inside)
            parts.append(
                Part(
                    kind="stripes",
                    nodes=names,
                    axis=region.axes.seed,
                    pieces=region.span.pieces,
                    before=without.peak,
                    after=state.peak,
                    extra_work=region.extra / self.profile.total,
                )
            )
        return Rewriting(
            parts=tuple(parts),
            graph=write(self.graph, regions) if regions else self.graph,
            nodes_before=len(self.graph.nodes),
            before=start.peak,
            after=state.peak,
            extra_work=state.extra / self.profile.total,
        )


def _seeds(graph: StaticGraph) -> tuple[int, ...]:
    """The height of images; their width, too, where that is larger."""
    wider = any(
        len(tensor.shape) == 4 and tensor.shape[3] > 1.25 * tensor.shape[2] for tensor in graph.tensors.values()
    )
    return (2, 3) if wider else (2,)


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


def _placed(others: Iterable[Span], span: Span) -> tuple[Span, ...]:
    """A span and those others that have no node in common with it."""
    kept = (other for other in others if other.last < span.first or other.first > span.last)
    return tuple(sorted((*kept, span)))
