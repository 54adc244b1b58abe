"""In which order should the nodes of a built model run, and does ONNX Runtime keep to it?

    record the source and what was built ─▶ search, with measured scratch ─▶ write, record ─▶ keep what needs least

A file whose nodes stand in the wanted order runs in it, if the session's settings forbid changes of the graph and take
whatever is ready in the order of the file. Every claim is checked on real runs: how much the run needs by its trace,
and the order itself by the profiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from onnxmem.errors import ImpossibleShapes
from onnxmem.files import replacing
from onnxmem.measurement.protocol import SavedFeeds
from onnxmem.model.bindings import bind
from onnxmem.model.dims import Dim
from onnxmem.model.graph import Graph, Node
from onnxmem.model.load import subgraphs_of
from onnxmem.model.model import Model
from onnxmem.model.weights import is_constant
from onnxmem.packing.recording import LoadSettings, Recording, record_nodes
from onnxmem.schedule.orders import find_order
from onnxmem.schedule.storages import Rules, memory_of
from onnxmem.schedule.workload import peak
from onnxmem.session.modes import Mode
from onnxmem.session.package import PackedOrder
from onnxmem.session.packed_graphs import KEEP_CONFIG, KEEP_OPTIONS
from onnxmem.units import format_bytes

DEFAULT, PRIORITY = "ort-default", "ort-priority"
# They run as soon as they can, wherever they stand.
_EAGER = ("Shape", "Size")


@dataclass(frozen=True)
class Ordered:
    """The order a package runs in, and what keeps it."""

    order: PackedOrder
    settings: LoadSettings
    """The settings with which a session keeps it."""
    note: str = ""


@dataclass(frozen=True)
class _Job:
    model: Path
    asked: str
    mode: Mode
    """What it says comes on top of an order's settings."""
    plain: LoadSettings
    """How the model is loaded when its order is ONNX Runtime's."""
    feeds: SavedFeeds
    timeout: float

    def record(self, model: Path, settings: LoadSettings) -> Recording:
        return record_nodes(model, settings.under(self.mode), self.feeds, timeout=self.timeout)


def put_in_order(
    source: Path,
    model: Path,
    asked: str,
    *,
    mode: Mode,
    plain: LoadSettings,
    feeds: SavedFeeds,
    shapes: Mapping[str, tuple[int, ...]],
    seconds: float,
    timeout: float,
    on_stage: Callable[[str], None],
) -> Ordered:
    """Rewrite what was built of `source` so that its nodes run in the order asked for, if they need less in it.

    Only the nodes of the main graph move; weights are not read. `mode` is what the model's mode tells a session,
    `plain` what it is loaded with without an order. The search takes up to `seconds`.
    """
    job = _Job(model, asked, mode, plain, feeds, timeout)
    proto = onnx.load_model(model, load_external_data=False)
    _name_nodes(proto)
    with replacing(model) as temporary:
        temporary.write_bytes(proto.SerializeToString())
    on_stage("recording runs in ONNX Runtime's order")
    before = job.record(source, LoadSettings({}, {}))
    first = job.record(model, plain)
    default = PackedOrder(
        asked=asked,
        name=DEFAULT,
        default_bound=before.trace.bound(),
        bound=first.trace.bound(),
        verified=True,
    )
    on_stage(f"searching the order '{asked}'")
    written = _search(job, proto, first, shapes, seconds)
    candidates = {asked: written} if asked != DEFAULT and written else {}
    if asked == "best":
        candidates[PRIORITY] = [first_output(node.output) for node in _movable(proto)]
    return _choose(job, proto, default, candidates, on_stage)


def _choose(
    job: _Job,
    proto: ModelProto,
    default: PackedOrder,
    candidates: Mapping[str, list[str]],
    on_stage: Callable[[str], None],
) -> Ordered:
    """Record a run in each order; the one that needs least is written, if it needs less than ONNX Runtime's."""
    kept, settings, spoiled = default, job.plain, ""
    keep = LoadSettings({**job.plain.options, **KEEP_OPTIONS}, {**job.plain.config, **KEEP_CONFIG})
    candidate = job.model.with_name(f"ordered-{job.model.name}")
    for name, order in candidates.items():
        on_stage(f"recording a run in the order '{name}'")
        names = _write(proto, order, candidate)
        run = job.record(candidate, keep)
        difference, bound = _difference(names, run.ran), run.trace.bound()
        # What ONNX Runtime makes of its own file may by chance be as good as what was asked for.
        as_good = name == job.asked and bound == kept.bound < default.default_bound
        if difference:
            spoiled = difference if name == job.asked else spoiled
        elif bound < kept.bound or as_good:
            kept, settings = replace(kept, name=name, bound=bound), keep
            candidate.replace(job.model)
        candidate.unlink(missing_ok=True)
    kept = replace(kept, verified=kept.name != DEFAULT or not spoiled)
    return Ordered(kept, settings, _note(job.asked, kept, spoiled))


