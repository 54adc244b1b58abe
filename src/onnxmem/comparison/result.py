"""What one candidate took: figures with all their samples, and where each MiB of its peak came from."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Self

from onnxmem.comparison.sizes import Size
from onnxmem.comparison.trials import CandidateTrials
from onnxmem.documents import Document, Record, stored
from onnxmem.measurement.protocol import FIRST_RUN, IMPORT, INPUTS, LOAD, RUNS, START
from onnxmem.measurement.trial import Trial
from onnxmem.unknown import Bytes, Unknown, combine, known, subtract


@dataclass(frozen=True)
class Figure(Record):
    """All samples of one quantity, in the order they were taken."""

    samples: tuple[int | float, ...]

    @property
    def median(self) -> int | float:
        """The middle one, of an even number the lower: it was measured, and a disturbed run does not move it."""
        return statistics.median_low(self.samples)

    @property
    def low(self) -> int | float:
        """The smallest."""
        return min(self.samples)

    @property
    def high(self) -> int | float:
        """The largest."""
        return max(self.samples)


Known = Figure | Unknown


def figure(values: Iterable[int | float | Unknown | None], why: str) -> Known:
    """The figure of all known values; if there are none, the reason of the first unknown one, or `why`."""
    given = [value for value in values if value is not None]
    numbers = tuple(value for value in given if not isinstance(value, Unknown))
    return Figure(numbers) if numbers else next((v for v in given if isinstance(v, Unknown)), Unknown(why))


class Figures(Record):
    """A record with figures: medians stand under the keys of the fields, `spread` and `samples` beside them."""

    def document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        document = super().document()
        samples = {key: each["samples"] for key, each in document.items() if _is_figure(each)}
        medians = {key: statistics.median_low(each) for key, each in samples.items()}
        spread = {key: [min(each), max(each)] for key, each in samples.items()}
        return {**document, **medians, "spread": spread, "samples": samples}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The record that `document` wrote."""
        samples = document.get("samples") or {}
        return super().from_document({**document, **{key: {"samples": each} for key, each in samples.items()}})


def _is_figure(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"samples"}


@dataclass(frozen=True, kw_only=True)
class AtSize(Figures):
    """One candidate at one input size."""

    size: str
    shapes: Mapping[str, tuple[int, ...]]
    peak: Known = stored("peak_rss_bytes")
    """Peak RSS of the whole process."""
    own_peak: Known = stored("own_peak_bytes")
    """The same − RSS before the model was loaded: without interpreter, framework and inputs."""
    run_growth: Known = stored("run_growth_bytes")
    latency: Known = stored("latency_seconds")
    """Seconds of a steady run; one sample for each process, the median of its runs."""
    first_run: Known = stored("first_run_seconds")
    device_peak: Known | None = stored("peak_device_bytes", default=None)
    """The most on the device; None if it runs on the CPU."""
    device_growth: Known | None = stored("device_run_growth_bytes", default=None)
    failure: str | None

    @property
    def elements(self) -> int:
        """Numbers in all inputs together: what memory is a function of."""
        return sum(prod(shape) for shape in self.shapes.values())

    def derived(self) -> Mapping[str, Any]:
        """The shape of the first input, and the number of elements in all of them."""
        return {"shape": next(iter(self.shapes.values()), ()), "elements": self.elements}


class Part(NamedTuple):
    """One line of the breakdown: by how much this step raised the most that the process ever took."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CandidateResult(Figures):
    """One candidate."""

    name: str
    kind: str
    mode: str | None
    framework: str
    file_bytes: int | Unknown
    import_growth: Known = stored("import_growth_bytes")
    """RSS after importing the framework − RSS before."""
    import_seconds: Known
    load_growth: Known = stored("load_growth_bytes")
    """Peak RSS while loading − RSS before it."""
    load_seconds: Known
    total_rss: Known = stored("total_rss_bytes")
    """RSS when the model is loaded and has not run."""
    load_peak: Known = stored("load_peak_rss_bytes")
    device_load: Known | None = stored("device_load_growth_bytes", default=None)
    """The most on the device while loading − before; None if it runs on the CPU."""
    cold_start: Known = stored("cold_start_seconds")
    """Seconds from starting the process to the first answer, at the smallest size."""
    at: tuple[AtSize, ...] = stored("inputs")
    breakdown: tuple[Part, ...]
    """How the peak at the largest size comes about; the last part is that peak."""
    failure: str | None

    @property
    def ok(self) -> bool:
        """Whether it ran at every size."""
        return not self.why_not

    @property
    def why_not(self) -> str:
        """Why it did not."""
        return self.failure or next((f"at {each.size}: {each.failure}" for each in self.at if each.failure), "")

    @property
    def peak(self) -> float:
        """The peak at the largest size; infinite if it is not known."""
        last = self.at[-1].peak if self.at else None
        return last.median if isinstance(last, Figure) else float("inf")

    def derived(self) -> Mapping[str, Any]:
        """Whether it ran at every size."""
        return {"ok": self.ok}


def result_of(own: CandidateTrials, sizes: Sequence[Size]) -> CandidateResult:
    """The figures of one candidate's trials."""
    trials = [trial for size in sizes for trial in own.by_size.get(size.label, ())]
    # Inputs are there before the model is: with the smallest ones, the total is nearly the model's alone.
    first = next((own.by_size[size.label] for size in sizes if size.label in own.by_size), [])
    why = own.failure or next(iter(own.failures.values()), "it did not run")
    at = tuple(_at(own, size) for size in sizes)
    return CandidateResult(
        name=own.candidate.name,
        kind=own.candidate.kind,
        mode=own.candidate.mode if own.candidate.kind == "onnx" else None,
        framework=_framework(trials),
        file_bytes=_file_bytes(own),
        import_growth=figure((_imported(trial) for trial in trials), why),
        import_seconds=figure((_seconds(trial, IMPORT) for trial in trials), why),
        load_growth=figure((trial.growth(LOAD) for trial in trials), why),
        load_seconds=figure((_seconds(trial, LOAD) for trial in trials), why),
        total_rss=figure((phase.reading.rss for trial in first if (phase := trial.phase(LOAD))), why),
        load_peak=figure((phase.peak.rss for trial in first if (phase := trial.phase(LOAD))), why),
        device_load=_on_device((trial.device_growth(LOAD) for trial in trials), trials),
        cold_start=figure((_cold_start(trial) for trial in first), why),
        at=at,
        breakdown=_breakdown(first, at),
        failure=own.failure or (why if not trials else None),
    )


