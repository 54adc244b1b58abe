"""What one candidate took: the figures of its lives, and where each MiB of its peak came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.comparison.figure import Figure, Known, figure, plain, spread
from onnxmem.comparison.sizes import Size
from onnxmem.comparison.trials import Lives
from onnxmem.measurement.measurement import growth
from onnxmem.measurement.trial import Trial
from onnxmem.unknown import Bytes, Unknown

_RUNS = ("first run", "steady runs")


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


def result_of(lives: Lives, sizes: Sequence[Size]) -> Result:
    """The figures of one candidate's lives."""
    trials = [trial for size in sizes for trial in lives.trials.get(size.label, ())]
    # Inputs are there before the model is: with the smallest ones, the total is nearly the model's alone.
    first = next((lives.trials[size.label] for size in sizes if size.label in lives.trials), [])
    why = lives.failure or next(iter(lives.failures.values()), "it did not run")
    failure = lives.failure or (why if not trials else None)
    return Result(
        lives.candidate.name,
        lives.candidate.kind,
        lives.candidate.mode if lives.candidate.kind == "onnx" else None,
        _framework(trials),
        _file_bytes(lives),
        figure((_imported(trial) for trial in trials), why),
        figure((_seconds(trial, "import") for trial in trials), why),
        figure((growth(trial, "load") for trial in trials), why),
        figure((_seconds(trial, "load") for trial in trials), why),
        figure((_rss(trial, "load") for trial in first), why),
        figure((_peak_in(trial, "load") for trial in first), why),
        figure((_cold_start(trial) for trial in first), why),
        tuple(_at(lives, size) for size in sizes),
        _breakdown(lives, sizes),
        failure,
    )


def _at(lives: Lives, size: Size) -> AtSize:
    trials = lives.trials.get(size.label, [])
    failure = lives.failure or lives.failures.get(size.label)
    why = failure or "it did not run"
    return AtSize(
        size,
        figure((highest(trial) for trial in trials), why),
        figure((_own_peak(trial) for trial in trials), why),
        figure((growth(trial, *_RUNS) for trial in trials), why),
        figure((_median(trial.latencies) for trial in trials), why),
        figure((trial.first_run for trial in trials), why),
        failure,
    )


def highest(trial: Trial) -> Bytes:
    """Peak RSS over all phases."""
    peaks = [phase.peak.rss for phase in trial.phases if isinstance(phase.peak.rss, int)]
    return max(peaks) if peaks else Unknown("no peak is known")


def _own_peak(trial: Trial) -> Bytes:
    names = [phase.name for phase in trial.phases]
    return growth(trial, "load", *names[names.index("load") + 1 :]) if "load" in names else Unknown("it did not load")


def _imported(trial: Trial) -> Bytes:
    phase = trial.phase("import")
    if phase is None:
        return Unknown("nothing was imported")
    after, before = phase.reading.rss, phase.before
    if isinstance(after, Unknown) or isinstance(before, Unknown):
        return after if isinstance(after, Unknown) else before
    return max(0, after - before)


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
    parts = [_seconds(trial, name) for name in ("start", "import", "load", "first run")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _median(values: Sequence[float]) -> float | None:
    return Figure(tuple(values)).median if values else None


def _framework(trials: Sequence[Trial]) -> str:
    facts = trials[0].facts if trials else {}
    if "torch" in facts:
        return f"PyTorch {facts['torch']}"
    return f"ONNX Runtime {facts['onnxruntime']}" if "onnxruntime" in facts else ""


def _file_bytes(lives: Lives) -> int | Unknown:
    if not lives.files or not any(file.exists() for file in lives.files):
        return Unknown("it has no file")
    try:
        found = [each for file in lives.files for each in (file.rglob("*") if file.is_dir() else (file,))]
        return sum(file.stat().st_size for file in found if file.is_file())
    except OSError as error:
        return Unknown(error.strerror or "it cannot be read")


def _breakdown(lives: Lives, sizes: Sequence[Size]) -> tuple[Part, ...]:
    """How the peak came about in one process that ran all sizes: the life with the median peak."""
    alone = lives.trials.get(sizes[0].label, []) if sizes else []
    trials = lives.series or alone if len(sizes) > 1 else alone
    known = [(peak, number) for number, trial in enumerate(trials) if isinstance(peak := highest(trial), int)]
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
        ("initial", ("start",)),
        ("import", ("import", "inputs")),
        ("load", ("load",)),
    ]
    if trial.phase("first run"):
        return [*steps, (f"inference {sizes[0].label}", _RUNS)]
    return [*steps, *((f"inference {size.label}", (f"run {size.label}",)) for size in sizes)]
