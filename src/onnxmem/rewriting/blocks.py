"""A part of a graph that can be computed in blocks along an axis: which nodes belong to it?

From one node on, an axis of its output is followed backwards and forwards as far as operators keep what lies along it
apart: the queries of an attention, through the products, the mask and the softmax; the tokens of a feed-forward layer;
heads, frames, rows. Blocks have no rim, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

from onnxmem.model.dims import Dim, symbol
from onnxmem.rewriting.axes import Axes, misjudged
from onnxmem.rewriting.axis_rules import follow
from onnxmem.rewriting.batch import ROWS
from onnxmem.rewriting.exactness import Condition, Sizes, condition
from onnxmem.rewriting.flow import Flow, Operator
from onnxmem.rewriting.local import Local, Window
from onnxmem.rewriting.static import StaticGraph
from onnxmem.rewriting.stripes import Members, Region, Span, plan

BLOCKS = -1
"""In place of the seed of a span: its axis is no dimension of images."""
_ROWS = 64
"""Products of fewer rows take longer; up to eight blocks may be smaller."""
_LEAST_ROWS = 16
"""Products of fewer rows with weights take about as long as with so many: what counts is to read the weights."""
_STEPPING = frozenset({"LSTM", "GRU", "RNN"})
_MULTIPLYING = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm"})
_THREADS = (1, 2, 4, 8, 16, 64)
"""A rewritten model is run with any number of threads."""


@dataclass(frozen=True, eq=False)
class Grown:
    """Nodes that are computed in blocks along an axis, of which `unit` positions can be told apart."""

    axes: Axes
    members: Members
    flows: Mapping[int, Flow]
    unit: int
    place: int
    """The node it was grown from."""
    conditions: tuple[Condition, ...]
    least: int
    """So many positions a block must have, or it takes much longer."""
    _exact: dict[int, bool] = field(default_factory=dict, repr=False)

    def exact(self, pieces: int) -> bool:
        """Whether so many blocks are large enough to give the same bits, and to be worth their while."""
        if pieces not in self._exact:
            sizes = {self.unit // pieces, -(-self.unit // pieces)}
            enough = self.unit // pieces >= max(self.least, min(_ROWS, self.unit // 8))
            self._exact[pieces] = enough and all(
                _same(each, size, self.unit) for each in self.conditions for size in sizes
            )
        return self._exact[pieces]

    def region(self, graph: StaticGraph, pieces: int) -> Region | None:
        """It in so many blocks; None where those would be too small to be exact."""
        if not self.exact(pieces):
            return None
        return plan(graph, self.axes, Span(self.first, self.last, pieces, False, BLOCKS), self.members)

    @property
    def first(self) -> int:
        """Its first node."""
        return self.members.inside[0]

    @property
    def last(self) -> int:
        """Its last node; others may run between the two."""
        return self.members.inside[-1]


class Follower:
    """Where axes go through the nodes of one graph; asked again and again."""

    def __init__(self, graph: StaticGraph) -> None:
        self.graph = graph
        self._misjudged = misjudged(graph)
        self.flow = cache(self._flow)
        self._local, self._condition = cache(self._find_local), cache(self._find_condition)
        self._parts: dict[tuple[object, ...], Grown | None] = {}
        self._operators: dict[int, Operator | None] = {}

    def _flow(self, place: int, axis: int, unit: int) -> Flow | None:
        operator = self.operator(place)
        if operator is None or axis >= operator.rank:
            return None
        found = follow(operator, axis, unit)
        if found is None or len(set(found.outputs)) != 1 or not any(each is not None for each in found.inputs):
            return None
        return found

    def operator(self, place: int) -> Operator | None:
        """A node as rules see it; None for those that are left alone."""
        if place not in self._operators:
            self._operators[place] = self._operator(place)
        return self._operators[place]

    def _operator(self, place: int) -> Operator | None:
        graph, node = self.graph, self.graph.nodes[place]
        names = (*node.inputs, *node.outputs)
        # Copies are parts of a region already; so is what was added for them.
        if node.captured or node.origin != node.first_output or not graph.blocked.isdisjoint(names):
            return None
        if any(graph.shape(name) is None for name in names if name) or not all(node.outputs):
            return None
        if not self._misjudged.isdisjoint(node.outputs):
            return None
        return Operator(
            op_type=node.op_type,
            domain=node.domain,
            attributes=node.attributes,
            inputs=tuple(graph.shape(name) if name else None for name in node.inputs),
            outputs=tuple(graph.shape(name) for name in node.outputs),
            values=tuple(graph.values.get(name) for name in node.inputs),
            opset=graph.opset,
            given=tuple(bool(name) for name in node.inputs),
        )

    def grow(self, place: int, axis: int, first: int, last: int) -> Grown | None:
        """The nodes around `place`, within these ones, that can be computed together along this axis of its output."""
        shape = self.graph.shape(self.graph.nodes[place].first_output)
        if shape is None or axis >= len(shape):
            return None
        unit = shape[axis]
        flows = self._connected(place, axis, unit, first, last)
        kept = self._consistent(flows, first, last)
        if place not in kept:
            return None
        around = sorted(self._around(place, kept))
        key = (tuple(around), unit, flows[place])
        if key not in self._parts:
            self._parts[key] = self._grown({each: flows[each] for each in around}, unit, place)
        return self._parts[key]

    def _around(self, place: int, kept: set[int]) -> set[int]:
        """Those that this one hands something to, or gets something from, be it through others."""
        graph, found, waiting = self.graph, {place}, [place]
        while waiting:
            node = graph.nodes[waiting.pop()]
            near = {graph.makers.get(name, -1) for name in node.inputs}
            near.update(reader for name in node.outputs for reader in graph.readers.get(name, ()))
            new = (near & kept) - found
            found |= new
            waiting += sorted(new)
        return found

    def like(self, other: Grown, place: int) -> Grown | None:
        """The same around another node, if the graph has the same there: layers repeat themselves."""
        graph, there = self.graph, {other.place: place}
        waiting = [other.place]
        while waiting:
            each = waiting.pop()
            node, twin = graph.nodes[each], graph.nodes[there[each]]
            if kind(graph, each) != kind(graph, there[each]):
                return None
            pairs = [
                (graph.makers.get(a, -1), graph.makers.get(b, -1))
                for a, b in zip(node.inputs, twin.inputs, strict=True)
            ]
            for a, b in zip(node.outputs, twin.outputs, strict=True):
                pairs += zip(graph.readers.get(a, ()), graph.readers.get(b, ()), strict=False)
            for mine, its in pairs:
                if mine in other.flows and mine not in there and its >= 0:
                    there[mine] = its
                    waiting.append(mine)
                elif there.get(mine, its) != its:
                    return None
        flows = {there[each]: flow for each, flow in other.flows.items() if each in there}
        if len(flows) < len(other.flows):
            return None
        if any(self.flow(each, flow.outputs[0] or 0, other.unit) != flow for each, flow in flows.items()):
            return None
        if self._consistent(flows, min(flows), max(flows)) != flows.keys():
            return None
        return self._grown(dict(sorted(flows.items())), other.unit, place)

    def _connected(self, place: int, axis: int, unit: int, first: int, last: int) -> dict[int, Flow]:
        """All nodes that the axis leads to, each with where it is in its inputs and outputs."""
        graph, of = self.graph, dict[str, int]()
        flows: dict[int, Flow] = {}

        def include(at: int, along: int) -> bool:
            flow = self.flow(at, along, unit)
            named = [] if flow is None else list(_named(graph, at, flow))
            if flow is None or any(of.get(name, where) != where for name, where in named):
                return False
            flows[at] = flow
            of.update(named)
            return True

        waiting = [place] if include(place, axis) else []
        while waiting:
            node = graph.nodes[waiting.pop()]
            for name in filter(of.__contains__, node.inputs):
                maker = graph.makers.get(name, -1)
                if first <= maker <= last and maker not in flows and include(maker, of[name]):
                    waiting.append(maker)
            for name in node.outputs:
                for reader in graph.readers.get(name, ()):
                    if first <= reader <= last and reader not in flows:
                        along = self._forward(reader, name, of[name], unit)
                        if along is not None and include(reader, along):
                            waiting.append(reader)
        return flows

    def _forward(self, reader: int, name: str, axis: int, unit: int) -> int | None:
        """The axis of what a node makes, if it is this one of what it reads."""
        node = self.graph.nodes[reader]
        for along in range(len(self.graph.shape(node.first_output) or ())):
            flow = self.flow(reader, along, unit)
            if flow and all(at == axis for each, at in zip(node.inputs, flow.inputs, strict=True) if each == name):
                return along
        return None

    def _consistent(self, flows: Mapping[int, Flow], first: int, last: int) -> set[int]:
        """Those that can run block after block: none waits for a node outside that waits for another of them, and
        none needs all of what another makes."""
        nodes, kept = self.graph.nodes, set(flows)
        while True:
            inside: set[str] = set()
            behind: set[str] = set()
            staying = set()
            for place in range(first, last + 1):
                reads = nodes[place].reads
                whole = {
                    name
                    for name, axis in zip(nodes[place].inputs, flows[place].inputs, strict=True)
                    if axis is None
                } if place in kept else set()  # fmt: skip
                if place in kept and behind.isdisjoint(reads) and inside.isdisjoint(whole):
                    staying.add(place)
                    inside.update(nodes[place].outputs)
                elif not behind.isdisjoint(reads) or not inside.isdisjoint(reads):
                    behind.update(nodes[place].outputs)
            if staying == kept:
                return kept
            kept = staying

    def _grown(self, flows: Mapping[int, Flow], unit: int, seed: int) -> Grown | None:
        graph = self.graph
        locals_: dict[int, Local] = {}
        of: dict[str, int] = {}
        conditions: list[Condition] = []
        for place, flow in flows.items():
            local, exact = self._local(place, flow), self._condition(place, flow, unit)
            if local is None or isinstance(exact, str):
                return None
            if exact is not None:
                conditions.append(exact)
            locals_[place] = local
            for name, axis in _named(graph, place, flow):
                if of.setdefault(name, axis) != axis:
                    return None
        members = _members(graph, flows, unit)
        if members is None:
            return None
        nodes = tuple(locals_.get(place) for place in range(len(graph.nodes)))
        least = max(self._least(place, flow, unit) for place, flow in flows.items())
        return Grown(Axes(BLOCKS, of, nodes), members, flows, unit, seed, tuple(conditions), least)

    def _least(self, place: int, flow: Flow, unit: int) -> int:
        """How many positions a node must be given at once so that it does not take much longer for all of them."""
        node = self.graph.nodes[place]
        if len(node.inputs) > 1 and node.inputs[1] in self.graph.weights:
            if node.op_type in _STEPPING and flow.inputs[0] is not None:
                return -(-_LEAST_ROWS * unit // self.graph.tensors[node.inputs[0]].shape[flow.inputs[0]])
            if node.op_type in _MULTIPLYING:
                return -(-_LEAST_ROWS * unit // max(1, prod(self.graph.tensors[node.first_output].shape[:-1])))
        return 1

    def _find_local(self, place: int, flow: Flow) -> Local | None:
        node, axis = self.graph.nodes[place], flow.outputs[0]
        assert axis is not None
        made = self.graph.tensors[node.first_output].shape[axis]
        windows: list[Window | None] = []
        factors = set()
        for name, where in zip(node.inputs, flow.inputs, strict=True):
            if where is None:
                windows.append(None)
                continue
            read = self.graph.tensors[name].shape[where]
            factors.add(max(1, made // read))
            windows.append(Window(where, max(1, read // made), max(1, read // made)))
            if made % read and read % made:
                return None
        return Local(axis, tuple(windows), factors.pop()) if len(factors) == 1 else None

    def _find_condition(self, place: int, flow: Flow, unit: int) -> Condition | str | None:
        node, operator = self.graph.nodes[place], self.operator(place)
        assert operator is not None
        rows = symbol(ROWS)

        def named(shape: Sequence[Dim] | None, axis: int | None) -> tuple[Dim, ...] | None:
            if shape is None or axis is None:
                return None if shape is None else tuple(shape)
            each = int(str(shape[axis])) // unit
            return (*shape[:axis], rows * each, *shape[axis + 1 :])

        general = replace(
            operator,
            inputs=tuple(map(named, operator.inputs, flow.inputs)),
            outputs=tuple(map(named, operator.outputs, flow.outputs)),
        )
        dtypes = tuple(self.graph.tensors[name].dtype if name else "" for name in node.inputs)
        return condition(general, flow, rows, dtypes, constant=lambda k: node.inputs[k] in self.graph.weights)


def kind(graph: StaticGraph, place: int) -> tuple[object, ...]:
    """What must be the same for two nodes to be taken for one another; whatever else matters is looked at."""
    node = graph.nodes[place]
    return node.op_type, node.domain, len(node.inputs), tuple(graph.shape(name) for name in node.outputs)


def _named(graph: StaticGraph, place: int, flow: Flow) -> Iterator[tuple[str, int]]:
    """The tensors around a node that have the axis, each with where it is."""
    node = graph.nodes[place]
    places = zip((*node.inputs, *node.outputs), (*flow.inputs, *flow.outputs), strict=True)
    return ((name, axis) for name, axis in places if name and axis is not None)


def _members(graph: StaticGraph, inside: Mapping[int, Flow], unit: int) -> Members | None:
    """Which nodes of the interval run before the blocks, and which after them."""
    before, after = [], []
    made: set[str] = set()
    for place in range(min(inside), max(inside) + 1):
        node = graph.nodes[place]
        if place in inside or not made.isdisjoint(node.reads):
            made.update(node.outputs)
            if place not in inside:
                after.append(place)
        else:
            before.append(place)
    outputs = []
    for place in sorted(inside):
        for name in graph.nodes[place].outputs:
            readers = graph.readers.get(name, ())
            if name in graph.outputs or any(reader not in inside for reader in readers):
                outputs.append(name)
            elif not readers:
                return None
    return Members(tuple(before), tuple(sorted(inside)), tuple(after), tuple(outputs), unit) if outputs else None


def _same(condition: Condition, rows: int, unit: int) -> bool:
    return not any(
        condition.differs(
            Sizes(dims={ROWS: rows}, rows=rows, threads=threads), Sizes(dims={ROWS: unit}, rows=unit, threads=threads)
        )
        for threads in _THREADS
    )
