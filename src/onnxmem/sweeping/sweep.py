"""Many models, many sizes, many modes: the product is worked out cell by cell, and nothing is worked out twice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.history.revision import read_commit
from onnxmem.measurement.device import HOST, device_number
from onnxmem.progress import OnProgress, Progress
from onnxmem.result import command_line
from onnxmem.session.modes import Setting
from onnxmem.sweeping.cell import Cell, Stage
from onnxmem.sweeping.cells import Cells, make_cells
from onnxmem.sweeping.embedded import Embedded
from onnxmem.sweeping.engine import Engine, Job
from onnxmem.sweeping.needs import memory_needs
from onnxmem.sweeping.place import gpu_name
from onnxmem.sweeping.read import read_sweep
from onnxmem.sweeping.spec import STORE, Spec, expand, make_group, read_spec
from onnxmem.sweeping.store import begin_sweep, check_store, expected_seconds, finish, finished_questions
from onnxmem.sweeping.sweep_result import PlannedCell, Sweep, SweepPlan
from onnxmem.units import format_duration, format_seconds

ENGINES = ("embedded", "ray")
RETRIES = 2
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where cells are worked out, and how many at a time."""

    engine: str = "embedded"
    address: str | None = None
    """Of a Ray cluster; without one it is started here."""
    parallel: int = 1
    """Measurements at a time on one machine; each has cores of its own."""
    retries: int = RETRIES
    """How often a cell is tried again whose worker or node was lost."""
    each_processor: bool = False
    """Every kind of processor of a cluster answers; otherwise any of them."""

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"there is no engine '{self.engine}'", hint=f"known: {', '.join(ENGINES)}")
        if self.engine != "ray" and (self.address is not None or self.each_processor):
            flag = "--address" if self.address is not None else "--each-processor"
            raise UsageError(f"{flag} is about a cluster", hint="add --engine ray")
        if self.retries < 0:
            raise UsageError(f"retries must be at least 0; it is {self.retries}")

    def open(self) -> Engine:
        """The engine; a cluster is reached here."""
        if self.engine == "embedded":
            return Embedded(self.parallel, self.retries)
        from onnxmem.sweeping.cluster import Cluster  # noqa: PLC0415  with Ray

        return Cluster(self.address, self.parallel, self.retries)


def sweep(
    models: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    verbs: Sequence[str] = ("measure",),
    modes: Sequence[str] | None = None,
    dims: Mapping[str, Sequence[int]] | None = None,
    shapes: Sequence[Shapes] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    runs: int = 5,
    repeat: int = 1,
    threads: int | None = None,
    inputs: Sequence[str | os.PathLike[str]] | None = None,
    device: str = HOST,
    options: Mapping[str, Setting] | None = None,
    config: Mapping[str, str] | None = None,
    memory_limit: int | None = None,
    workers: Sequence[int] = (1, 2),
    time_limit: float | None = None,
    store: str | os.PathLike[str] | None = None,
    engine: str = "embedded",
    address: str | None = None,
    parallel: int = 1,
    retries: int = RETRIES,
    each_processor: bool = False,
    retry_failed: bool = False,
    on_progress: OnProgress | None = None,
) -> Sweep:
    """Ask much of many models: `sweep(["a.onnx", "b.onnx"], modes=("stock", "planned"), dims={"batch": (1, 4, 16)})`.

    `models` are files, packages and patterns, or one .toml file that says all of it (docs/sweeps.md). Each cell of the
    product is worked out by itself, and kept in the SQLite file `store`: those that are finished there are not
    repeated. Failures are rows with reasons; with `retry_failed` they are tried again. `time_limit` are the seconds of
    a cell, and `inputs` .npz files of arrays to feed, one for each size. The `engine` is this machine ("embedded": one
    worker for each core, and measurements one at a time, or `parallel` of them with cores of their own), or a "ray"
    cluster at an `address`.
    """
    given: dict[str, Any] = {"verbs": tuple(verbs), "seed": seed, "runs": runs, "repeat": repeat, "threads": threads}
    given |= {"memory_limit": memory_limit, "workers": tuple(workers), "time_limit": time_limit}
    named = {"ranges": ranges, "options": options, "config": config}
    given |= {name: dict(value) for name, value in named.items() if value is not None}
    given |= {} if modes is None else {"modes": tuple(modes)}
    given |= {} if shapes is None else {"shapes": tuple(shapes)}
    given |= {"inputs": tuple(map(Path, inputs or ())), "device": device}
    given["dims"] = {name: tuple(numbers) for name, numbers in (dims or {}).items()}
    listed = [models] if isinstance(models, str | os.PathLike) else list(models)
    spec = make_spec([os.fspath(model) for model in listed], None if store is None else Path(store), given)
    where = Where(engine=engine, address=address, parallel=parallel, retries=retries, each_processor=each_processor)
    return run_sweep(spec, where, retry_failed=retry_failed, on_progress=on_progress)


def make_spec(models: Sequence[str], store: Path | None, given: Mapping[str, Any]) -> Spec:
    """What was asked for: by one .toml file, or by models and what is `given` for all of them."""
    if len(models) == 1 and models[0].endswith(".toml"):
        spec = read_spec(Path(models[0]))
        return spec if store is None else Spec(groups=spec.groups, store=store)
    if not models:
        raise UsageError("there is nothing to sweep", hint="name models, or a .toml file: docs/sweeps.md")
    group = make_group(expand(models, Path()), **given)
    return Spec(groups=(group,), store=Path(STORE) if store is None else store)


