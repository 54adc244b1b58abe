"""A region of a graph, computed in stripes: which rows of which tensor does each stripe make and read?

Every stripe makes its share of the region's outputs, and of everything inside just what that takes: neighbours
compute the rim between them twice, so that none waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from onnxmem.rewriting.axes import Axes
from onnxmem.rewriting.local import Rows
from onnxmem.rewriting.static import StaticGraph, StaticNode

_CONVOLVING = frozenset({"Conv", "FusedConv"})
_MULTIPLYING = frozenset({"MatMul", "FusedMatMul", "Gemm", "FusedGemm"})


class Read(NamedTuple):
    """What a node of a stripe reads of one input."""

    rows: Rows
    pads: tuple[int, int] = (0, 0)
    """How many rows beyond the ends of the whole tensor it would read, before and after."""


class Stripe(NamedTuple):
    """One part of a region."""

    own: Mapping[str, Rows]
    """Its share of each output of the region."""
    made: Mapping[str, Rows]
    """What it computes of each tensor …"""
    right: Mapping[str, Rows]
    """… and what of that is the same as without stripes: the last rows may be made from too few."""
    reads: Mapping[tuple[int, int], Read]
    """By the position of a node and of its input."""


class Span(NamedTuple):
    """Nodes `first` to `last`, in so many pieces; those that cannot be cut run before it, or after it if `sunk`."""

    first: int
    last: int
    pieces: int
    sunk: bool = False
    seed: int = 2


@dataclass(frozen=True, eq=False)
class Members:
    """The nodes of a span: those in its stripes, and those that run before and after them."""

    before: tuple[int, ...]
    inside: tuple[int, ...]
    after: tuple[int, ...]
    outputs: tuple[str, ...]
    """What the stripes make for others."""
    length: int
    """The rows of the output that has fewest."""


@dataclass(frozen=True, eq=False)
class Region:
    """A span that is computed in stripes."""

    span: Span
    axes: Axes
    members: Members
    stripes: tuple[Stripe, ...]
    extra: int
    """Multiplications more than without stripes."""


def members_of(graph: StaticGraph, axes: Axes, first: int, last: int, *, sunk: bool) -> Members | None:
    """Which nodes of an interval can be in stripes? Those that cannot, and what hangs on them, move out of the way."""
    out: set[int] = set()
    if sunk:
        spoiled: set[str] = set()
        for place in range(first, last + 1):
            node = graph.nodes[place]
            if axes.nodes[place] is None or not spoiled.isdisjoint(node.reads):
                out.add(place)
                spoiled.update(node.outputs)
    else:
        needed: set[str] = set()
        for place in range(last, first - 1, -1):
            node = graph.nodes[place]
            if axes.nodes[place] is None or not needed.isdisjoint(node.outputs):
                out.add(place)
                needed.update(node.reads)
    inside = tuple(place for place in range(first, last + 1) if place not in out)
    moved = tuple(sorted(out))
    within = set(inside)
    outputs, length = [], 0
    for place in inside:
        for name in graph.nodes[place].outputs:
            if name and (name in graph.outputs or any(r not in within for r in graph.readers.get(name, ()))):
                outputs.append(name)
                rows = graph.tensors[name].shape[axes.of[name]]
                length = min(length or rows, rows)
    made = {name for place in inside for name in graph.nodes[place].outputs if name}
    unread = any(not graph.readers.get(name) and name not in graph.outputs for name in made)
    if not outputs or unread or any(name in made for place in inside for name in _whole(graph, axes, place)):
        return None
    return (
        Members((), inside, moved, tuple(outputs), length)
        if sunk
        else Members(moved, inside, (), tuple(outputs), length)
    )


def _whole(graph: StaticGraph, axes: Axes, place: int) -> list[str]:
    """What a node of a stripe reads all of: that must not be in stripes itself."""
    node, local = graph.nodes[place], axes.nodes[place]
    windows = () if local is None else local.windows
    return [name for name, window in zip(node.inputs, windows, strict=True) if window is None and name]


def plan(graph: StaticGraph, axes: Axes, span: Span, members: Members) -> Region | None:
    """The stripes of a span; None where they would be too thin to be exact, or read nothing but padding."""
    if members.length < span.pieces:
        return None
    stripes: list[Stripe] = []
    for number in range(span.pieces):
        own = {
            name: _share(graph.tensors[name].shape[axes.of[name]], number, span.pieces, members.length)
            for name in members.outputs
        }
        stripe = _stripe(graph, axes, members.inside, own)
        if stripe is None:
            return None
        stripes.append(stripe)
    extra = 0
    for place in members.inside:
        node = graph.nodes[place]
        work = multiplications(node, graph)
        if work:
            name = node.first_output
            rows = graph.tensors[name].shape[axes.of[name]]
            extra += work * sum(stripe.made[name].size for stripe in stripes) // rows - work
    return Region(span, axes, members, tuple(stripes), extra)


def _share(length: int, number: int, pieces: int, shortest: int) -> Rows:
    """The rows of the share `number`, cut so that outputs of twice as many rows are cut at twice the row."""

    def cut(at: int) -> int:
        return length if at == pieces else round(shortest * at // pieces * length / shortest)

    return Rows(cut(number), cut(number + 1))


def _stripe(graph: StaticGraph, axes: Axes, inside: Sequence[int], own: Mapping[str, Rows]) -> Stripe | None:
    wanted: dict[str, Rows] = dict(own)
    made: dict[str, Rows] = {}
    right: dict[str, Rows] = {}
    reads: dict[tuple[int, int], Read] = {}
    for place in reversed(inside):
        node, local = graph.nodes[place], axes.nodes[place]
        assert local is not None
        outputs = [name for name in node.outputs if name]
        asked = [wanted[name] for name in outputs if name in wanted]
        if not asked:
            return None
        length = graph.tensors[outputs[0]].shape[local.axis]
        rows = Rows(min(r.low for r in asked), max(r.high for r in asked))
        rows = local.enough(rows, length)
        made.update((name, local.made(rows, length)) for name in outputs)
        right.update((name, local.right(rows)) for name in outputs)
        groups = local.groups(rows, length)
        for position, (name, window) in enumerate(zip(node.inputs, local.windows, strict=True)):
            if window is None or not name:
                continue
            over, end = window.over(groups), graph.tensors[name].shape[window.axis]
            read = Read(Rows(max(0, over.low), min(end, over.high)), (max(0, -over.low), max(0, over.high - end)))
            if read.rows.size < 1:
                return None
            reads[place, position] = read
            before = wanted.get(name)
            wanted[name] = (
                read.rows if before is None else Rows(min(before.low, read.rows.low), max(before.high, read.rows.high))
            )
    return Stripe(own, made, right, reads)


def multiplications(node: StaticNode, graph: StaticGraph) -> int:
    """How many a node takes, if it is one of those that take most of the time."""
    made = graph.shape(node.first_output)
    first, second = (graph.shape(name) for name in (*node.inputs, "", "")[:2])
    if made is None or first is None or second is None:
        return 0
    if node.op_type in _CONVOLVING:
        return prod(made) * prod(second[1:])
    if node.op_type == "ConvTranspose":
        return prod(first) * prod(second[1:])
    if node.op_type in _MULTIPLYING and first:
        return prod(made) * first[0 if node.attribute("transA", 0) else -1]
    return 0
