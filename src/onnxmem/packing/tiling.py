"""Which graphs should a package hold beside its own, so that runs with certain input shapes need less?

    fix the shapes ─▶ search what to compute piece by piece ─▶ write ─▶ record a run, plan it ─▶ keep what needs less

A graph is for one combination of shapes. Its weights are those of the package's own graph, wherever they are the same.
What a plan takes is said by recorded runs; whether outputs are the same is checked when the package is whole.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from onnxmem.deadline import Deadline
from onnxmem.errors import BudgetExceeded, ModelError
from onnxmem.files import replacing
from onnxmem.folders import temporary_folder
from onnxmem.measurement.feeds import Feeds
from onnxmem.model.bindings import free_dimensions, input_shapes
from onnxmem.model.load import node_reads
from onnxmem.model.model import Model
from onnxmem.model.weights import is_constant
from onnxmem.packing.blobs import adopt, always_read
from onnxmem.packing.build import build
from onnxmem.packing.ordering import first_output
from onnxmem.packing.outputs import outputs_of
from onnxmem.packing.recording import LoadSettings, record_plan
from onnxmem.rewriting.budgets import LADDER, steps_to
from onnxmem.rewriting.live import NODE_BYTES
from onnxmem.rewriting.rewriting import EXTRA_WORK, Rewriting, apply
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import StaticGraph, static_graph
from onnxmem.session.modes import Mode
from onnxmem.session.packed_graphs import (
    KEEP_CONFIG,
    KEEP_OPTIONS,
    Reduced,
    ReducedPart,
    TiledGraph,
    TileSettings,
)
from onnxmem.session.planned.trace import Trace
from onnxmem.units import format_apart, format_bytes, format_count, format_percent

_SEARCH_SECONDS, _PLAN_SECONDS = 30.0, 10.0
_SHORTFALLS = 3
_LISTED = 3
# A budget in bytes alive is met with so much room at first, because places are not always perfect.
_MARGIN = 0.98
# The least that is possible is sought in steps of this size, then of that.
_APPROACH = (0.85, 0.97)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What runs of the package's own graph take, with certain inputs."""

    feeds: tuple[Feeds, ...]
    plan: Mapping[str, Any]
    """The document of its plan."""

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.feeds[0].arrays.items()}

    @property
    def peak(self) -> int:
        return int(self.plan.get("sharing", self.plan)["peak_bytes"])

    @property
    def outputs(self) -> int:
        return Trace.from_document(self.plan).output_bytes


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """What came of it, for one combination of shapes."""

    free: Reduced
    """What costs nothing."""
    reduced: Reduced
    """With tiles, if there is a graph."""
    graph: TiledGraph | None = None
    split: bool = False
    """Whether it takes a batch a few rows at a time to meet the budget."""
    note: str = ""
    """Why there is no graph."""

    def without(self, note: str) -> Tiled:
        """The same without a graph, because of this."""
        return Tiled(free=self.free, reduced=self.free, note=note)


@dataclass(frozen=True, kw_only=True)
class TileJob:
    """A package that is being made, and what is wanted of it."""

    model: Path
    """Its own graph, in the order in which it runs."""
    mode: Mode
    plain: LoadSettings
    """How that is loaded."""
    settings: TileSettings
    default_bound: int
    """What a run needs at least in ONNX Runtime's order."""
    bound: int
    """The same in the package's."""
    order: str
    deadline: Deadline
    on_stage: Callable[[str], None]

    @property
    def keep(self) -> LoadSettings:
        return LoadSettings(KEEP_OPTIONS, KEEP_CONFIG).under(self.mode)


def tile(job: TileJob, planned: Sequence[Planned]) -> tuple[Tiled, ...]:
    """Write graphs beside the package's own, one for each of these combinations of shapes that needs less by it.

    With a budget, the least is done that meets it; BudgetExceeded, if nothing does.
    """
    return tuple(_tile_one(job, number, each) for number, each in enumerate(planned, 1))


def _tile_one(job: TileJob, number: int, planned: Planned) -> Tiled:
    free = Reduced(
        inputs=planned.inputs,
        before_bytes=max(job.default_bound, job.bound) if number == 1 else planned.peak,
        after_bytes=planned.peak,
        output_bytes=planned.outputs,
        parts=_free_parts(job, planned) if number == 1 else (),
    )
    budget, untiled = job.settings.budget_bytes, Tiled(free=free, reduced=free)
    if budget is not None and _needed(free) <= budget:
        return untiled
    if budget is not None and (split := _split(job, planned, free, budget)) is not None:
        return split
    path = job.model.with_name(f"tiled-{number}.onnx")
    job.on_stage(f"searching tiles for {shapes_text(planned.inputs)}")
    best, failure = None, ""
    try:
        proto = _fixed(job, planned.inputs, path)
        for rewriting in _rewritings(job, planned, path):
            _write(apply(proto, rewriting), path)
            candidate = _recorded(job, path, free, planned, rewriting)
            if budget is not None and _needed(candidate.reduced) <= budget:
                return candidate
            if best is None or candidate.reduced.after_bytes < best.reduced.after_bytes:
                best = candidate
    except ModelError as error:
        # A package is worth having without tiles, too.
        best, failure = None, f"its tiled graph does not run ({error})"
    if budget is not None:
        raise refusal(budget, best or untiled)
    note = failure or _why_not(best, planned.peak)
    if note:
        for file in (path, _plan_file(path)):
            file.unlink(missing_ok=True)
        return untiled.without(f"{note} for {shapes_text(planned.inputs)}: it is not tiled")
    assert best is not None
    return best


