"""What will the whole process take, in each mode, before anything runs? Model + question → Prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from onnxmem.deadline import Deadline
from onnxmem.environment import available_cores
from onnxmem.errors import UsageError
from onnxmem.model.blocks import block_size
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.model.model import Model
from onnxmem.prediction.arena import HIGHEST, Arena
from onnxmem.prediction.calibration import Calibration, Process, calibration
from onnxmem.prediction.heap import Heap
from onnxmem.prediction.loading import INLINE, Weights, loaded, mapped_bytes, packed_in_arena
from onnxmem.prediction.prediction import PARTS, Forecast, Part, Prediction
from onnxmem.prediction.requests import Requests, Runs, as_saved, runs_of, unknown_tensors
from onnxmem.schedule.scheduled import Question, Scheduled, numbered_graph
from onnxmem.scratch.kernel import NOTHING, Scratch
from onnxmem.scratch.kernels import allocated_shape, scratch_of
from onnxmem.session.modes import find_mode
from onnxmem.session.package import is_package, open_package
from onnxmem.session.packed_graphs import KEEP_OPTIONS
from onnxmem.unknown import Unknown

MODES = ("stock", "tuned", "external", "mapped", "prepacked", "planned")
"""Those that are predicted; .ort files are not."""
_STEADY = 3
"""Later runs until the arena has its final size."""
_CACHED = 7
"""Pieces of a size that the C library keeps at hand for each thread."""
_PLANNER = 400 << 10
"""What the planner takes in a process of its own."""
_RECORDING = 300 << 10
"""What it takes to write down a run and to lay out its plan."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model at given sizes, and all that predictions of any mode are made from."""

    model: Model
    graph: Graph
    assumed: Mapping[str, int]
    """Dimensions that were left open, and the numbers used for them."""
    level: str
    threads: int
    loaded_as: str = ""
    """The mode of the package that it was read from, which planned runs come on top of; empty: it is from a file."""
    known_weights: Weights | None = None

    @classmethod
    def of(cls, model: Model, question: Question, threads: int | None = None) -> Subject:
        """Read the graph at the sizes asked for."""
        graph, _, assumed = numbered_graph(model, question, Deadline(question.time_limit))
        count = threads or available_cores()
        return cls(model=model, graph=graph, assumed=assumed, level=question.level, threads=count)

    @classmethod
    def read(
        cls,
        path: Path,
        question: Question,
        threads: int | None = None,
        *,
        mode: str,
        open_model: Callable[[Path], Model] = Model.open,
    ) -> Subject:
        """The same of a file, or of what a package runs in this mode at these sizes: its own graph, or a tiled one."""
        if not is_package(path):
            return cls.of(open_model(path), question, threads)
        package = open_package(path)
        found = cls.of(open_model(package.model), replace(question, view="raw"), threads)
        shapes, made = found.input_shapes, package.manifest
        tiled = next((graph for graph in made.tiled if mode == "planned" and graph.inputs == shapes), None)
        if tiled is not None:
            raw = Question(view="raw", time_limit=question.time_limit)
            found = cls.of(open_model(package.folder / tiled.model), raw, threads)
        if package.graph(tiled).options.items() >= KEEP_OPTIONS.items():  # nodes run as they stand in the file
            found = replace(found, graph=replace(found.graph, numbering="saved"))
        return replace(found, loaded_as=made.mode)

    @property
    def saved(self) -> bool:
        """Whether it was read from a package: then its file lists the nodes as ONNX Runtime would run them."""
        return bool(self.loaded_as)

    @classmethod
    def of_scheduled(cls, scheduled: Scheduled, level: str, threads: int | None = None) -> Subject:
        """The same of a graph that has been read."""
        return cls(
            model=scheduled.model,
            graph=scheduled.graph,
            assumed=scheduled.assumed,
            level=level,
            threads=threads or available_cores(),
        )

    def at(self, graph: Graph, assumed: Mapping[str, int]) -> Subject:
        """The same model at other sizes: its weights, which take the longest to read, are the same."""
        return replace(self, graph=graph, assumed=assumed, known_weights=self.weights)

    @cached_property
    def weights(self) -> Weights:
        """What its weights are, and become."""
        return self.known_weights or Weights.of(self.model, self.graph, self.level)

    @cached_property
    def stock_runs(self) -> Runs:
        """What runs ask for with memory pattern and same-size reuse …"""
        return self._runs(self.graph, True)

    @cached_property
    def plain_runs(self) -> Runs:
        """… and without …"""
        return self._runs(self.graph, False)

    @cached_property
    def packaged_runs(self) -> Runs:
        """… and from a package. Its file lists the nodes as they would run, and ONNX Runtime orders them once more."""
        return self._runs(self.graph if self.saved else as_saved(self.graph), False)

    def runs_in(self, mode: str) -> Runs:
        """Those of a mode."""
        return self.stock_runs if mode == "stock" else self.plain_runs if mode in INLINE else self.packaged_runs

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """What the caller feeds, as far as it is known."""
        shapes = {name: self.graph.tensors[name].shape for name in self.graph.inputs if name in self.graph.tensors}
        return {name: _numbers(shape) for name, shape in shapes.items() if shape is not None}

    @cached_property
    def input_bytes(self) -> int:
        """What the caller feeds."""
        sizes = (self.graph.tensors[name].size for name in self.graph.inputs if name in self.graph.tensors)
        return sum(int(str(size)) for size in sizes if not isinstance(size, Unknown))

    def _runs(self, graph: Graph, on: bool) -> Runs:
        block = block_size()
        types = {t.name: t for inner in self.graph.walk() for t in inner.tensors.values()}
        weights = {w.name: w for w in self.graph.all_weights()}

        def shape_of(name: str) -> tuple[int, ...] | None:
            if name in weights:
                return weights[name].shape
            shape = types[name].shape if name in types else None
            return None if shape is None or not all(isinstance(dim, int) for dim in shape) else _numbers(shape)

        def dtype_of(name: str) -> str | None:
            found = weights.get(name) or types.get(name)
            return found.dtype if found else None

        def scratch(node: Node, _: Graph) -> Scratch:
            found = scratch_of(node, shape_of, dtype_of, weights.__contains__, self.threads, block, self.model.opset)
            return NOTHING if isinstance(found, Unknown) else found

        def size(tensor: Tensor, maker: Node | None) -> int:
            if isinstance(tensor.size, Unknown):
                return 0
            total, shape = int(str(tensor.size)), shape_of(tensor.name)
            if maker is None or not shape or not total:
                return total
            before, after = 1, 1
            for old, new in zip(shape, allocated_shape(maker, shape, block), strict=True):
                before, after = before * old, after * new
            return total * after // before

        return runs_of(graph, reuse=on, pattern=on, size=size, scratch=scratch)


