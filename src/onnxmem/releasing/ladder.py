"""What gives the memory of a model back? Each way of releasing it is tried in turn in a fresh process, measured,
and explained in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import Any, ClassVar

from onnxmem.documents import Record, inlined, stored
from onnxmem.environment import read_environment
from onnxmem.errors import ModelError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.device import HOST, check_device
from onnxmem.measurement.feeds import Fed, make_feeds
from onnxmem.measurement.measure import phase_progress, with_hint, worker_task
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.protocol import INPUTS, LOAD, STEADY_RUNS, Released
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.measurement.smaps import Kind
from onnxmem.measurement.trial import Phase, Trial, run_trial
from onnxmem.progress import OnProgress
from onnxmem.releasing.rungs import CLOSE, COLLECT, DROP, EXIT, RUNGS, SHRINK, TRIM, UNMAP
from onnxmem.result import Result
from onnxmem.session.modes import Setting
from onnxmem.units import format_bytes, format_count, format_percent
from onnxmem.unknown import Bytes, Unknown, add, combine, subtract

NOTHING = Unknown("the model took no memory that could be measured")
# Less than this part of what the model brought is not worth a word.
_WORTH_A_WORD = 0.005

_HOW = {
    DROP: "dropping its outputs",
    COLLECT: "collecting garbage",
    SHRINK: "shrinking the arena (the session still there)",
    CLOSE: "closing the session",
    TRIM: "trimming the allocator (the C library keeps what a session frees)",
    UNMAP: "dropping maps of its weights",
}
_ALONE = {DROP: "dropping references", COLLECT: "collecting garbage", SHRINK: "shrinking the arena"}
_PLACES = {
    "model files": "in the model's files, still mapped",
    "heap": "in the heap (which the next model uses again)",
    "arenas": "in anonymous mappings",
    "stacks": "in stacks of threads",
    "shared memory": "in shared memory",
}


@dataclass(frozen=True, kw_only=True)
class Step(Record):
    """One rung: what the process had when it was done, and what it gave back."""

    name: str
    reading: Reading = inlined()
    freed: Bytes = stored("freed_bytes")
    """RSS less than after the step before; negative if it grew."""
    freed_anon: Bytes = stored("freed_anon_bytes")
    freed_file: Bytes = stored("freed_file_bytes")
    made_of: tuple[Kind, ...] | Unknown
    seconds: float
    device: Bytes | None = stored("device_bytes", default=None)
    """What the process has on the device then; None if it runs on the CPU."""

    @property
    def model_mappings(self) -> int | Unknown:
        """How many mappings of the model's files there are."""
        return combine(lambda kinds: _model_files(kinds).mappings, self.made_of)

    @property
    def model_mapped(self) -> Bytes:
        """How much of the model's files is resident through them."""
        return combine(lambda kinds: _model_files(kinds).rss - _model_files(kinds).anon, self.made_of)

    @property
    def own(self) -> Bytes:
        """Memory that a model can bring: anonymous, and mapped from its files. Pages of libraries are not counted: they
        are the system's cache of a file, shared, and dropped when need be."""
        return add(self.reading.anon, self.model_mapped)

    def derived(self) -> Mapping[str, Any]:
        """How the model's files are mapped."""
        return {"model_mappings": self.model_mappings, "model_mapped_bytes": self.model_mapped}


