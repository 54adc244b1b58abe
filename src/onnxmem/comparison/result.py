"""What one candidate took: the figures of its trials, and where each MiB of its peak came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.comparison.figure import Figure, Known, figure, plain, spread
from onnxmem.comparison.sizes import Size
from onnxmem.comparison.trials import CandidateTrials
from onnxmem.measurement.protocol import FIRST_RUN, IMPORT, INPUTS, LOAD, RUNS, START, series_phase
from onnxmem.measurement.trial import Trial
from onnxmem.unknown import Bytes, Unknown, combine, subtract


@dataclass(frozen=True)
class AtSize:
    """One candidate at one input size."""

    size: Size
    peak: Known
    """Peak RSS of the whole process."""
    own_peak: Known
    """The same − RSS before the model was loaded: without interpreter, framework and inputs."""
    run_growth: Known
    latency: Known
    """Seconds of a steady run; one sample for each process, the median of its runs."""
    first_run: Known
    failure: str | None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        shapes = {name: list(shape) for name, shape in self.size.shapes.items()}
        figures = {
            "peak_rss_bytes": self.peak,
            "own_peak_bytes": self.own_peak,
            "run_growth_bytes": self.run_growth,
            "latency_seconds": self.latency,
            "first_run_seconds": self.first_run,
        }
        return {
            "size": self.size.label,
            "shape": next(iter(shapes.values()), []),
            "shapes": shapes,
            "elements": self.size.elements,
            **figures_document(figures),
            "failure": self.failure,
        }


@dataclass(frozen=True)
class Part:
    """One line of the breakdown: by how much this step raised the most that the process ever took."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Result:
    """One candidate."""

    name: str
    kind: str
    mode: str | None
    framework: str
    file_bytes: int | Unknown
    import_growth: Known
    """RSS after importing the framework − RSS before."""
    import_seconds: Known
    load_growth: Known
    """Peak RSS while loading − RSS before it."""
    load_seconds: Known
    total_rss: Known
    """RSS when the model is loaded and has not run."""
    load_peak: Known
    cold_start: Known
    """Seconds from starting the process to the first answer, at the smallest size."""
    at: tuple[AtSize, ...]
    breakdown: tuple[Part, ...]
    failure: str | None

    @property
    def ok(self) -> bool:
        """Whether it ran at every size."""
        return self.failure is None and all(each.failure is None for each in self.at)

    @property
    def why_not(self) -> str:
        """Why it did not."""
        return self.failure or next((f"at {e.size.label}: {e.failure}" for e in self.at if e.failure), "")

    def document(self) -> dict[str, Any]:
        """As JSON: medians, then their spreads."""
        figures = {
            "import_growth_bytes": self.import_growth,
            "import_seconds": self.import_seconds,
            "load_seconds": self.load_seconds,
            "load_growth_bytes": self.load_growth,
            "total_rss_bytes": self.total_rss,
            "cold_start_seconds": self.cold_start,
        }
        return {
            "name": self.name,
            "kind": self.kind,
            "mode": self.mode,
            "framework": self.framework,
            "file_bytes": None if isinstance(self.file_bytes, Unknown) else self.file_bytes,
            **figures_document(figures, {"file_bytes": self.file_bytes}),
            "inputs": [each.document() for each in self.at],
            "breakdown": [{"name": part.name, "bytes": part.bytes} for part in self.breakdown],
            "ok": self.ok,
            "failure": self.failure,
        }


def figures_document(figures: dict[str, Known], more: dict[str, int | Unknown] | None = None) -> dict[str, Any]:
    """Medians by name, their spreads and samples, and why some are missing."""
    everything = {**figures, **(more or {})}
    return {
        **{name: plain(value) for name, value in figures.items()},
        "spread": {name: spread(value) for name, value in figures.items() if isinstance(value, Figure)},
        "samples": {name: list(value.samples) for name, value in figures.items() if isinstance(value, Figure)},
        "unknown": {name: value.reason for name, value in everything.items() if isinstance(value, Unknown)},
    }


