"""Regions in stripes, written out as a graph: slice, compute, put together.

What a region makes stays in stripes as long as only other regions read it, which take the rows they need; it is put
together where somebody reads all of it. Rows of a tensor that lies in blocks of channels are cut from a view of it in
which they are an axis: N·C/b·… × rows × …·b.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from onnxmem.rewriting.layout import slice_numbers
from onnxmem.rewriting.local import Rows
from onnxmem.rewriting.static import StaticGraph, StaticNode, StaticTensor
from onnxmem.rewriting.stripes import Read, Region, Stripe
from onnxmem.rewriting.windows import with_pads

# From these versions on the operators take numbers as inputs, not as attributes.
_SLICE_BY_INPUTS, _RESHAPE_BY_INPUTS = 10, 5
_TO_THE_END = 2**31 - 1


class Piece(NamedTuple):
    """Some rows of a tensor, as a tensor of their own. Neighbours may have rows in common."""

    name: str
    rows: Rows
    right: Rows
    """Those that may be used."""


class _Cut(NamedTuple):
    """A tensor of which there are only pieces so far."""

    axis: int
    pieces: list[Piece]


def write(graph: StaticGraph, regions: Sequence[Region]) -> StaticGraph:
    """The graph with these regions, which have no node in common, in stripes."""
    writer = Writer(graph)
    starting = {region.span.first: region for region in regions}
    place = 0
    while place < len(graph.nodes):
        region = starting.get(place)
        if region is None:
            writer.plain(place)
            place += 1
        else:
            writer.region(region)
            place = region.span.last + 1
    return writer.graph()


class Writer:
    """A graph under construction."""

    def __init__(self, graph: StaticGraph) -> None:
        self.source = graph
        self.nodes: list[StaticNode] = []
        self.tensors = dict(graph.tensors)
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._blocked = set(graph.blocked)
        self._cut: dict[str, _Cut] = {}
        self._views: dict[tuple[str, int], str] = {}
        self._outputs = frozenset(graph.outputs)
        self._mark = separator(graph)
        self._count = 0

    def graph(self) -> StaticGraph:
        """All that was written."""
        return replace(
            self.source,
            nodes=tuple(self.nodes),
            tensors=self.tensors,
            weights=self.source.weights | self._numbers.keys(),
            values={**self.source.values, **self._numbers},
            blocked=frozenset(self._blocked),
            added=(*self.source.added, *self._numbers),
        )

    def plain(self, place: int) -> None:
        """A node as it was, on whole tensors."""
        node = self.source.nodes[place]
        for name in node.reads:
            if name in self._cut:
                self._whole(name)
        self.nodes.append(node)

    def region(self, region: Region) -> None:
        """The nodes of a region, stripe after stripe."""
        for place in region.members.before:
            self.plain(place)
        pieces: dict[str, list[Piece]] = {name: [] for name in region.members.outputs}
        for number, stripe in enumerate(region.stripes):
            names = self._stripe(region, stripe, f"{self._mark}{region.span.first}.{number}")
            for name, found in pieces.items():
                found.append(Piece(names[name], stripe.made[name], stripe.right[name]))
        for name, found in pieces.items():
            self._cut[name] = _Cut(region.axes.of[name], found)
            if name in self._outputs:
                self._whole(name)
        for place in region.members.after:
            self.plain(place)

    def _stripe(self, region: Region, stripe: Stripe, suffix: str) -> dict[str, str]:
        """One stripe; how its tensors are called."""
        names: dict[str, str] = {}
        known: dict[tuple[str, Rows], str] = {}
        for place in region.members.inside:
            node = self.source.nodes[place]
            inputs, read = list(node.inputs), None
            local = region.axes.nodes[place]
            assert local is not None
            for position, name in enumerate(node.inputs):
                found = stripe.reads.get((place, position))
                if found is None:
                    if name in self._cut:
                        self._whole(name)
                    continue
                read = read or found
                window = local.windows[position]
                assert window is not None
                key = (name, found.rows)
                if key not in known:
                    known[key] = self._taken(stripe, names, name, window.axis, found.rows)
                inputs[position] = known[key]
            outputs = tuple(f"{name}{suffix}" if name else "" for name in node.outputs)
            for name, new in zip(node.outputs, outputs, strict=True):
                if name:
                    names[name] = new
                    self._part(name, new, local.axis, stripe.made[name].size)
            self._copy(node, inputs, outputs, local.axis, read if local.padded else None)
        return names

    def _taken(self, stripe: Stripe, names: Mapping[str, str], name: str, axis: int, rows: Rows) -> str:
        """The rows that a stripe reads of a tensor: its own, another region's, or those of a whole one."""
        if name in names:
            return self._rows(name, axis, [Piece(names[name], stripe.made[name], stripe.right[name])], rows)
        if name in self._cut and self._cut[name].axis != axis:
            self._whole(name)
        if name in self._cut:
            return self._rows(name, axis, self._cut[name].pieces, rows)
        whole = Rows(0, self.source.tensors[name].shape[axis])
        return self._rows(name, axis, [Piece(name, whole, whole)], rows)

    def _copy(
        self, node: StaticNode, inputs: list[str], outputs: tuple[str, ...], axis: int, read: Read | None
    ) -> None:
        attributes: Mapping[str, Any] = node.attributes
        made = self.tensors[outputs[0]]
        if read is not None:
            attributes = with_pads(node, self.source, axis, read.pads)
        elif node.op_type == "Reshape":
            if self.source.opset < _RESHAPE_BY_INPUTS:
                attributes = {"shape": list(made.shape)}
            else:
                inputs[1] = self._number(made.shape)
                attributes = {name: value for name, value in attributes.items() if name != "allowzero"}
        elif node.op_type == "Resize" and len(inputs) > 3 and inputs[3]:
            inputs[3] = self._number(made.shape)
        elif node.op_type == "Slice":
            attributes = self._recut(node, inputs, axis)
        copy = StaticNode(node.op_type, node.domain, tuple(inputs), outputs, attributes, node.origin)
        scratch = self.source.scratch(copy, self.tensors) if node.scratch else 0
        self.nodes.append(copy._replace(scratch=scratch) if scratch else copy)

    def _recut(self, node: StaticNode, inputs: list[str], axis: int) -> Mapping[str, Any]:
        """A Slice along the axis of stripes begins with the first row it is given; what it cuts elsewhere stays."""
        cuts = slice_numbers(node, self.source)
        if cuts is None or axis not in cuts:
            return node.attributes
        place = list(cuts).index(axis)
        by_attributes = len(inputs) == 1
        starts = list(node.attributes["starts"] if by_attributes else self.source.values[inputs[1]])
        ends = list(node.attributes["ends"] if by_attributes else self.source.values[inputs[2]])
        starts[place], ends[place] = 0, _TO_THE_END
        if by_attributes:
            return {**node.attributes, "starts": starts, "ends": ends}
        inputs[1], inputs[2] = self._number(tuple(starts)), self._number(tuple(ends))
        return node.attributes

    def _rows(self, name: str, axis: int, pieces: Sequence[Piece], rows: Rows) -> str:
        """These rows of a tensor, from pieces of it."""
        chosen = _covering(pieces, rows)
        if len(chosen) == 1 and chosen[0][0].rows == rows:
            return chosen[0][0].name
        views = []
        for piece, part in chosen:
            view, place = self._view(name, piece, axis)
            if part != piece.rows:
                view = self._slice(view, place, Rows(part.low - piece.rows.low, part.high - piece.rows.low))
            views.append(view)
        joined = views[0]
        if len(views) > 1:
            joined = self._add("Concat", views, self._shape(name, axis, rows.size), name, {"axis": place})
        if name not in self.source.blocked:
            return joined
        back = self._reshape(joined, self._part_shape(name, axis, rows.size), name)
        self._blocked.add(back)
        return back

    def _whole(self, name: str) -> None:
        """Put together what there is in pieces."""
        axis, pieces = self._cut.pop(name)
        rows = Rows(0, self.source.tensors[name].shape[axis])
        views, place = [], axis
        for piece, part in _covering(pieces, rows):
            view, place = self._view(name, piece, axis)
            if part != piece.rows:
                view = self._slice(view, place, Rows(part.low - piece.rows.low, part.high - piece.rows.low))
            views.append(view)
        if name not in self.source.blocked:
            self.nodes.append(StaticNode("Concat", "", tuple(views), (name,), {"axis": axis}))
        else:
            joined = self._add("Concat", views, self._shape(name, axis, rows.size), name, {"axis": place})
            self._reshape(joined, self.source.tensors[name].shape, name, name)

    def _view(self, name: str, piece: Piece, axis: int) -> tuple[str, int]:
        """A piece such that its rows are an axis in memory, too, and which axis that is."""
        if name not in self.source.blocked:
            return piece.name, axis
        key = (piece.name, axis)
        if key not in self._views:
            self._views[key] = self._reshape(piece.name, self._shape(name, axis, piece.rows.size), name)
        return self._views[key], 1

    def _shape(self, name: str, axis: int, rows: int) -> tuple[int, ...]:
        """The shape of so many rows, with the rows as an axis in memory."""
        shape = self.source.tensors[name].shape
        if name not in self.source.blocked:
            return self._part_shape(name, axis, rows)
        outer = shape[0] * (shape[1] // self.source.block) * prod(shape[2:axis])
        return (outer, rows, prod(shape[axis + 1 :]) * self.source.block)

    def _part_shape(self, name: str, axis: int, rows: int) -> tuple[int, ...]:
        shape = self.source.tensors[name].shape
        return (*shape[:axis], rows, *shape[axis + 1 :])

    def _part(self, name: str, new: str, axis: int, rows: int) -> None:
        whole = self.source.tensors[name]
        size = whole.bytes * rows // max(whole.shape[axis], 1)
        self.tensors[new] = StaticTensor(self._part_shape(name, axis, rows), whole.dtype, size)
        if name in self.source.blocked:
            self._blocked.add(new)

    def _slice(self, view: str, axis: int, rows: Rows) -> str:
        tensor = self.tensors[view]
        shape = (*tensor.shape[:axis], rows.size, *tensor.shape[axis + 1 :])
        if self.source.opset < _SLICE_BY_INPUTS:
            attributes = {"starts": [rows.low], "ends": [rows.high], "axes": [axis]}
            return self._add("Slice", [view], shape, view, attributes)
        numbers = [self._number((number,)) for number in (rows.low, rows.high, axis)]
        return self._add("Slice", [view, *numbers], shape, view)

    def _reshape(self, source: str, shape: tuple[int, ...], like: str, new: str = "") -> str:
        if self.source.opset < _RESHAPE_BY_INPUTS:
            return self._add("Reshape", [source], shape, like, {"shape": list(shape)}, new)
        return self._add("Reshape", [source, self._number(shape)], shape, like, new=new)

    def _add(
        self,
        op_type: str,
        inputs: Iterable[str],
        shape: tuple[int, ...],
        like: str,
        attributes: Mapping[str, Any] | None = None,
        new: str = "",
    ) -> str:
        """A node that was not there before; the name of what it makes, which is of the type of `like`."""
        self._count += 1
        new = new or f"{self._mark}t{self._count}"
        self.tensors[new] = self.tensors[like].reshaped(shape)
        self.nodes.append(StaticNode(op_type, "", tuple(inputs), (new,), attributes or {}))
        return new

    def _number(self, numbers: tuple[int, ...]) -> str:
        """The weight that holds these numbers."""
        name = f"{self._mark}n{'x'.join(map(str, numbers))}"
        if name not in self._numbers:
            self._numbers[name] = numbers
            self.tensors[name] = StaticTensor((len(numbers),), "int64", 8 * len(numbers))
        return name


def separator(graph: StaticGraph) -> str:
    """What no name in the graph has in it, so that names with it are new."""
    mark = "@"
    while any(mark in name for name in graph.tensors):
        mark += "@"
    return mark


def _covering(pieces: Sequence[Piece], rows: Rows) -> list[tuple[Piece, Rows]]:
    """As few pieces as hold these rows, and which rows to take of each."""
    chosen: list[tuple[Piece, Rows]] = []
    low = rows.low
    while low < rows.high:
        best = max((piece for piece in pieces if piece.right.low <= low), key=lambda piece: piece.right.high)
        high = min(best.right.high, rows.high)
        chosen.append((best, Rows(low, high)))
        low = high
    return chosen