@dataclass(frozen=True, kw_only=True)
class Ladder(Result):
    """A model, loaded, run and released step by step in one process."""

    SCHEMA: ClassVar[str] = "onnxmem.release/1"

    model: str
    file_bytes: int
    scenario: Scenario
    fed: Fed = inlined()
    before: Step
    """With ONNX Runtime imported and the inputs ready, before the model."""
    loaded: Step
    full: Step
    """After the runs: what there is to give back."""
    steps: tuple[Step, ...]
    """The rungs, and last the end of the process."""
    released: Released
    """What the steps met with."""

    @property
    def last(self) -> Step:
        """The last rung in the process."""
        return self.steps[-2]

    @property
    def brought(self) -> Bytes:
        """What the model brought: anonymous memory (weights, packed weights, arenas) and mapped pages of its files."""
        return subtract(self.full.own, self.before.own)

    @property
    def remaining(self) -> Bytes:
        """Of it, what is still there after the last rung, before the process ends."""
        return subtract(self.last.own, self.before.own)

    @property
    def returned(self) -> Bytes:
        """Of it, what came back: brought − remaining."""
        return subtract(self.brought, self.remaining)

    @property
    def released_fraction(self) -> float | Unknown:
        """returned ÷ brought."""
        return _part(self.returned, self.brought)

    @property
    def growth_anon(self) -> Bytes:
        """The anonymous part of what the model brought."""
        return subtract(self.full.reading.anon, self.before.reading.anon)

    @property
    def left_anon(self) -> Bytes:
        """Of it, what remains."""
        return subtract(self.last.reading.anon, self.before.reading.anon)

    @property
    def released_fraction_anon(self) -> float | Unknown:
        """The part of anonymous memory that came back."""
        return _part(subtract(self.growth_anon, self.left_anon), self.growth_anon)

    @property
    def growth(self) -> Bytes:
        """Growth of resident memory (RSS), touched pages of libraries included."""
        return subtract(self.full.reading.rss, self.before.reading.rss)

    @property
    def left(self) -> Bytes:
        """Of it, what remains."""
        return subtract(self.last.reading.rss, self.before.reading.rss)

    def freed_by(self, step: Step) -> Bytes:
        """What a step gave back of what the model brought: all steps but the last add up to `returned`."""
        place = self.steps.index(step)
        return subtract(self.steps[place - 1].own if place else self.full.own, step.own)

    @property
    def left_by_kind(self) -> dict[str, int]:
        """Where the rest is: resident bytes more than before the model, by kind of memory; the largest first."""
        before, after = self.before.made_of, self.last.made_of
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            return {}
        had = {kind.name: kind.rss for kind in before}
        more = {kind.name: kind.rss - had[kind.name] for kind in after}
        return {name: size for name, size in sorted(more.items(), key=lambda item: -item[1]) if size > 0}

    def derived(self) -> Mapping[str, Any]:
        """What was brought, returned and remains, and the sentences about it."""
        return {
            "brought_bytes": self.brought,
            "returned_bytes": self.returned,
            "remaining_bytes": self.remaining,
            "released_fraction": self.released_fraction,
            "growth_anon_bytes": self.growth_anon,
            "left_anon_bytes": self.left_anon,
            "released_fraction_anon": self.released_fraction_anon,
            "growth_bytes": self.growth,
            "left_bytes": self.left,
            "left_by_kind": self.left_by_kind,
            "explanation": (*explain_device(self), *explain_release(self)),
        }


def release_ladder(
    model: str | PathLike[str],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    mode: str | None = None,
    runs: int = 3,
    threads: int | None = None,
    device: str = HOST,
    options: Mapping[str, Setting] | None = None,
    config: Mapping[str, str] | None = None,
    time_limit: float = 600.0,
    memory_limit: int | None = None,
    on_progress: OnProgress | None = None,
) -> Ladder:
    """Load and run a model in a fresh process, then release it step by step: `release_ladder("model.onnx", runs=3)`.

    On another `device` (`cuda`, `cuda:1`) what each step gives back there is measured, too.
    """
    scenario = Scenario.of(locals())
    check_device(scenario.device)
    signature = read_signature(scenario.model)
    feeds = make_feeds(signature, scenario)
    with temporary_folder() as folder:
        trial = run_trial(
            worker_task(scenario, feeds.save(folder)),
            timeout=scenario.time_limit,
            memory_limit=scenario.memory_limit,
            model_files=signature.files,
            on_phase=phase_progress(on_progress),
            worker="onnxmem.releasing.worker",
        )
    if not trial.verdict.ok or trial.released is None:
        verdict = with_hint(trial, feeds.described()).verdict
        raise ModelError(f"the model was not loaded and run: {verdict}", hint=verdict.hint)
    before, loaded, full, *rungs = _steps(trial, (INPUTS, LOAD, STEADY_RUNS, *RUNGS, EXIT))
    return Ladder(
        model=scenario.model.name,
        file_bytes=signature.file_size,
        scenario=scenario,
        fed=feeds.described(),
        before=before,
        loaded=loaded,
        full=full,
        steps=tuple(rungs),
        released=trial.released,
        environment=read_environment(trial.onnxruntime),
    )


def _steps(trial: Trial, names: tuple[str, ...]) -> list[Step]:
    steps: list[Step] = []
    for name in names:
        phase = trial.phase(name)
        assert phase is not None  # the verdict is ok
        steps.append(_step(phase, steps[-1].reading if steps else phase.reading))
    return steps


def _step(phase: Phase, before: Reading) -> Step:
    now = phase.reading
    return Step(
        name=phase.name,
        reading=now,
        freed=subtract(before.rss, now.rss),
        freed_anon=subtract(before.anon, now.anon),
        freed_file=subtract(before.file, now.file),
        made_of=phase.made_of,
        seconds=phase.seconds,
        device=phase.device,
    )


def _model_files(kinds: tuple[Kind, ...]) -> Kind:
    return next(kind for kind in kinds if kind.name == "model files")


