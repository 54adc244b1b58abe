"""Every candidate at every size in fresh processes of its own, in turns, so that noise hits all alike."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxmem.comparison.candidate import Candidate
from onnxmem.comparison.sizes import Size, feeds_for
from onnxmem.documents import Record, stored
from onnxmem.errors import OnnxmemError
from onnxmem.measurement.feeds import Array, Feeds
from onnxmem.measurement.protocol import SavedFeeds, Task
from onnxmem.measurement.scenario import check_threads
from onnxmem.measurement.signature import Signature, read_signature
from onnxmem.measurement.trial import Trial, run_trial
from onnxmem.progress import OnProgress, Progress


@dataclass(frozen=True, kw_only=True)
class Conditions(Record):
    """What is the same for all candidates."""

    runs: int = 5
    repeat: int = 5
    repeat_limit: int = 10
    """So many processes for each candidate and size where fewer do not decide a row."""
    threads: int | None = None
    timeout: float = stored("timeout", default=600.0)
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        check_threads(self.threads)


@dataclass
class CandidateTrials:
    """All trials of one candidate, as far as it got."""

    candidate: Candidate
    signature: Signature | None = None
    by_size: dict[str, list[Trial]] = field(default_factory=dict)
    """By the label of the size."""
    series: list[Trial] = field(default_factory=list)
    """Those in which one process ran all sizes, smallest first."""
    failures: dict[str, str] = field(default_factory=dict)
    """By the label of the size: why there is no figure."""
    failure: str | None = None
    """Why there is none at all."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the model is made of."""
        return self.signature.files if self.signature else self.candidate.files

    def arrays(self, size: Size) -> Mapping[str, Array]:
        """What it is fed at a size, under its own names."""
        return feeds_for(self.signature, size.arrays) if self.signature else size.arrays

    def run(self, task: Task, conditions: Conditions) -> Trial:
        """One more trial."""
        return run_trial(
            task,
            timeout=conditions.timeout,
            memory_limit=conditions.memory_limit,
            model_files=self.files,
            worker="onnxmem.torch.worker" if self.candidate.kind == "torch" else "onnxmem.measurement.worker",
        )


def prepare(candidates: Sequence[Candidate]) -> list[CandidateTrials]:
    """Look into each candidate's file. One that cannot be read has failed, and the others go on."""
    prepared = []
    for candidate in candidates:
        trials = CandidateTrials(candidate, failure=candidate.damage)
        if candidate.kind == "onnx" and candidate.path is not None:
            try:
                trials.signature = read_signature(candidate.path)
            except OnnxmemError as error:
                trials.failure = str(error)
        prepared.append(trials)
    return prepared


@dataclass(frozen=True)
class Schedule:
    """Who runs when: repetition by repetition, size by size, candidate by candidate."""

    everyone: Sequence[CandidateTrials]
    conditions: Conditions
    folder: Path
    """For inputs and outputs."""
    on_progress: OnProgress

    def run(self, sizes: Sequence[Size]) -> None:
        """As many repetitions as were asked for."""
        for repetition in range(self.conditions.repeat):
            count = f"{repetition + 1} of {self.conditions.repeat}"
            order = self._round(sizes, repetition, count)
            for trials in order if len(sizes) > 1 else ():
                if trials.failure is None and not trials.failures:
                    self.on_progress(Progress(f"{trials.candidate.name}, all sizes in one process, {count}"))
                    self._run_series(trials, sizes)

    def run_more(self, sizes: Sequence[Size], repetitions: range) -> None:
        """Further repetitions, at the sizes where the ones before did not decide."""
        for repetition in repetitions:
            count = f"{repetition + 1} of at most {self.conditions.repeat_limit}, not decided yet"
            self._round(sizes, repetition, count)

    def _round(self, sizes: Sequence[Size], repetition: int, count: str) -> list[CandidateTrials]:
        # Whoever runs first in a round finds the machine as the round before left it: it is not always the same one.
        turn = repetition % max(len(self.everyone), 1)
        order = [*self.everyone[turn:], *self.everyone[:turn]]
        for size in sizes:
            for trials in order:
                if trials.failure is None and size.label not in trials.failures:
                    self.on_progress(Progress(f"{trials.candidate.name} at {size.label}, {count}"))
                    self._run_once(trials, size, save=repetition == 0)
        return order

    def _run_once(self, trials: CandidateTrials, size: Size, *, save: bool) -> None:
        number = len(trials.by_size.get(size.label, ()))
        place = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            task = worker_task(trials.candidate, save_feeds(trials.arrays(size), place), self.conditions)
            trial = trials.run(task._replace(save=str(place) if save else None), self.conditions)
        except OnnxmemError as error:
            _fail(trials, size, f"{error} ({error.hint})" if error.hint else str(error))
            return
        if trial.verdict.ok:
            trials.by_size.setdefault(size.label, []).append(trial)
        else:
            # One that fails once is not asked again: figures of those that sometimes fail are no figures.
            _fail(trials, size, str(trial.verdict) + (f" (repetition {number + 1})" if number else ""))

    def _run_series(self, trials: CandidateTrials, sizes: Sequence[Size]) -> None:
        places = [Path(tempfile.mkdtemp(dir=self.folder)) for _ in sizes]
        series = [
            (size.label, save_feeds(trials.arrays(size), place)) for size, place in zip(sizes, places, strict=True)
        ]
        task = worker_task(trials.candidate, series[0][1], self.conditions)._replace(series=series)
        trial = trials.run(task, self.conditions)
        if trial.verdict.ok:
            trials.series.append(trial)


def save_feeds(arrays: Mapping[str, Array], folder: Path) -> SavedFeeds:
    """Write the arrays where a worker can read them."""
    return Feeds(arrays).save(folder)


def worker_task(candidate: Candidate, feeds: SavedFeeds, conditions: Conditions) -> Task:
    """What the worker is told."""
    return Task(
        str(candidate.path),
        feeds,
        mode=candidate.mode,
        runs=conditions.runs,
        threads=conditions.threads,
        source=candidate.source.document() if candidate.source else None,
    )


def _fail(trials: CandidateTrials, size: Size, why: str) -> None:
    trials.failures[size.label] = why
    trials.by_size.pop(size.label, None)