def _note(asked: str, kept: PackedOrder, spoiled: str) -> str:
    """What a user should know who gets another order than the one asked for."""
    if kept.name == asked:
        return ""
    if spoiled:
        return f"ONNX Runtime does not keep to the order '{asked}': {spoiled}; the package runs in '{kept.name}'"
    return f"the order '{asked}' needs no less than '{kept.name}', {format_bytes(kept.bound)}, which is kept"


def _search(
    job: _Job, proto: ModelProto, first: Recording, shapes: Mapping[str, tuple[int, ...]], seconds: float
) -> list[str]:
    """The order asked for, by the nodes' first outputs; nothing if already on paper it is worse than ONNX Runtime's."""
    try:
        graph = _graph(job.model, proto, shapes)
    except ImpossibleShapes:
        return []  # it has just run: what cannot be is in a branch that these inputs do not take
    names = {first_output(node.output): node.name for node in _movable(proto)}
    if not names.keys() <= {first_output(node.outputs) for node in graph.nodes}:
        return []  # ONNX Runtime makes other nodes of them even now, so that an order says nothing

    def name(node: Node) -> str:
        return names.get(first_output(node.outputs), "")

    # Outputs are the caller's: they are outside of the arena in any order.
    uncounted = frozenset(graph.outputs)
    workload = memory_of(
        graph, Rules(), number=_known, scratch=lambda node: first.scratch.get(name(node), 0), uncounted=uncounted
    ).workload
    best = find_order(job.asked, graph, workload, time_limit=seconds)
    step = {name: position for position, name in enumerate(first.ran)}
    default = sorted(range(len(graph.nodes)), key=lambda position: step.get(name(graph.nodes[position]), -1))
    if best.peak > peak(workload, default):
        return []
    return [first_output(graph.nodes[position].outputs) for position in best.order]


def _graph(model: Path, proto: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """The graph as ONNX Runtime sees it when it loads this very file, numbered as it counts: by place."""
    read = Model.open(model)
    declared = {name: shape for name, shape in shapes.items() if read.inputs.get(name) is not None}
    graph = read.graph(bind(read.inputs, shapes=declared), level="disabled")
    place = {first_output(node.output): position for position, node in enumerate(proto.graph.node)}
    nodes = (replace(node, index=place.get(first_output(node.outputs), node.index)) for node in graph.nodes)
    return replace(graph, nodes=tuple(sorted(nodes, key=lambda node: node.index)), numbering="file")


def _write(proto: ModelProto, order: list[str], path: Path) -> list[str]:
    """Write the model with its nodes in this order; what the order does not mention stays first. Their names."""
    place = {output: position for position, output in enumerate(order)}
    nodes = sorted(proto.graph.node, key=lambda node: place.get(first_output(node.output), -1))
    ordered = ModelProto()
    ordered.CopyFrom(proto)
    del ordered.graph.node[:]
    ordered.graph.node.extend(nodes)
    path.write_bytes(ordered.SerializeToString())
    return [node.name for node in _movable(ordered) if node.op_type not in _EAGER]


def _difference(written: list[str], ran: tuple[str, ...]) -> str:
    """Where a run left the order that was written; empty if it did not."""
    known = set(written)
    main = [name for name in ran if name in known]  # the others are in subgraphs, or run wherever they can
    for expected, actual in zip(written, main, strict=False):
        if expected != actual:
            return f"'{actual}' ran where '{expected}' should have"
    return f"'{written[len(main)]}' did not run" if len(main) < len(written) else ""


def _name_nodes(proto: ModelProto) -> None:
    """Give every node of the main graph a name of its own: the profiler knows nodes by nothing else."""
    taken = {node.name for node in _all_nodes(proto.graph)} | {""}
    seen = {node.name for top in proto.graph.node for graph in subgraphs_of(top) for node in _all_nodes(graph)} | {""}
    fresh = (name for number in count() if (name := f"node_{number}") not in taken)
    for node in proto.graph.node:
        if node.name in seen:
            node.name = next(fresh)
        seen.add(node.name)


def _all_nodes(graph: GraphProto) -> list[NodeProto]:
    inner = [node for top in graph.node for sub in subgraphs_of(top) for node in _all_nodes(sub)]
    return [*graph.node, *inner]


def _movable(proto: ModelProto) -> list[NodeProto]:
    """All but constants, which do not run."""
    return [node for node in proto.graph.node if not is_constant(node)]


def first_output(outputs: Iterable[str]) -> str:
    """What a node is known by, whatever it is called: the first thing it makes."""
    return next(filter(None, outputs), "")


def _known(size: Dim) -> int:
    # What has no number even now counts as nothing in the search; recorded runs have the last word.
    return size if isinstance(size, int) else 0