def _part(returned: Bytes, brought: Bytes) -> float | Unknown:
    return combine(lambda part, whole: part / whole if whole > 0 else NOTHING, returned, brought)


def explain_device(ladder: Ladder) -> tuple[str, ...]:
    """What was freed on the device, and by what; nothing if it ran on the CPU."""
    if ladder.scenario.device == HOST:
        return ()
    sizes = [step.device for step in (ladder.full, *ladder.steps[:-1])]
    if not all(isinstance(size, int) for size in sizes):
        return (f"What {ladder.model} took on the device cannot be told here.",)
    known = [size for size in sizes if isinstance(size, int)]
    freed = [(step.name, before - after) for step, (before, after) in zip(ladder.steps, pairwise(known), strict=False)]
    worth = [f"{_HOW[name]} freed {format_bytes(size)}" for name, size in freed if size > known[0] * _WORTH_A_WORD]
    taken, back, left = map(format_bytes, (known[0], max(0, known[0] - known[-1]), known[-1]))
    return (
        f"On the device {taken} were taken, and {back} came back without ending the process; {left} remain until it "
        "ends: CUDA's context, and what its libraries keep.",
        _sentence(_listed(worth) if worth else "no step freed anything there"),
    )


def explain_release(ladder: Ladder) -> tuple[str, ...]:
    """What was freed by what, what remains and where, and what to do: sentences about this model."""
    brought, returned = ladder.brought, ladder.returned
    if isinstance(brought, Unknown) or isinstance(returned, Unknown):
        reason = brought.reason if isinstance(brought, Unknown) else getattr(returned, "reason", "")
        return (f"What {ladder.model} took cannot be told here: {reason}.",)
    if brought <= 0:
        return (f"{ladder.model} took no memory that could be measured.",)
    answer = (
        f"{format_percent(returned / brought)} of the {format_bytes(brought)} that {ladder.model} brought came back"
    )
    remains = f"; {format_bytes(brought - returned)} remain{_where(ladder)}" if returned < brought else ""
    return (
        f"{answer} without ending the process{remains}.",
        _freed(ladder, brought),
        *_remarks(ladder),
        *_libraries(ladder),
        _exit(ladder),
    )


def _freed(ladder: Ladder, brought: int) -> str:
    some, none = [], []
    for step in ladder.steps[:-1]:
        freed = ladder.freed_by(step)
        if isinstance(freed, int) and freed >= brought * _WORTH_A_WORD:
            some.append(f"{_HOW[step.name]} freed {format_bytes(freed)}")
        elif step.name in _ALONE:
            none.append(_ALONE[step.name])
    sentences = [_listed(some)] if some else ["no step freed anything"]
    if some and none:
        sentences.append(f"{_listed(none)} freed nothing")
    return " ".join(map(_sentence, sentences))


def _remarks(ladder: Ladder) -> list[str]:
    remarks = []
    closed = next(step for step in ladder.steps if step.name == CLOSE)
    before, after = ladder.full.model_mappings, closed.model_mappings
    if isinstance(before, int) and isinstance(after, int) and before > after:
        maps = format_count(before, "mapping")
        remarks.append(f"Closing the session removed its {maps} of the model's files: no process had to end for that.")
    elif before == 0:
        remarks.append("None of its files was mapped while it was in use: its weights were in anonymous memory.")
    if ladder.released.held_by:
        holders = ", ".join(ladder.released.held_by)
        remarks.append(f"The session could not be destroyed: it is held by {holders}.")
    if isinstance(ladder.released.trim, str):
        remarks.append(f"The allocator could not be trimmed: {ladder.released.trim}.")
    if ladder.released.shrinkage:
        remarks.append("The arena could not be shrunk: ONNX Runtime refused, as it does for a session without one.")
    return remarks


def _where(ladder: Ladder) -> str:
    kind = next((kind for kind in ladder.left_by_kind if kind in _PLACES), None)
    return f", mostly {_PLACES[kind]}" if kind else ""


def _libraries(ladder: Ladder) -> list[str]:
    """What RSS counts beside: pages of libraries, which no release brings back."""
    pages: Bytes = subtract(ladder.left, ladder.remaining)
    if isinstance(pages, Unknown) or pages < 2**18:
        return []
    return [f"RSS also counts {format_bytes(pages)} of library pages that were touched: a cache of the system's."]


def _exit(ladder: Ladder) -> str:
    rss = ladder.last.reading.rss
    of = "" if isinstance(rss, Unknown) else f": {format_bytes(rss)}, Python and ONNX Runtime included"
    return f"Ending the process frees everything{of}."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
