"""What gives the memory of a model back? Each way of letting go is tried in turn in a fresh process, and measured."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmem.environment import Environment, read_environment
from onnxmem.errors import ModelError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.feeds import Feeds, make_feeds
from onnxmem.measurement.measure import phase_progress, with_hint, worker_task
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.protocol import INPUTS, LOAD, STEADY_RUNS, Released
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.measurement.smaps import Kind
from onnxmem.measurement.trial import Phase, Trial, run_trial
from onnxmem.progress import OnProgress
from onnxmem.releasing.rungs import EXIT, RUNGS
from onnxmem.result import Shown
from onnxmem.unknown import Bytes, Unknown

BASELINE, LOADED, FULL = INPUTS, LOAD, STEADY_RUNS


@dataclass(frozen=True)
class Step:
    """One rung: what the process had when it was done, and what it gave back."""

    name: str
    reading: Reading
    freed: Bytes
    """RSS less than after the step before; negative if it grew."""
    freed_anon: Bytes
    freed_file: Bytes
    made_of: tuple[Kind, ...] | Unknown
    seconds: float

    @property
    def model_mappings(self) -> int | Unknown:
        """How many mappings of the model's files there are."""
        files = self._model_files
        return files if isinstance(files, Unknown) else files.mappings

    @property
    def model_mapped(self) -> Bytes:
        """How much of the model's files is resident through them."""
        files = self._model_files
        return files if isinstance(files, Unknown) else files.rss - files.anon

    @property
    def _model_files(self) -> Kind | Unknown:
        if isinstance(self.made_of, Unknown):
            return self.made_of
        return next(kind for kind in self.made_of if kind.name == "model files")


@dataclass(frozen=True)
class Ladder(Shown):
    """A model, loaded, run and let go of step by step in one process."""

    scenario: Scenario
    file_bytes: int
    feeds: Feeds
    before: Step
    """With ONNX Runtime imported and the inputs ready, before the model."""
    loaded: Step
    full: Step
    """After the runs: what there is to give back."""
    steps: tuple[Step, ...]
    """The rungs, and last the end of the process."""
    released: Released
    """What the steps met with."""
    environment: Environment

    @property
    def last(self) -> Step:
        """The last rung in the process."""
        return self.steps[-2]

    @property
    def growth(self) -> Bytes:
        """Resident memory (RSS) that the model brought, touched pages of ONNX Runtime's library included."""
        return _less(self.full.reading.rss, self.before.reading.rss)

    @property
    def left(self) -> Bytes:
        """Of it, what the ladder left, the end of the process aside."""
        return _less(self.last.reading.rss, self.before.reading.rss)

    @property
    def growth_anon(self) -> Bytes:
        """Anonymous memory that the model brought: weights in the heap, packed weights, arenas."""
        return _less(self.full.reading.anon, self.before.reading.anon)

    @property
    def left_anon(self) -> Bytes:
        """Of it, what the ladder left."""
        return _less(self.last.reading.anon, self.before.reading.anon)

    @property
    def released_fraction(self) -> float | Unknown:
        """The part of the model's memory, anonymous and mapped from its files, that came back before the process ended.

        Pages of libraries are not counted: they are the system's cache of a file, shared, and dropped when need be.
        """
        return _fraction(_sum(self.growth_anon, self.full.model_mapped), _sum(self.left_anon, self.last.model_mapped))

    @property
    def released_fraction_anon(self) -> float | Unknown:
        """The same of anonymous memory alone."""
        return _fraction(self.growth_anon, self.left_anon)

    @property
    def released_fraction_rss(self) -> float | Unknown:
        """The same of all resident memory, libraries included."""
        return _fraction(self.growth, self.left)

    @property
    def left_by_kind(self) -> dict[str, int]:
        """Where the rest is: resident bytes more than before the model, by kind of memory; the largest first."""
        before, after = self.before.made_of, self.last.made_of
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            return {}
        had = {kind.name: kind.rss for kind in before}
        more = {kind.name: kind.rss - had[kind.name] for kind in after}
        return {name: size for name, size in sorted(more.items(), key=lambda item: -item[1]) if size > 0}


def climb(scenario: Scenario, *, on_progress: OnProgress | None = None) -> Ladder:
    """Load and run the model in a fresh process, then let go of it rung by rung."""
    signature = read_signature(scenario.model)
    feeds = make_feeds(signature, scenario)
    with temporary_folder() as folder:
        trial = run_trial(
            worker_task(scenario, feeds.save(folder)),
            timeout=scenario.timeout,
            memory_limit=scenario.memory_limit,
            model_files=signature.files,
            on_phase=phase_progress(on_progress),
            worker="onnxmem.releasing.worker",
        )
    if not trial.verdict.ok or trial.released is None:
        verdict = with_hint(trial, feeds.described()).verdict
        raise ModelError(f"the process that held the model did not get to the end: {verdict}", hint=verdict.hint)
    before, loaded, full, *rungs = _steps(trial, (BASELINE, LOADED, FULL, *RUNGS, EXIT))
    environment = read_environment(trial.onnxruntime)
    return Ladder(scenario, signature.file_size, feeds, before, loaded, full, tuple(rungs), trial.released, environment)


def _steps(trial: Trial, names: tuple[str, ...]) -> list[Step]:
    found: list[Step] = []
    for name in names:
        phase = trial.phase(name)
        assert phase is not None  # the verdict is ok
        found.append(_step(phase, found[-1].reading if found else phase.reading))
    return found


def _step(phase: Phase, before: Reading) -> Step:
    now = phase.reading
    freed, anon, file = _less(before.rss, now.rss), _less(before.anon, now.anon), _less(before.file, now.file)
    return Step(phase.name, now, freed, anon, file, phase.made_of, phase.seconds)


def _less(one: Bytes, other: Bytes) -> Bytes:
    if isinstance(one, Unknown):
        return one
    return other if isinstance(other, Unknown) else one - other


def _sum(one: Bytes, other: Bytes) -> Bytes:
    if isinstance(one, Unknown):
        return one
    return other if isinstance(other, Unknown) else one + other


def _fraction(growth: Bytes, left: Bytes) -> float | Unknown:
    if isinstance(growth, Unknown):
        return growth
    if isinstance(left, Unknown):
        return left
    if growth <= 0:
        return Unknown("the model took no memory that could be measured")
    return 1.0 - left / growth