def result_of(own: CandidateTrials, sizes: Sequence[Size]) -> Result:
    """The figures of one candidate's trials."""
    trials = [trial for size in sizes for trial in own.by_size.get(size.label, ())]
    # Inputs are there before the model is: with the smallest ones, the total is nearly the model's alone.
    first = next((own.by_size[size.label] for size in sizes if size.label in own.by_size), [])
    why = own.failure or next(iter(own.failures.values()), "it did not run")
    failure = own.failure or (why if not trials else None)
    return Result(
        own.candidate.name,
        own.candidate.kind,
        own.candidate.mode if own.candidate.kind == "onnx" else None,
        _framework(trials),
        _file_bytes(own),
        figure((_imported(trial) for trial in trials), why),
        figure((_seconds(trial, IMPORT) for trial in trials), why),
        figure((trial.growth(LOAD) for trial in trials), why),
        figure((_seconds(trial, LOAD) for trial in trials), why),
        figure((_rss(trial, LOAD) for trial in first), why),
        figure((_peak_in(trial, LOAD) for trial in first), why),
        figure((_cold_start(trial) for trial in first), why),
        tuple(_at(own, size) for size in sizes),
        _breakdown(own, sizes),
        failure,
    )


def _at(own: CandidateTrials, size: Size) -> AtSize:
    trials = own.by_size.get(size.label, [])
    failure = own.failure or own.failures.get(size.label)
    why = failure or "it did not run"
    return AtSize(
        size,
        figure((trial.highest for trial in trials), why),
        figure((_own_peak(trial) for trial in trials), why),
        figure((trial.growth(*RUNS) for trial in trials), why),
        figure((trial.latency for trial in trials), why),
        figure((trial.first_run for trial in trials), why),
        failure,
    )


def _own_peak(trial: Trial) -> Bytes:
    names = [phase.name for phase in trial.phases]
    return trial.growth(LOAD, *names[names.index(LOAD) + 1 :]) if LOAD in names else Unknown("it did not load")


def _imported(trial: Trial) -> Bytes:
    phase = trial.phase(IMPORT)
    if phase is None:
        return Unknown("nothing was imported")
    return combine(lambda grown: max(0, grown), subtract(phase.reading.rss, phase.before))


def _rss(trial: Trial, name: str) -> Bytes | None:
    phase = trial.phase(name)
    return phase.reading.rss if phase else None


def _peak_in(trial: Trial, name: str) -> Bytes | None:
    phase = trial.phase(name)
    return phase.peak.rss if phase else None


def _seconds(trial: Trial, name: str) -> float | None:
    phase = trial.phase(name)
    return phase.seconds if phase else None


def _cold_start(trial: Trial) -> float | None:
    parts = [_seconds(trial, name) for name in (START, IMPORT, LOAD, FIRST_RUN)]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _framework(trials: Sequence[Trial]) -> str:
    names = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
    framework = trials[0].framework if trials else None
    return f"{names[framework]} {trials[0].framework_version}" if framework else ""


def _file_bytes(own: CandidateTrials) -> int | Unknown:
    if not own.files or not any(file.exists() for file in own.files):
        return Unknown("it has no file")
    try:
        found = [each for file in own.files for each in (file.rglob("*") if file.is_dir() else (file,))]
        return sum(file.stat().st_size for file in found if file.is_file())
    except OSError as error:
        return Unknown(error.strerror or "it cannot be read")


def _breakdown(own: CandidateTrials, sizes: Sequence[Size]) -> tuple[Part, ...]:
    """How the peak came about in one process that ran all sizes: the trial with the median peak."""
    alone = own.by_size.get(sizes[0].label, []) if sizes else []
    trials = own.series or alone if len(sizes) > 1 else alone
    known = [(peak, number) for number, trial in enumerate(trials) if isinstance(peak := trial.highest, int)]
    if not known:
        return ()
    trial = trials[sorted(known)[len(known) // 2][1]]
    parts: list[Part] = []
    mark = 0
    for name, phases in _steps(trial, sizes):
        peaks = [p.peak.rss for each in phases if (p := trial.phase(each)) and isinstance(p.peak.rss, int)]
        raised = max([mark, *peaks])
        parts.append(Part(name, raised - mark))
        mark = raised
    return (*parts, Part("peak", mark))


def _steps(trial: Trial, sizes: Sequence[Size]) -> list[tuple[str, tuple[str, ...]]]:
    steps: list[tuple[str, tuple[str, ...]]] = [
        ("initial", (START,)),
        ("import", (IMPORT, INPUTS)),
        ("load", (LOAD,)),
    ]
    if trial.phase(FIRST_RUN):
        return [*steps, (f"inference {sizes[0].label}", RUNS)]
    return [*steps, *((f"inference {size.label}", (series_phase(size.label),)) for size in sizes)]
