"""Every candidate at every size in fresh processes of its own, in turns, so that noise hits all alike."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxmem.comparison.candidate import Candidate
from onnxmem.comparison.sizes import Size, feeds_for
from onnxmem.deadline import Deadline
from onnxmem.documents import Record, stored
from onnxmem.errors import OnnxmemError
from onnxmem.measurement.device import HOST, device_number
from onnxmem.measurement.feeds import Array, Feeds
from onnxmem.measurement.protocol import Task
from onnxmem.measurement.scenario import check_memory_limit, check_threads
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
    device: str = HOST

    def __post_init__(self) -> None:
        check_threads(self.threads)
        check_memory_limit(self.memory_limit, self.device)


@dataclass
class CandidateTrials:
    """All trials of one candidate, as far as it got."""

    candidate: Candidate
    signature: Signature | None = None
    by_size: dict[str, list[Trial]] = field(default_factory=dict)
    """By the label of the size."""
    failures: dict[str, str] = field(default_factory=dict)
    """By the label of the size: why there is no figure."""
    failure: str | None = None
    """Why there is none at all."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the model is made of."""
        return self.signature.files if self.signature else self.candidate.files

    @property
    def onnxruntime(self) -> str | None:
        """The version of ONNX Runtime that ran it."""
        every = (trial.onnxruntime for trials in self.by_size.values() for trial in trials)
        return next((version for version in every if version), None)

    def arrays(self, size: Size) -> Mapping[str, Array]:
        """What it is fed at a size, under its own names."""
        return feeds_for(self.signature, size.arrays) if self.signature else size.arrays


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
    deadline: Deadline = field(default_factory=Deadline)
    """When it is over, repeating ends with what there is."""

    def run(self, sizes: Sequence[Size], more: range | None = None) -> None:
        """As many repetitions as were asked for; or `more`, at the sizes where the ones before did not decide."""
        given = self.conditions
        most = f"{given.repeat}" if more is None else f"at most {given.repeat_limit}, not decided yet"
        for repetition in range(given.repeat) if more is None else more:
            if repetition and self.deadline.passed:
                return
            self._round(sizes, repetition, f"{repetition + 1} of {most}")

    def _round(self, sizes: Sequence[Size], repetition: int, count: str) -> None:
        # Whoever runs first in a round finds the machine as the round before left it: it is not always the same one.
        turn = repetition % max(len(self.everyone), 1)
        order = [*self.everyone[turn:], *self.everyone[:turn]]
        for size in sizes:
            for trials in order:
                if trials.failure is None and size.label not in trials.failures:
                    self.on_progress(Progress(f"{trials.candidate.name} at {size.label}, {count}"))
                    self._run_once(trials, size, save=repetition == 0)

    def _run_once(self, trials: CandidateTrials, size: Size, *, save: bool) -> None:
        number = len(trials.by_size.get(size.label, ()))
        try:
            trial = self.try_once(trials, size, save=save)
        except OnnxmemError as error:
            _fail(trials, size, str(error))
            return
        if trial.verdict.ok:
            trials.by_size.setdefault(size.label, []).append(trial)
        elif not (number and self.deadline.passed):
            # One that fails once is not asked again: figures of those that sometimes fail are no figures.
            _fail(trials, size, str(trial.verdict) + (f" (repetition {number + 1})" if number else ""))

    def try_once(self, trials: CandidateTrials, size: Size, *, mode: str | None = None, save: bool = False) -> Trial:
        """One more trial at a size, perhaps in another mode; with `save`, its outputs are kept."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        candidate, given = trials.candidate, self.conditions
        task = Task(
            str(candidate.path),
            Feeds(trials.arrays(size)).save(place),
            mode=mode or candidate.mode,
            runs=given.runs,
            threads=given.threads,
            device=device_number(given.device),
            source=candidate.source.document() if candidate.source else None,
            save=str(place) if save else None,
        )
        return run_trial(
            task,
            timeout=self.deadline.left,
            memory_limit=given.memory_limit,
            model_files=trials.files,
            worker="onnxmem.torch.worker" if candidate.kind == "torch" else "onnxmem.measurement.worker",
        )


def _fail(trials: CandidateTrials, size: Size, why: str) -> None:
    trials.failures[size.label] = why
    trials.by_size.pop(size.label, None)
