"""Which parts of a graph should be computed in blocks, along which axes, and in how many?

Where most is alive, all that can be grown around that node is looked at: by an estimate first; then the best of them
in the whole graph, together with all places that look the same, as layers do. What makes the graph smaller is kept,
and the next place is the one where most is alive then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import NamedTuple

from onnxmem.rewriting.blocks import Follower, Grown, kind
from onnxmem.rewriting.emit import write
from onnxmem.rewriting.live import NODE_BYTES, live, live_bytes, peak
from onnxmem.rewriting.order import ordered
from onnxmem.rewriting.rewriting import Part, Rewriting
from onnxmem.rewriting.static import StaticGraph
from onnxmem.rewriting.stripes import Region

_PIECES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_REACH = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32)
"""How far from the node at the peak a part may begin and end."""
_WINDOW = 40
_SHORTLIST, _NUMBERS = 8, 3
_PATIENCE = 4
"""So many steps that do not help at once may follow one another."""
_NEAR = 0.98
"""Of the peak: what is alive at other nodes, too, is no less a peak."""
_WORTH = 0.995
_EFFORT = 0.5
"""Seconds of work for the order of what was found."""


class Group(NamedTuple):
    """Parts that look the same, all in as many blocks."""

    parts: tuple[Grown, ...]
    pieces: int

    def meets(self, other: Grown) -> bool:
        """Whether it has nodes between the first and the last of another."""
        return any(part.first <= other.last and other.first <= part.last for part in self.parts)


@dataclass(frozen=True)
class State:
    """What was chosen, and what it comes to."""

    groups: tuple[Group, ...]
    graph: StaticGraph
    alive: Sequence[int]
    score: int

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return max(self.alive, default=0)

    def high(self) -> int:
        """At how many nodes of the model about as much is alive."""
        level = self.peak * _NEAR
        names = {node.origin for node, alive in zip(self.graph.nodes, self.alive, strict=True) if alive >= level}
        return len(names)


def search_blocks(graph: StaticGraph, *, budget: int | None = None, time_limit: float = 30.0) -> Rewriting:
    """The graph with those parts in blocks that make it need least.

    With a `budget` in bytes it stops at the first choice that meets it. The answer is the same each time: the search
    is bounded by its steps, of which an ordinary processor does enough in `time_limit` seconds.
    """
    return _Search(graph, time_limit).found(budget)


def with_blocks(stripes: Rewriting, *, budget: int | None = None, time_limit: float = 30.0) -> Rewriting:
    """The same rewriting, and of what it leaves as it is, those parts in blocks that make it need less."""
    blocks = search_blocks(stripes.graph, budget=budget, time_limit=time_limit)
    if not blocks.parts:
        return stripes
    graph = ordered(blocks.graph, _EFFORT)
    if peak(graph) < blocks.after:
        blocks = replace(blocks, graph=graph, after=peak(graph))
    return replace(stripes, parts=(*stripes.parts, *blocks.parts), graph=blocks.graph, after=blocks.after)


class _Search:
    def __init__(self, graph: StaticGraph, time_limit: float) -> None:
        self.graph, self.follower = graph, Follower(graph)
        self.region = cache(lambda part, pieces: part.region(graph, pieces))
        # Bounded by work, not by a clock: so many nodes are written in a second.
        self.left = int(time_limit * 30_000)
        self.start = State((), graph, live_bytes(graph), max(live_bytes(graph), default=0))

    def found(self, budget: int | None) -> Rewriting:
        best, since = self.start, 0
        state: State | None = best
        while state is not None and since < _PATIENCE and self.left > 0:
            if budget is not None and best.score <= budget:
                break
            state = self._better(state)
            since += 1
            if state is not None and state.score < best.score * _WORTH:
                best, since = state, 0
        return self._rewriting(best)

    def _better(self, state: State) -> State | None:
        """The best of what can be done where most is alive; None if nothing helps."""
        place = self._place(state)
        changes = [*self._other_numbers(state, place), *self._others(state, place)]
        reached = [found for groups in changes if (found := self._state(groups)) is not None]
        best = min(reached, key=lambda each: (each.score, each.high()), default=None)
        if best is None:
            return None
        if best.score < state.score * _WORTH:
            return best
        # It may take several steps to bring down several peaks of about one height.
        level = [each for each in reached if each.peak <= state.peak and each.high() < state.high()]
        return min(level, key=lambda each: (each.high(), each.score), default=None)

    def _place(self, state: State) -> int:
        """The node of the model at the peak, or the next one after it."""
        step = state.alive.index(state.peak)
        for node in state.graph.nodes[step:]:
            if node.origin in self.graph.makers:
                return self.graph.makers[node.origin]
        return len(self.graph.nodes) - 1

    # What can be done.

    def _other_numbers(self, state: State, place: int) -> Iterator[tuple[Group, ...]]:
        """Other numbers of blocks, where the peak is in one already."""
        for number, group in enumerate(state.groups):
            if any(part.first <= place <= part.last for part in group.parts):
                for pieces in _PIECES:
                    if pieces != group.pieces:
                        changed = Group(group.parts, pieces)
                        yield (*state.groups[:number], changed, *state.groups[number + 1 :])

    def _others(self, state: State, place: int) -> Iterator[tuple[Group, ...]]:
        """New parts around a node, and wherever the model looks the same; they take the place of those in their way."""
        for grown, numbers in self._shortlist(state, place):
            everywhere = self._everywhere(grown)
            kept = [group for group in state.groups if not any(group.meets(part) for part in everywhere)]
            for pieces in numbers:
                yield (*kept, Group(everywhere, pieces))

    def _shortlist(self, state: State, place: int) -> list[tuple[Grown, tuple[int, ...]]]:
        """What promises most around a node, each with the numbers of blocks that promise most."""
        rated, heights = [], self._heights(state)
        for grown in self._grown(place):
            found = sorted(self._estimates(grown, place, heights, state.groups))[:_NUMBERS]
            if found:
                rated.append((found[0][0], grown.members.inside, grown, tuple(pieces for _, pieces in found)))
        rated.sort(key=lambda each: each[:2])
        return [(grown, numbers) for _, _, grown, numbers in rated[:_SHORTLIST]]

    def _grown(self, place: int) -> Iterator[Grown]:
        """All that can be grown around a node; around its neighbours, if nothing can be."""
        seen = set[Grown]()
        for near in (place, place - 1, place + 1):
            if seen or not 0 <= near < len(self.graph.nodes):
                continue
            shape = self.graph.shape(self.graph.nodes[near].first_output) or ()
            for axis, length in enumerate(shape):
                for back, forth in product(_REACH, _REACH) if length > 1 else ():
                    first, last = max(0, near - back), min(len(self.graph.nodes) - 1, near + forth)
                    grown = self.follower.grow(near, axis, first, last)
                    if grown is not None and grown not in seen:
                        seen.add(grown)
                        yield grown

    def _heights(self, state: State) -> list[int]:
        """The most that is alive while each node of the model runs, in all of its blocks."""
        highest = dict.fromkeys(range(len(self.graph.nodes)), 0)
        for node, alive in zip(state.graph.nodes, state.alive, strict=True):
            place = self.graph.makers.get(node.origin, -1)
            highest[place] = max(alive, highest.get(place, 0))
        return [highest[place] for place in range(len(self.graph.nodes))]

    def _estimates(
        self, grown: Grown, place: int, heights: Sequence[int], groups: Iterable[Group]
    ) -> Iterator[tuple[int, int]]:
        """What each number of blocks would come to, and the number."""
        graph, inside = self.graph, set(grown.members.inside)
        # What looks like a node in it, will be in blocks, too; and what is in the way will be as it was.
        kinds = {kind(graph, each) for each in inside}
        again = {each for group in groups if group.meets(grown) for part in group.parts for each in part.members.inside}
        left = max(
            (
                (self.start.alive if each in again else heights)[each]
                for each in range(max(0, place - _WINDOW), min(len(graph.nodes), place + _WINDOW))
                if kind(graph, each) not in kinds
            ),
            default=0,
        )
        times = sum(kind(graph, each) == kind(graph, grown.place) for each in range(len(graph.nodes)))
        through, made, block = self._sizes(grown)
        read = {name for each in inside for name in graph.nodes[each].inputs if name in grown.axes.of}
        slices = len(read - {name for each in inside for name in graph.nodes[each].outputs})
        for pieces in filter(grown.exact, _PIECES):
            highest = through + max(made * (pieces - 1) // pieces + block // pieces, 2 * made)
            added = pieces * (len(inside) + slices) - len(inside) + len(grown.members.outputs)
            yield max(highest, left) + NODE_BYTES * added * times, pieces

    def _sizes(self, grown: Grown) -> tuple[int, int, int]:
        """The bytes that are there all the while, those it makes for others, and the most alive inside at once."""
        graph, inside = self.graph, grown.members.inside
        names = {name for place in inside for name in graph.nodes[place].outputs}
        sizes = {name: graph.tensors[name].bytes for name in names}
        through = sum(
            graph.tensors[name].bytes
            for name, maker in graph.makers.items()
            if name in graph.tensors and name not in names and name not in graph.outputs
            if maker < grown.first and graph.readers.get(name, (0,))[-1] >= grown.first
        )
        made = sum(sizes[name] for name in grown.members.outputs if name not in graph.outputs)
        nodes = [graph.nodes[place] for place in inside]
        alive = live(nodes, graph.tensors, frozenset(graph.outputs))
        cut = {name for node in nodes for name in node.inputs if name in grown.axes.of and name not in names}
        return through, made, max(alive) + max(graph.tensors[name].bytes for name in cut) if cut else max(alive)

    def _everywhere(self, grown: Grown) -> tuple[Grown, ...]:
        """It, and all like it that do not overlap."""
        found = [grown]
        wanted = kind(self.graph, grown.place)
        for place in range(len(self.graph.nodes)):
            if kind(self.graph, place) != wanted:
                continue
            free = all(place < part.first or place > part.last for part in found)
            twin = self.follower.like(grown, place) if free else None
            if twin and all(twin.last < part.first or part.last < twin.first for part in found):
                found.append(twin)
        return tuple(sorted(found, key=lambda part: part.first))

    # What it comes to.

    def _state(self, groups: Iterable[Group]) -> State | None:
        groups = tuple(groups)
        regions = self._regions(groups)
        if regions is None or self.left <= 0:
            return None
        written = write(self.graph, regions)
        self.left -= len(written.nodes)
        alive = live_bytes(written)
        score = max(alive, default=0) + NODE_BYTES * (len(written.nodes) - len(self.graph.nodes))
        return State(groups, written, alive, score)

    def _regions(self, groups: Iterable[Group]) -> list[Region] | None:
        found = [self.region(part, group.pieces) for group in groups for part in group.parts]
        known = [region for region in found if region is not None]
        return known if len(known) == len(found) else None

    def _rewriting(self, state: State) -> Rewriting:
        parts = []
        for number, group in enumerate(state.groups):
            without = self._regions((*state.groups[:number], *state.groups[number + 1 :])) or []
            before = max(live_bytes(write(self.graph, without)), default=0)
            for part in group.parts:
                names = tuple(self.graph.nodes[place].first_output for place in part.members.inside)
                axis = part.axes.of[names[0]]
                parts.append(
                    Part(
                        kind="blocks",
                        nodes=names,
                        axis=axis,
                        pieces=group.pieces,
                        before=before,
                        after=state.peak,
                        extra_work=0.0,
                    )
                )
        return Rewriting(
            parts=tuple(parts),
            graph=state.graph,
            nodes_before=len(self.graph.nodes),
            before=self.start.peak,
            after=state.peak,
            extra_work=0.0,
        )
