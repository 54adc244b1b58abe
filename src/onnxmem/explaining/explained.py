"""All that rules look at: a measurement, its parts, and the model behind it where it can be read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from onnxmem.commands import path_word
from onnxmem.errors import ModelError, OnnxmemError
from onnxmem.explaining.attribution import (
    attribute,
    expected_without_model,
    peak_of,
    state_of,
    with_counted,
    with_packed,
)
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.protocol import IMPORT, LOAD, RUNS, STEADY_RUNS
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import Calibration, Process
from onnxmem.prediction.predict import MODES, Subject, forecast_mode
from onnxmem.prediction.prediction import Forecast, Part
from onnxmem.prediction.requests import unknown_tensors
from onnxmem.schedule.scheduled import Question
from onnxmem.session.modes import find_mode
from onnxmem.session.package import is_package, open_package
from onnxmem.units import format_bytes
from onnxmem.unknown import known

# What a second is enough for: larger models take longer to look into than anyone waits after a measurement.
_QUICK_NODES, _QUICK_BYTES, _QUICK_SECONDS = 2000, 256 << 20, 2.0
_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A measurement that went well, and what it is made of."""

    measurement: Measurement
    subject: Subject | None
    note: str = ""
    """Why the model was not looked into."""
    _forecasts: dict[str, Forecast | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, measurement: Measurement, *, quick: bool = False) -> Explained:
        """Of a measurement and its model, if it is still there; `quick`: and if a second is enough to look into it."""
        try:
            subject = _subject(measurement, quick)
        except (OnnxmemError, OSError) as error:
            return cls(measurement=measurement, subject=None, note=str(error))
        return cls(measurement=measurement, subject=subject)

    @property
    def scenario(self) -> Scenario:
        """What was measured."""
        return self.measurement.scenario

    @property
    def mode(self) -> str:
        """How it ran: a planned session that could not be planned ran in another one."""
        return _mode(self.measurement)

    @cached_property
    def loaded_as(self) -> str:
        """How it was loaded: a package that is planned comes in its own mode."""
        packaged = self.mode == "planned" and is_package(self.scenario.model)
        return open_package(self.scenario.model).manifest.mode if packaged else self.mode

    @cached_property
    def peak(self) -> int:
        """The most that was ever resident."""
        return peak_of(self.measurement)

    @property
    def load_peak(self) -> int:
        """The most while loading."""
        return self._highest(LOAD)

    @property
    def run_peak(self) -> int:
        """The most in all runs."""
        return self._highest(*RUNS)

    def _highest(self, *phases: str) -> int:
        found = (self.measurement.trial.phase(name) for name in phases)
        return max(known(phase.peak.rss for phase in found if phase is not None), default=0)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What the peak is made of."""
        return attribute(self.measurement, self._expected(), self.loaded_as)

    def part(self, name: str) -> int:
        """One of them; 0 if there is none of it."""
        return sum(part.bytes for part in self.parts if part.name == name)

    def forecast(self, mode: str) -> Forecast | None:
        """What the model would take in a mode; None where that is not known."""
        if mode not in self._forecasts:
            known_mode = mode in MODES and self.subject is not None
            self._forecasts[mode] = self.predicted(self.subject, mode) if known_mode and self.subject else None
        return self._forecasts[mode]

    def predicted(self, subject: Subject, mode: str) -> Forecast:
        """What any model would take in a process like the one that was measured."""
        return forecast_mode(subject, mode, Calibration(stock=self._process, planned=self._process))

    @cached_property
    def _process(self) -> Process:
        """What the measured process took beside its model."""
        before, loaded, ran = (state_of(self.measurement, name) for name in (IMPORT, LOAD, STEADY_RUNS))
        return Process(
            imported=before.rss,
            shared=before.libraries,
            loading=max(0, loaded.libraries - before.libraries),
            running=max(0, ran.libraries - loaded.libraries),
        )

    def _expected(self) -> dict[str, int]:
        found = self.forecast(self.mode)
        if found is None or self.subject is None:
            return expected_without_model(self.measurement)
        expected = {part.name: part.bytes for part in found.parts}
        expected |= _needs(self.subject, self.mode)
        complete = not unknown_tensors(self.subject.graph)
        # A plan has no pieces that are larger than what is asked for.
        exact = complete and self.mode == "planned"
        expected = with_packed(expected, self.measurement, self.loaded_as)
        return expected if exact else with_counted(expected, self.measurement, complete=complete)

    def needed_at_once(self, predicted: int) -> int:
        """What a run needs: as predicted, or less where its plan has shown that. Places that are shared are no part of
        predictions."""
        planned = self.measurement.planned
        return predicted if planned is None or planned.plan_bytes is None else min(predicted, planned.plan_bytes)

    def command(self, verb: str, *more: str) -> str:
        """A command about the same model, fed in the same way."""
        scenario = self.scenario
        words = [path_word(scenario.model)]
        if is_package(scenario.model) and verb == "pack":
            words = [path_word(open_package(scenario.model).manifest.source.path)]
        for name, shape in scenario.shapes.items():
            words += ["--shape", f"{name}={'x'.join(map(str, shape))}"]
        for name, number in scenario.dims.items():
            words += ["--dim", f"{name}={number}"]
        words += ["--inputs", str(scenario.inputs)] if scenario.inputs else []
        for name, (low, high) in scenario.ranges.items():
            words += ["--range", f"{name}={_exact(low)}:{_exact(high)}"]
        return shlex.join(["onnxmem", verb, *words, *more])

    def in_mode(self, mode: str) -> str:
        """The command that measures the same in another mode."""
        threads = ["--threads", str(self.scenario.threads)] if self.scenario.threads else []
        return self.command("measure", *threads, "--mode", mode)


def _needs(subject: Subject, mode: str) -> dict[str, int]:
    """What runs need by themselves. The forecast gives them no more than it expects runs to add, as some of it may lie
    in memory that the heap kept; here it is measured how much they added."""
    plain = subject.plain_runs.first
    needs = {"activations": plain.peak_of("activation"), "outputs": plain.output_bytes}
    needs["scratch"] = max(0, plain.inner_peak - needs["activations"])
    if mode == "stock":
        needs["reuse"] = max(0, subject.stock_runs.first.inner_peak - plain.inner_peak)
        needs["pattern"] = subject.stock_runs.later.peak_of("pattern")
    return needs


def _mode(measurement: Measurement) -> str:
    planned = measurement.planned
    return planned.loaded_mode if planned and planned.reason else measurement.scenario.mode


class _NotLooked(OnnxmemError):
    """The model is not looked into."""


def _subject(measurement: Measurement, quick: bool) -> Subject:
    scenario = measurement.scenario
    path = Path(scenario.model)
    if find_mode(scenario.mode).form == "ort":
        raise _NotLooked(".ort files are not predicted")
    if not path.exists():
        raise _NotLooked(f"the model is not at '{path}' any more")
    if quick and measurement.file_bytes > _QUICK_BYTES:
        raise _NotLooked(f"it is larger than {format_bytes(_QUICK_BYTES)}")
    size = read_signature(path).file_size
    if size != measurement.file_bytes:
        raise _NotLooked(f"'{path}' has {size:,} bytes and not {measurement.file_bytes:,} as when it was measured")
    shapes = {name: tuple(array.shape) for name, array in measurement.fed.inputs.items()}
    question = Question(shapes=shapes, time_limit=_QUICK_SECONDS if quick else _SECONDS)
    threads, mode = scenario.threads, _mode(measurement)
    try:
        return Subject.read(path, question, threads, mode=mode, open_model=partial(_open, quick=quick))
    except ModelError:  # the file of a package may be one that only ONNX Runtime reads
        source = open_package(path).manifest.source if is_package(path) else None
        if source is None or not Path(source.path).exists():
            raise
        if read_signature(Path(source.path)).file_size != sum(file.size for file in source.files):
            raise
        return Subject.of(_open(Path(source.path), quick=quick), question, threads)


def _open(path: Path, *, quick: bool) -> Model:
    model = Model.open(path)
    if quick and len(model.proto.graph.node) > _QUICK_NODES:
        raise _NotLooked(f"it has more than {_QUICK_NODES:,} nodes")
    return model


def _exact(number: float) -> str:
    """A number as it was given: a range that is rounded up may hold ids that no table has."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)
