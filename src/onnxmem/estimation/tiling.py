"""What would computing parts of a model piece by piece give? Found on the graph alone, before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onnxmem.deadline import Deadline
from onnxmem.documents import Record
from onnxmem.errors import ModelError, UsageError
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.model.model import Model
from onnxmem.rewriting.budgets import LADDER, within
from onnxmem.rewriting.rewriting import EXTRA_WORK, Rewriting
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import StaticGraph, StaticNode, from_graph
from onnxmem.schedule.scheduled import Question, Scheduled, order_graph, problem_of, schedule
from onnxmem.schedule.timeline import Span

_SEARCH = 0.3
"""The part of the time limit that a search for tiles takes on an ordinary processor."""


@dataclass(frozen=True, kw_only=True)
class TileRow(Record):
    """Some nodes that are computed in pieces."""

    kind: str
    """`stripes`, which overlap, or `blocks`."""
    pieces: int
    nodes: int
    first: str
    last: str
    """What the first and the last of these nodes make."""
    before_bytes: int
    after_bytes: int
    """The most bytes alive at once, without this part and with it."""
    extra_work: float


@dataclass(frozen=True, kw_only=True)
class TilingFacts(Record):
    """What tiles would give: the most bytes alive at once, and what that costs."""

    before_bytes: int
    after_bytes: int
    nodes_before: int
    nodes: int
    extra_work: float
    """As a part of what the model computes."""
    parts: tuple[TileRow, ...]
    note: str = ""
    """Why there can be no parts, where that is."""

    def derived(self) -> Mapping[str, Any]:
        """How much is left of what it was."""
        return {"ratio": self.after_bytes / self.before_bytes if self.before_bytes else 1.0}

    @classmethod
    def impossible(cls, untiled: Scheduled, why: str) -> TilingFacts:
        """What is left where nothing can be computed in pieces."""
        alive, nodes = untiled.problem.lower_bound, len(untiled.graph.nodes)
        return cls(
            before_bytes=alive, after_bytes=alive, nodes_before=nodes, nodes=nodes, extra_work=0.0, parts=(), note=why
        )

    @classmethod
    def of(cls, found: Rewriting, before: int, after: int) -> TilingFacts:
        return cls(
            before_bytes=before,
            after_bytes=after,
            nodes_before=found.nodes_before,
            nodes=len(found.graph.nodes),
            extra_work=found.extra_work,
            parts=tuple(
                TileRow(
                    kind=part.kind,
                    pieces=part.pieces,
                    nodes=len(part.nodes),
                    first=part.nodes[0],
                    last=part.nodes[-1],
                    before_bytes=part.before,
                    after_bytes=part.after,
                    extra_work=part.extra_work,
                )
                for part in found.parts
            ),
        )


def checked_extra_work(*, tile: bool, extra_work: float | None, capacity: int | None = None) -> float | None:
    """How much more may be computed: as much as it takes where there is a capacity; None: no tiles are asked for."""
    if extra_work is not None and not 0 <= extra_work < math.inf:
        raise UsageError(f"extra work is a part of what the model computes, like 10%, and not {extra_work:g}")
    if not tile:
        if extra_work is not None:
            raise UsageError("extra work is for tiles, and none are asked for", hint="--tile")
        return None
    if extra_work is not None:
        return extra_work
    return EXTRA_WORK if capacity is None else LADDER[-1]


def check_runnable(question: Question, what: str) -> None:
    """An error for a graph that is not the one that runs."""
    if question.view == "raw" or question.level != "all":
        are = "are" if what.endswith("s") else "is"
        raise UsageError(f"{what} {are} for the graph as ONNX Runtime runs it", hint="leave out --view and --level")


def tile_schedule(
    model: Model, question: Question, deadline: Deadline, extra_work: float, capacity: int | None = None
) -> tuple[Scheduled, TilingFacts]:
    """The model laid out in time with parts of it computed in pieces, and what that gives.

    It is the graph that ONNX Runtime makes for just these sizes: a tiled graph is for no others. With a `capacity` in
    bytes the least is done that meets it, if anything does. There may be no such graph although the model runs: with
    the sizes fixed, ONNX Runtime may refuse a branch that is not taken. Then nothing is computed in pieces.
    """
    check_runnable(question, "tiles")
    try:
        untiled = schedule(model, replace(question, view="optimized", fix_dims=True), deadline)
    except ModelError as error:
        if question.fix_dims:
            raise
        untiled = schedule(model, replace(question, view="optimized"), deadline)
        return untiled, TilingFacts.impossible(untiled, f"there is no graph for these sizes alone: {error}")
    fixed = {name: shape for name, tensor in untiled.graph.tensors.items() if (shape := _numbers(tensor)) is not None}
    proto = model.optimized("all", {name: fixed[name] for name in model.inputs if name in fixed})
    static = _in_order(from_graph(untiled.graph, proto), untiled)
    seconds = question.time_limit * _SEARCH  # and not what is left of it: the answer is the same each time
    if capacity is None:
        found = search(static, extra_work=extra_work, time_limit=seconds)
    else:
        # What the search counts is without outputs, and the capacity is for all of it.
        outputs = sum(span.bytes for span in untiled.timeline.spans if span.kind == "output")
        found = within(static, max(capacity - outputs, 0), most=extra_work, time_limit=seconds)
    graph = _as_graph(found.graph, untiled.graph, bool(found.parts))
    timeline = order_graph(graph, replace(question, order="file"), deadline)
    kinds = _pieces(found, untiled.graph)
    timeline = replace(timeline, spans=tuple(_marked(span, kinds) for span in timeline.spans))
    tiled = replace(untiled, graph=graph, timeline=timeline, problem=problem_of(timeline, question.alignment))
    return tiled, TilingFacts.of(found, untiled.problem.lower_bound, tiled.problem.lower_bound)


def _pieces(found: Rewriting, before: Graph) -> dict[str, str]:
    """The tensors that only the rewritten graph has, and what each is: a `stripe` or a `block`."""
    of = {name: part.kind.removesuffix("s") for part in found.parts for name in part.nodes}
    read_for: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for node in reversed(found.graph.nodes):
        # What is cut out is a piece of the kind that it is cut out for.
        kind = of.get(node.origin) or next((read_for[name] for name in node.outputs if name in read_for), "stripe")
        kinds |= {name: kind for name in node.outputs if name not in before.tensors}
        read_for |= dict.fromkeys(node.reads, kind)
    return kinds


def _marked(span: Span, kinds: Mapping[str, str]) -> Span:
    """A buffer that is a piece of one says so."""
    kind = kinds.get(span.tensors[0].name) if span.kind == "activation" else None
    return span if kind is None else replace(span, kind=kind)


def _numbers(tensor: Tensor) -> tuple[int, ...] | None:
    shape = tensor.shape
    return None if shape is None or not all(isinstance(dim, int) for dim in shape) else tuple(map(int, shape))  # type: ignore[arg-type]


def _in_order(static: StaticGraph, scheduled: Scheduled) -> StaticGraph:
    """The graph with its nodes in the order in which they were laid out."""
    place = {label: position for position, label in enumerate(step.label for step in scheduled.timeline.steps)}
    labels = {next(filter(None, node.outputs), ""): node.label for node in scheduled.graph.nodes}
    nodes = sorted(static.nodes, key=lambda node: place.get(labels.get(node.first_output, ""), -1))
    return replace(static, nodes=tuple(nodes))


def _as_graph(static: StaticGraph, before: Graph, tiled: bool) -> Graph:
    """A rewritten graph as the rest of onnxmem knows graphs."""
    originals = {next(filter(None, node.outputs), ""): node for node in before.nodes}
    tensors = {
        name: Tensor(name, tensor.dtype, tensor.shape, tensor.bytes)
        for name, tensor in static.tensors.items()
        if name not in static.weights
    }
    nodes = tuple(_node(index, node, originals) for index, node in enumerate(static.nodes))
    made = {name for node in nodes for name in node.outputs} | set(before.inputs)
    tensors = {name: before.tensors.get(name, tensor) for name, tensor in tensors.items() if name in made}
    unknown = {name: tensor for name, tensor in before.tensors.items() if name in made and name not in tensors}
    view = f"{before.view}, tiled" if tiled else before.view
    return replace(before, nodes=nodes, tensors={**unknown, **tensors}, view=view, numbering="saved")


def _node(index: int, node: StaticNode, originals: Mapping[str, Node]) -> Node:
    original = originals.get(node.origin)
    same = original is not None and node.first_output == node.origin
    return Node(
        index,
        original.name if original is not None and same else node.first_output,
        node.op_type,
        node.domain,
        node.inputs,
        node.outputs,
        original.subgraphs if original is not None else (),
        node.attributes,
    )