def predict(
    model: str | PathLike[str] | Model,
    *,
    mode: str = "stock",
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    level: str = "all",
    time_limit: float = 20.0,
) -> Prediction:
    """What will a process that loads and runs this model take? `predict("m.onnx", mode="tuned", dims={"batch": 8})`.

    Nothing is run: ONNX Runtime's optimizer, allocator and loading are followed on paper. The process is one of Python,
    NumPy and ONNX Runtime; what it takes by itself is measured once per environment, and kept. `external`, `mapped` and
    `prepacked` are predicted for the package that `pack` would make of the model; of a package, what it runs itself.
    """
    check_predictable(mode)
    question = Question(
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        dims=dims or {},
        level=level,
        time_limit=time_limit,
    )
    if isinstance(model, Model):
        subject = Subject.of(model, question, threads)
    else:
        subject = Subject.read(Path(model), question, threads, mode=mode)
    forecast = forecast_mode(subject, mode, calibration())
    return Prediction(
        **{field.name: getattr(forecast, field.name) for field in fields(forecast)},
        model=model.name if isinstance(model, Model) else Path(model).name,
        threads=subject.threads,
        inputs=subject.input_shapes,
        assumed=dict(subject.assumed),
        unknown_tensors=unknown_tensors(subject.graph),
    )


def check_predictable(mode: str) -> None:
    """An error for a mode that does not exist or is not predicted."""
    if find_mode(mode).name not in MODES:
        raise UsageError(f"mode '{mode}' cannot be predicted", hint=f"predicted are {', '.join(MODES)}; measure it")


def forecast_mode(subject: Subject, mode: str, environment: Calibration) -> Forecast:
    """One mode of a model at given sizes."""
    base, form = environment.of(mode), subject.loaded_as if mode == "planned" and subject.saved else mode
    heap, at_load = loaded(subject.weights, form, subject.model.file_size)
    mapped = 0 if form in INLINE else mapped_bytes(subject.weights, subject.graph, form, environment.around)
    if mode != "stock":
        heap.trim()
    kept = heap.resident
    in_arena = () if form == "mapped" else packed_in_arena(subject.graph)
    spare = heap.spare
    if mode == "planned":
        runs = Growth(arena=(plan := planned_growth(subject.runs_in(form))), written=plan)
        kept += _PLANNER
    else:
        runs = arena_growth(subject.runs_in(mode), heap, in_arena)
    fixed = base.imported + base.loading + subject.input_bytes
    before_runs = fixed + kept
    certain = runs.beside + mapped + base.running
    growth = certain + runs.arena
    return Forecast(
        mode=mode,
        load_peak=fixed + max(at_load, kept),
        loaded=before_runs,
        run_growth=growth,
        least_growth=certain + min(runs.arena, max(0, runs.written - spare)),
        most_growth=certain + runs.written,
        peak=max(fixed + at_load, before_runs + growth),
        shared=base.shared + base.loading + base.running + mapped,
        parts=_parts(subject, base, mode, form, kept=kept, arena=runs.arena + runs.beside, mapped=mapped),
    )