def _stages(cells: Iterable[Cell]) -> list[Stage]:
    """In the order of work: what runs nothing first, on all cores; measurements have the machine to themselves."""
    return sorted({cell.stage for cell in cells})


def plan_sweep(spec: Spec, where: Where, on_progress: OnProgress | None = None) -> SweepPlan:
    """What would be done, and how long would it take? Nothing is."""
    _check(spec, where)
    cells = _look(spec, on_progress)
    with where.open() as engine:
        stages = _stages(cells.cells)
        done = {stage: finished_questions(spec.store, engine.processors(stage)) for stage in stages}
        workers = {stage: engine.workers(stage) for stage in (Stage(False), Stage(True), *stages)}
    seconds = expected_seconds(spec.store, cells.cells)
    planned = [
        PlannedCell(
            verb=cell.verb,
            model=cell.name,
            mode=cell.how,
            size=cell.size,
            finished=cell.question in done[cell.stage],
            seconds=known,
        )
        for cell, known in zip(cells.cells, seconds, strict=True)
    ]
    left = [(each.seconds, cell) for each, cell in zip(planned, cells.cells, strict=True) if not each.finished]
    total: float | None = None
    if all(known is not None for known, _ in left):
        total = sum((known or 0.0) / workers[cell.stage] for known, cell in left)
    return SweepPlan(
        file=spec.store,
        cells=tuple(planned),
        workers=workers[Stage(False)],
        parallel=workers[Stage(True)],
        seconds=total,
        notes=cells.notes,
    )


def run_sweep(spec: Spec, where: Where, *, retry_failed: bool = False, on_progress: OnProgress | None = None) -> Sweep:
    """Work out all cells that are not finished. Each is on the disk before the next answer is looked at."""
    _check(spec, where)
    cells, commit = _look(spec, on_progress), read_commit()
    expected = dict(
        zip((cell.question for cell in cells.cells), expected_seconds(spec.store, cells.cells), strict=True)
    )
    with where.open() as engine:
        jobs = begin_sweep(
            spec.store,
            cells.cells,
            processors={stage: engine.processors(stage) for stage in _stages(cells.cells)},
            each=where.each_processor or where.engine == "embedded",
            engine=engine.name,
            command=command_line(),
            commit=commit,
            again=retry_failed,
        )
        pace = _Pace([job.cell for job in jobs], expected, on_progress)
        for stage in _stages(job.cell for job in jobs):
            some = _weighed([job for job in jobs if job.cell.stage == stage], engine.memory(stage), on_progress)
            with closing(engine.run(some, stage, pace.begin)) as answers:
                for job, outcome in answers:
                    if outcome.no_room:
                        hint = "make room, and give the same command again: it goes on from here"
                        raise OnnxmemError(f"no room is left on '{outcome.node}': {outcome.message}", hint=hint)
                    finish(spec.store, job, outcome, commit)
                    pace.end(job.cell, outcome.seconds)
    return read_sweep(spec.store, notes=cells.notes)


def _check(spec: Spec, where: Where) -> None:
    """What is wrong with the store or the machine: asked before models are read, which takes a while."""
    check_store(spec.store)
    for device in {group.settings.device for group in spec.groups}:
        gpu_name(device) if where.engine == "embedded" else device_number(device)


def _weighed(jobs: list[Job], room: int | None, on_progress: OnProgress | None) -> list[Job]:
    """The same, with what they need of a place that has `room` for them."""
    if room is None:
        return jobs
    said = on_progress or (lambda _: None)
    needs = memory_needs((job.cell for job in jobs), room, lambda name: said(Progress(f"estimating {name}")))
    return [replace(job, memory=needs[job.cell.question]) for job in jobs]


def _look(spec: Spec, on_progress: OnProgress | None) -> Cells:
    paths = list(dict.fromkeys(path for group in spec.groups for path in group.models))
    seen = 0

    def on_model(path: Path) -> None:
        nonlocal seen
        if on_progress:
            on_progress(Progress(f"reading {path.name}", seen, len(paths)))
        seen += 1

    return make_cells(spec, on_model)


@dataclass
class _Pace:
    """How fast it goes, and what is left: cells count as much as earlier ones of their kind took."""

    cells: Sequence[Cell]
    expected: Mapping[str, float | None]
    on_progress: OnProgress | None
    _done: int = 0
    _weight: float = 0.0
    _slowest: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        known = [seconds for seconds in self.expected.values() if seconds]
        self._usual = sum(known) / len(known) if known else 1.0
        self._total = sum(map(self._weigh, self.cells))

    def _weigh(self, cell: Cell) -> float:
        return self.expected.get(cell.question) or self._usual

    def begin(self, job: Job) -> None:
        """Tell that a cell is begun."""
        if self.on_progress:
            self.on_progress(Progress(f"{self._speed()}{job.cell.label}", self._done, len(self.cells)))

    def end(self, cell: Cell, seconds: float) -> None:
        """Count a cell that is done, and took so long."""
        self._done += 1
        self._weight += self._weigh(cell)
        self._slowest = max(self._slowest, seconds)

    def _speed(self) -> str:
        elapsed = time.monotonic() - self._began
        if not self._done or elapsed < 1:
            return ""
        left = elapsed * (self._total - self._weight) / self._weight
        rate = f"{self._done / elapsed:.1f}/s" if self._done > elapsed / 2 else f"{60 * self._done / elapsed:.1f}/min"
        return f"{rate}, {format_duration(left)} left, slowest {format_seconds(self._slowest)}, "
