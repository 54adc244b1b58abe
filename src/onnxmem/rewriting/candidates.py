"""What would each interval of nodes come to in so many stripes? Estimates of all of them, to choose from.

Writing out thousands of regions takes too long. Here one stripe from the middle stands for all: the interval grows
backwards from its last node, and with each node come the rows it makes and reads, what is alive meanwhile, the
multiplications that neighbours do twice, and the nodes to be added. Whatever is chosen is written out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnxmem.rewriting.axes import Axes
from onnxmem.rewriting.live import live_bytes, overwrites
from onnxmem.rewriting.local import Local, Rows
from onnxmem.rewriting.static import StaticGraph
from onnxmem.rewriting.stripes import Span, multiplications

PIECES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_TRIED = (2, 3, 4, 6, 8, 16, 32)
"""Of these there are estimates."""
_LONGEST, _STEPS = 96, 300_000
"""Intervals are no longer than this, and shorter in graphs so large that there would be more steps than these."""
_NEVER_BELOW = 0.1
"""Intervals in which nothing more than this fraction of the peak is alive are left alone."""
# Nodes that would have to run before the stripes; more are no region any more.
_MOST_MOVED = 48


class Candidate(NamedTuple):
    """A span, and what it would come to."""

    span: Span
    peak: int
    """Bytes alive in its stripes, if what it reads is there whole …"""
    handed: int
    """… and if a region right before it hands over stripes."""
    joined: int
    """Bytes alive where its outputs are put together."""
    extra: int
    """Multiplications."""
    nodes: int
    """Nodes added."""


class Profile:
    """What is known of a graph before anything is rewritten."""

    def __init__(self, graph: StaticGraph) -> None:
        count = len(graph.nodes)
        self.graph = graph
        self.work = [multiplications(node, graph) for node in graph.nodes]
        self.total = max(1, sum(self.work))
        counted = {
            name: (place, graph.readers.get(name, (place,))[-1])
            for name, place in graph.makers.items()
            if name in graph.tensors and name not in graph.outputs
        }
        self.last = {name: last for name, (_, last) in counted.items()}
        changes = [0] * (count + 2)
        for name, (made, last) in counted.items():
            changes[made + 1] += graph.tensors[name].bytes
            changes[last + 1] -= graph.tensors[name].bytes
        self.crossing = np.cumsum(changes).tolist()
        """The bytes that are made before each node and read by it or after it."""
        self.live = live_bytes(graph)

    def rises(self, place: int) -> bool:
        """Does less cross right before this place, and right after it? Then no interval should end or begin here."""
        around = self.crossing[max(0, place - 1)], self.crossing[min(place + 1, len(self.crossing) - 1)]
        return bool(self.crossing[place] > max(around))


@dataclass
class _Tensor:
    """A tensor that an interval reads or makes: what one stripe has of it, and from when to when."""

    rows: Rows
    begin: int
    end: int
    bytes: int = 0
    wants: set[Rows] = field(default_factory=set)


class _Walk:
    """An interval that ends at one node and grows backwards."""

    def __init__(self, profile: Profile, axes: Axes, last: int, pieces: int) -> None:
        self.profile, self.graph, self.axes = profile, profile.graph, axes
        self.last, self.pieces = last, pieces
        self.extra = 0.0
        self.outputs = 0  # bytes of what others read, and that counts
        self.moved = 0  # bytes made by nodes that run before the stripes
        self.dying = 0  # bytes that the interval is the last to read, and that could come in stripes
        self.nodes = 0  # in one stripe, without slices
        self.joins = 0  # nodes that put outputs together
        self.needed: set[str] = set()
        self.out: set[int] = set()
        self.tensors: dict[str, _Tensor] = {}
        self.outside: dict[str, int] = {}  # what is read and not made here: the nodes that cut it
        self.crops = 0
        self.alive: npt.NDArray[np.int64] = np.zeros(last + 1, np.int64)

    def grow(self, place: int) -> bool | None:
        """Take in one more node before the others. True if the interval can begin with it, None if it is at its end."""
        node, local = self.graph.nodes[place], self.axes.nodes[place]
        if local is None or not self.needed.isdisjoint(node.outputs):
            self.out.add(place)
            self.needed.update(node.reads)
            for name in node.outputs:
                if name in self.outside or self.profile.last.get(name, -1) > self.last:
                    self.moved += self.graph.tensors[name].bytes if name in self.graph.tensors else 0
            return False if len(self.out) <= _MOST_MOVED else None
        made = self._make(place, local)
        if made is None:
            return None
        self.nodes += 1
        groups = local.groups(made, self.graph.tensors[node.first_output].shape[local.axis])
        for name, window in zip(node.inputs, local.windows, strict=True):
            if window is None or not name or name in self.graph.weights:
                continue
            over, end = window.over(groups), self.graph.tensors[name].shape[window.axis]
            rows = Rows(max(0, over.low), min(end, over.high))
            if rows.size < 1:
                return None
            self._read(place, name, rows)
        return True

    def _make(self, place: int, local: Local) -> Rows | None:
        """The outputs of a node; the rows it makes."""
        node, names = self.graph.nodes[place], [name for name in self.graph.nodes[place].outputs if name]
        length = self.graph.tensors[names[0]].shape[local.axis]
        if length < self.pieces:
            return None
        middle = self.pieces // 2
        low = length * middle // self.pieces
        share = Rows(low, min(length, low - -length // self.pieces))
        asked = []
        for name in names:
            used_by_others = name in self.graph.outputs or self.profile.last.get(name, -1) > self.last
            if used_by_others:
                asked.append(share)
                self.joins += self.pieces + 2 if name in self.graph.blocked else 1
                if name in self.profile.last:
                    self.outputs += self.graph.tensors[name].bytes
            if name in self.tensors:
                asked.append(self.tensors[name].rows)
        if not asked:
            return None
        rows = Rows(min(r.low for r in asked), max(r.high for r in asked))
        rows = local.made(local.enough(rows, length), length)
        rim = (rows.size - length / self.pieces) * (2 if self.pieces == 2 else self.pieces - 1)
        self.extra += self.profile.work[place] * max(0.0, rim) / length
        for name in names:
            tensor = self.tensors.get(name)
            if tensor is None:
                tensor = self.tensors[name] = _Tensor(rows, place, self.last)
            if name in self.outside:
                del self.outside[name]
                if self.profile.last.get(name, self.last + 1) <= self.last:
                    self.dying -= self.graph.tensors[name].bytes
                self.crops += len(tensor.wants - {rows})
            end = self.last if self.profile.last.get(name, -1) > self.last or name in self.graph.outputs else tensor.end
            begin = place + 1 if overwrites(node) and end > place else place
            self._lay(name, tensor, rows, begin, end)
        if node.scratch:
            self.alive[place] += node.scratch * rows.size // length
        return rows

    def _read(self, place: int, name: str, rows: Rows) -> None:
        tensor = self.tensors.get(name)
        if tensor is None:
            tensor = self.tensors[name] = _Tensor(rows, place, place)
            self.outside[name] = 1
            if self.profile.last.get(name, self.last + 1) <= self.last and name in self.axes.of:
                self.dying += self.graph.tensors[name].bytes
        tensor.wants.add(rows)
        wider = Rows(min(rows.low, tensor.rows.low), max(rows.high, tensor.rows.high))
        self._lay(name, tensor, wider, min(place, tensor.begin), tensor.end)

    def _lay(self, name: str, tensor: _Tensor, rows: Rows, begin: int, end: int) -> None:
        """Say from when to when a stripe of a tensor is alive."""
        whole = self.graph.tensors[name]
        size = whole.bytes * rows.size // whole.shape[self.axes.of[name]]
        if tensor.bytes:
            self.alive[tensor.begin : tensor.end + 1] -= tensor.bytes
        self.alive[begin : end + 1] += size
        tensor.rows, tensor.begin, tensor.end, tensor.bytes = rows, begin, end, size

    def candidate(self, first: int) -> Candidate:
        """What it comes to if it begins here."""
        profile, pieces = self.profile, self.pieces
        before = profile.crossing[first] + self.moved
        inside, later = int(self.alive[first:].max()), self.outputs * (pieces - 1) // pieces
        peak = before + later + inside
        shrunk = before - self.dying * (pieces - 1) // pieces
        handed = max(before + inside, shrunk + later + inside)
        joined = profile.crossing[self.last + 1] + self.outputs
        cuts = sum(3 if name in self.graph.blocked else 1 for name in self.outside)
        crops = self.crops * 2
        nodes = pieces * (self.nodes + cuts + crops) - self.nodes + self.joins
        return Candidate(
            Span(first, self.last, pieces, False, self.axes.seed), peak, handed, joined, int(self.extra), nodes
        )


def candidates(profile: Profile, axes: Axes, extra: float, most: int) -> Iterator[Candidate]:
    """Intervals that can be computed in stripes with at most this many multiplications more, and come to less."""
    high, longest = 0, min(_LONGEST, _STEPS // (len(_TRIED) * max(len(axes.nodes), 1)) + 1)
    for last, local in enumerate(axes.nodes):
        if profile.live[last] > _NEVER_BELOW * most:
            high = last
        if local is None or profile.rises(last + 1):
            continue
        for pieces in _TRIED:
            walk, helps = _Walk(profile, axes, last, pieces), False
            for first in range(last, max(-1, last - longest), -1):
                begins = walk.grow(first)
                if begins is None or walk.extra > extra:
                    break
                if begins and first <= high and not profile.rises(first):
                    found = walk.candidate(first)
                    if found.handed < most:
                        helps = True
                        yield found
            if not helps:
                break