def _at(own: CandidateTrials, size: Size) -> AtSize:
    trials = own.by_size.get(size.label, [])
    failure = own.failure or own.failures.get(size.label)
    why = failure or "it did not run"
    return AtSize(
        size=size.label,
        shapes=size.shapes,
        peak=figure((trial.highest for trial in trials), why),
        own_peak=figure((_own_peak(trial) for trial in trials), why),
        run_growth=figure((trial.growth(*RUNS) for trial in trials), why),
        latency=figure((trial.latency for trial in trials), why),
        first_run=figure((trial.first_run for trial in trials), why),
        device_peak=_on_device((trial.device_highest for trial in trials), trials),
        device_growth=_on_device((trial.device_growth(*RUNS) for trial in trials), trials),
        failure=failure,
    )


def _on_device(values: Iterable[Bytes], trials: Sequence[Trial]) -> Known | None:
    return figure(values, "it did not run") if any(trial.device for trial in trials) else None


def _own_peak(trial: Trial) -> Bytes:
    names = [phase.name for phase in trial.phases]
    return trial.growth(LOAD, *names[names.index(LOAD) + 1 :]) if LOAD in names else Unknown("it did not load")


def _imported(trial: Trial) -> Bytes:
    phase = trial.phase(IMPORT)
    if phase is None:
        return Unknown("nothing was imported")
    return combine(lambda grown: max(0, grown), subtract(phase.reading.rss, phase.before))


def _seconds(trial: Trial, name: str) -> float | None:
    phase = trial.phase(name)
    return phase.seconds if phase else None


def _cold_start(trial: Trial) -> float | None:
    parts = [_seconds(trial, name) for name in (START, IMPORT, LOAD, FIRST_RUN)]
    return None if None in parts else sum(part for part in parts if part is not None)


def _framework(trials: Sequence[Trial]) -> str:
    names = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
    framework = trials[0].framework if trials else None
    return f"{names[framework]} {trials[0].framework_version}" if framework else ""


def _file_bytes(own: CandidateTrials) -> int | Unknown:
    if not own.files or not any(file.exists() for file in own.files):
        return Unknown("it has no file")
    try:
        files = [each for file in own.files for each in (file.rglob("*") if file.is_dir() else (file,))]
        return sum(file.stat().st_size for file in files if file.is_file())
    except OSError as error:
        return Unknown(error.strerror or "it cannot be read")


def _breakdown(trials: Sequence[Trial], at: Sequence[AtSize]) -> tuple[Part, ...]:
    """By how much each step raises the peak: those before the first run in the trial with the median peak at the
    smallest size, then each size by its own peak, so that the parts add up to the peaks that are shown."""
    peaks = [(each.size, each.peak.median) for each in at if isinstance(each.peak, Figure)]
    trial = next((trial for trial in trials if peaks and trial.highest == peaks[0][1]), None)
    if trial is None:
        return ()
    phases = {"initial": (START,), "import": (IMPORT, INPUTS), "load": (LOAD,)}
    marks = [
        (name, max(known(phase.peak.rss for each in names if (phase := trial.phase(each))), default=0))
        for name, names in phases.items()
    ]
    parts: list[Part] = []
    highest = 0
    for name, mark in (*marks, *((f"inference {size}", round(peak)) for size, peak in peaks)):
        parts.append(Part(name, max(0, mark - highest)))
        highest = max(highest, mark)
    return (*parts, Part("peak", highest))