def _split(job: TileJob, planned: Planned, free: Reduced, budget: int) -> Tiled | None:
    """A batch run a few rows at a time, which costs next to nothing; None if that does not do."""
    job.on_stage("running a few rows of the batch at a time")
    with temporary_folder() as folder:
        saved = [planned.feeds[0].save(folder)]
        left = job.deadline.left
        try:
            found = outputs_of(
                job.model, saved, mode=None, settings=job.plain, threads=(0,), budget=budget, timeout=left
            )
        except ModelError:  # rows that mix, a single row, or a row that takes more than that
            return None
    if not found.batches:
        return None
    (batch,) = found.batches
    after = batch.needed - free.output_bytes
    part = ReducedPart(part=f"{batch.rows_at_once} of {batch.rows} rows at a time", gave_bytes=free.after_bytes - after)
    return Tiled(free=free, reduced=replace(free, after_bytes=after, parts=(*free.parts, part)), split=True)


def remove(tiled: Tiled, folder: Path) -> None:
    """Remove a graph from a package that is being made."""
    for name in (tiled.graph.model, tiled.graph.plan) if tiled.graph else ():
        (folder / name).unlink(missing_ok=True)


def shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Shapes of inputs in words."""
    return ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items()) or "no inputs"


def _why_not(best: Tiled | None, untiled: int) -> str:
    """Why the best there is does not pay; empty if it does."""
    if best is None:
        return "no part of the graph takes less memory when it is computed piece by piece"
    peak, added = best.reduced.after_bytes, NODE_BYTES * sum(part.nodes for part in best.reduced.parts)
    if peak + added < untiled:
        return ""
    return f"tiles do not pay (runs would need {format_bytes(peak)} and not {format_bytes(untiled)})"


def _needed(reduced: Reduced) -> int:
    """What a budget is compared with."""
    return reduced.after_bytes + reduced.output_bytes


def _rewritings(job: TileJob, planned: Planned, path: Path) -> Iterator[Rewriting]:
    """One for the extra work that is allowed; for a budget one after the other, each with less memory and more work.

    They end with the one that needs least of all.
    """
    graph = static_graph(Model.open(path), planned.inputs, optimized=False)
    budget, most = job.settings.budget_bytes, job.settings.extra_work
    if budget is None:
        found = _searched(job, graph, EXTRA_WORK if most is None else most, None)
        if found.parts:
            yield found
        return
    wanted, allowed = budget - planned.outputs, LADDER[-1] if most is None else most
    least: Rewriting | None = None
    for extra_work in steps_to(allowed):
        goal = int(wanted * _MARGIN)
        for _ in range(_SHORTFALLS):
            found = _searched(job, graph, extra_work, goal)
            # More work is not always found to need less: the least is that of all of them.
            least = found if least is None or found.after < least.after else least
            if found.after > goal or not found.parts:
                break
            yield found
            goal = int(goal * _MARGIN)  # its plan takes more than what is alive at once
    if least is None or not least.parts:
        return
    # Of what is out of reach, nodes count as well as bytes; within reach only bytes do. So the least is approached.
    for step in _APPROACH:
        while (found := _searched(job, graph, allowed, int(least.after * step))).after < least.after:
            least = found
    yield least


def _searched(job: TileJob, graph: StaticGraph, extra_work: float, goal: int | None) -> Rewriting:
    seconds = min(_SEARCH_SECONDS, job.deadline.left)
    within = f" within {format_bytes(goal)}" if goal is not None else ""
    job.on_stage(f"searching tiles with up to {format_percent(extra_work)} more work{within}")
    return search(graph, extra_work=extra_work, budget=goal, time_limit=seconds)


def _recorded(job: TileJob, path: Path, free: Reduced, planned: Planned, rewriting: Rewriting) -> Tiled:
    """What a run of the rewritten graph needs, with its plan beside it."""
    job.on_stage(f"planning a run in {sum(part.pieces for part in rewriting.parts)} pieces")
    with temporary_folder() as folder:
        saved = [feeds.save(folder, f"run-{number}-") for number, feeds in enumerate(planned.feeds)]
        seconds, timeout = min(_PLAN_SECONDS, job.deadline.left), job.deadline.left
        plan = record_plan(path, job.keep, saved, seconds=seconds, timeout=timeout)
    file = _plan_file(path)
    file.write_text(json.dumps([plan]))
    taken = plan.get("sharing", plan)
    graph = TiledGraph(
        inputs=planned.inputs,
        peak_bytes=taken["peak_bytes"],
        lower_bound_bytes=taken["lower_bound_bytes"],
        model=path.name,
        plan=file.name,
        nodes=len(rewriting.graph.nodes),
        extra_work=rewriting.extra_work,
        always_read=always_read(path),
        always_mapped=always_read(path, packed_only=True),
    )
    parts = (*free.parts, *_tile_parts(rewriting, planned.peak - taken["peak_bytes"]))
    return Tiled(free=free, graph=graph, reduced=replace(free, after_bytes=taken["peak_bytes"], parts=parts))


def _plan_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}-plan.json")


def _free_parts(job: TileJob, planned: Planned) -> tuple[ReducedPart, ...]:
    """What cost nothing."""
    parts = []
    if job.bound < job.default_bound:
        parts.append(ReducedPart(part=f"nodes in the order '{job.order}'", gave_bytes=job.default_bound - job.bound))
    if planned.peak < job.bound:
        parts.append(ReducedPart(part="shared places", gave_bytes=job.bound - planned.peak))
    return tuple(parts)


def _tile_parts(rewriting: Rewriting, gave: int) -> list[ReducedPart]:
    """What stripes and blocks gave: all of it together, shared out by what would be missed without each."""
    kinds = list(dict.fromkeys(part.kind for part in rewriting.parts))
    missed = {kind: sum(p.before - p.after for p in rewriting.parts if p.kind == kind) for kind in kinds}
    total, found = max(sum(missed.values()), 1), list[ReducedPart]()
    for kind in kinds:
        parts = [part for part in rewriting.parts if part.kind == kind]
        listed = ", ".join(f"{part.pieces} of {format_count(len(part.nodes), 'node')}" for part in parts[:_LISTED])
        more = f" and {len(parts) - _LISTED} more" * (len(parts) > _LISTED)
        found.append(
            ReducedPart(
                part=f"{kind}: {listed}{more}",
                gave_bytes=gave * missed[kind] // total,
                nodes=0 if found else rewriting.added_nodes,  # they are added by all of it together
                extra_work=sum(part.extra_work for part in parts),
            )
        )
    return found


def refusal(budget: int, best: Tiled) -> BudgetExceeded:
    """That a budget cannot be met: the least that was found, and what that would cost."""
    least, cost = min(best.free, best.reduced, key=lambda each: each.after_bytes), "which costs nothing"
    if best.graph is not None and least is best.reduced:
        nodes = sum(part.nodes for part in least.parts)
        cost = f"which costs {format_percent(best.graph.extra_work)} more work and {format_count(nodes, 'more node')}"
    wanted, possible = format_apart(budget, _needed(least))
    return BudgetExceeded(
        f"a run cannot be made to need {wanted} or less: the least that was found is {possible}, {cost}",
        hint=f"--budget {-(-_needed(least) // 2**10)}KiB, or smaller inputs",
    )


# The graph for fixed shapes.


def _fixed(job: TileJob, shapes: Mapping[str, tuple[int, ...]], path: Path) -> ModelProto:
    """Write the package's own graph for these shapes alone, in its own order and over its own weights."""
    own = onnx.load_model(job.model, load_external_data=False)
    if not free_dimensions(input_shapes(own)):
        _write(own, path)
        return own
    with temporary_folder(beside=job.model) as folder:
        built = build(job.model, folder, "prepacked" if job.mode.form == "prepacked" else "external", shapes=shapes)
        adopt(built.rename(built.with_name(path.name)), job.model)
    proto = onnx.load_model(path, load_external_data=False)
    sort_like(proto, own)
    _write(proto, path)
    return proto


def _write(proto: ModelProto, path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(proto.SerializeToString())


def sort_like(proto: ModelProto, own: ModelProto) -> None:
    """Put nodes in the order in which another graph has them, as far as it has them; others go first."""
    place = {first_output(node.output): position for position, node in enumerate(own.graph.node)}
    nodes = list(proto.graph.node)
    made = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    waits = [{made[name] for name in node_reads(node) if name in made} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for reader, inputs in enumerate(waits):
        for maker in inputs:
            readers[maker].append(reader)

    def key(position: int) -> tuple[int, int]:
        node = nodes[position]
        return (-1 if is_constant(node) else place.get(first_output(node.output), -1), position)

    ready = [key(position) for position, inputs in enumerate(waits) if not inputs]
    heapq.heapify(ready)
    order = []
    while ready:
        _, position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            waits[reader].discard(position)
            if not waits[reader]:
                heapq.heappush(ready, key(reader))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes[position] for position in order)