def _numbers(shape: Sequence[object]) -> tuple[int, ...]:
    return tuple(int(str(dim)) for dim in shape)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What runs add, in bytes."""

    arena: int
    """Pages that they write to, without those that the heap had kept."""
    written: int
    """The same with those."""
    beside: int = 0
    """What tables, and kernels that go past the arena, add to the heap."""


def arena_growth(runs: Runs, heap: Heap, packed: Sequence[int] = ()) -> Growth:
    """What ONNX Runtime's arena and what lies beside it take in all runs.

    In the last run all that the arena will ever hold is there already, whatever a kernel takes beside it.
    """

    def take(size: int, table: int) -> tuple[int, bool]:
        address, resident = heap.reserve(size)
        heap.allocate(table)
        return (address if address >= 0 else address + HIGHEST), resident

    before, arena = heap.resident, Arena(take)
    heap.fragments = _CACHED
    for size in packed:
        arena.allocate(size)
    for requests in (runs.first, *[runs.later] * _STEADY):
        heap.peak = heap.resident
        for left in _play(requests, arena, heap):
            arena.free(left)
    return Growth(arena=arena.resident, written=arena.written, beside=heap.peak - before)


def planned_growth(runs: Runs) -> int:
    """What a planned session takes to run: all that is alive at once, or its plan with the small outputs beside it.

    What kernels take past any arena comes on top.
    """
    first = runs.first
    return max(first.peak, first.inner_peak + first.beside_bytes) + first.peak_of("reserved") + _RECORDING


def _play(requests: Requests, arena: Arena, heap: Heap) -> list[int | None]:
    """Make the calls; the addresses of what is left, which is the caller's."""
    at: dict[int, int | None] = {}
    beside: dict[int, int] = {}
    for event in requests:
        key, buffer = id(event.buffer), event.buffer
        if buffer.kind == "reserved":
            if event.freed:
                heap.free(beside.pop(key))
            else:
                beside[key] = heap.allocate(buffer.size, aligned=True)
        elif event.freed:
            arena.free(at.pop(key))
        else:
            at[key] = arena.allocate(buffer.size)
    return list(at.values())


def _parts(
    subject: Subject, base: Process, mode: str, form: str, *, kept: int, arena: int, mapped: int
) -> tuple[Part, ...]:
    """What is resident after the runs, by what it is."""
    weights, plain = subject.weights, (subject.plain_runs if form in INLINE else subject.packaged_runs).first
    packed = 0 if form == "mapped" else sum(weights.packed.values())
    unpacked = sum(weight.size or 0 for weight in weights.run if weight.name not in weights.packed)
    structures = weights.structures + (_PLANNER if mode == "planned" else 0)
    in_heap = unpacked + packed if form in INLINE else packed if form == "external" else 0
    activations = plain.peak_of("activation")
    sizes = {
        "libraries": base.shared + base.loading + base.running,
        "interpreter": base.imported - base.shared,
        "inputs": subject.input_bytes,
        "weights": unpacked if form in INLINE else mapped - (packed if form == "prepacked" else 0),
        "packed copies": packed,
        "session": structures,
        "kept by the heap": max(0, kept - in_heap - structures),
        "activations": activations,
        "scratch": max(0, plain.inner_peak - activations) + plain.peak_of("reserved"),
    }
    if mode == "stock":
        stock = subject.stock_runs
        sizes["reuse"] = max(0, stock.first.inner_peak - plain.inner_peak)
        sizes["pattern"] = stock.later.peak_of("pattern")
    sizes["outputs"] = plain.output_bytes
    # What runs take may lie where the heap kept memory of the loading: then the parts are smaller than their sizes.
    room = arena
    for name in ("activations", "outputs", "scratch", "pattern", "reuse"):
        if name in sizes:
            sizes[name] = min(sizes[name], room)
            room -= sizes[name]
    sizes["arena slack"] = room
    return tuple(Part(name=name, bytes=sizes[name]) for name in PARTS if sizes.get(name, 0) > 0)
