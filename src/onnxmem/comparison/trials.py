"""Every candidate at every size in fresh processes of its own, in turns, so that noise hits all alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxmem.comparison.candidate import Candidate
from onnxmem.comparison.sizes import Size, feeds_for
from onnxmem.errors import OnnxmemError
from onnxmem.measurement.feeds import Array, Feeds
from onnxmem.measurement.signature import Signature, read_signature
from onnxmem.measurement.trial import Trial, run_trial

@dataclass(frozen=True)
class Conditions:
    """What is the same for all candidates."""

    runs: int = 5
    repeat: int = 5
    repeat_limit: int = 10
    """So many processes for each candidate and size where fewer do not decide a row."""
    threads: int | None = None
    timeout: float = 600.0
    memory_limit: int | None = None


@dataclass
class Lives:
    """All lives of one candidate, as far as it got."""

    candidate: Candidate
    signature: Signature | None = None
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    """By the label of the size."""
    series: list[Trial] = field(default_factory=list)
    """Lives in which one process ran all sizes, smallest first."""
    failures: dict[str, str] = field(default_factory=dict)
    """By the label of the size: why there is no figure."""
    failure: str | None = None
    """Why there is none at all."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the model is made of."""
        return self.signature.files if self.signature else self.candidate.files


def prepare(candidates: Sequence[Candidate]) -> list[Lives]:
    """Look into each candidate's file. One that cannot be read has failed, and the others go on."""
    found = []
    for candidate in candidates:
        lives = Lives(candidate, failure=candidate.damage)
        if candidate.kind == "onnx" and candidate.path is not None:
            try:
                lives.signature = read_signature(candidate.path)
            except OnnxmemError as error:
                lives.failure = str(error)
        found.append(lives)
    return found


def live(all_lives: Sequence[Lives], sizes: Sequence[Size], given: Conditions, folder: Path, say: OnLife) -> None:
    """Run them all: repetition by repetition, size by size, candidate by candidate."""
    for repetition in range(given.repeat):
        count = f"{repetition + 1} of {given.repeat}"
        order = _round(all_lives, sizes, given, folder, say, repetition, count)
        for lives in order if len(sizes) > 1 else ():
            if lives.failure is None and not lives.failures:
                say(f"{lives.candidate.name}, all sizes in one process, {count}")
                _live_series(lives, sizes, given, folder)


def live_on(
    all_lives: Sequence[Lives], sizes: Sequence[Size], given: Conditions, folder: Path, say: OnLife, rounds: range
) -> None:
    """Further rounds, at the sizes where the ones before did not decide."""
    for repetition in rounds:
        count = f"{repetition + 1} of at most {given.repeat_limit}, not decided yet"
        _round(all_lives, sizes, given, folder, say, repetition, count)


def _round(
    all_lives: Sequence[Lives],
    sizes: Sequence[Size],
    given: Conditions,
    folder: Path,
    say: OnLife,
    repetition: int,
    count: str,
) -> list[Lives]:
    # Whoever runs first in a round finds the machine as the round before left it: it is not always the same one.
    turn = repetition % max(len(all_lives), 1)
    order = [*all_lives[turn:], *all_lives[:turn]]
    for size in sizes:
        for lives in order:
            if lives.failure is None and size.label not in lives.failures:
                say(f"{lives.candidate.name} at {size.label}, {count}")
                _live_once(lives, size, given, folder, save=repetition == 0)
    return order


def _live_once(lives: Lives, size: Size, given: Conditions, folder: Path, *, save: bool) -> None:
    number = len(lives.trials.get(size.label, ()))
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        feeds = save_feeds(_arrays(lives, size), place)
        task = worker_task(lives.candidate, feeds, given, save=str(place) if save else None)
        trial = _run(task, lives, given)
    except OnnxmemError as error:
        _fail(lives, size, str(error))
        return
    if trial.verdict.ok:
        lives.trials.setdefault(size.label, []).append(trial)
    else:
        # A candidate that fails once is not asked again: figures of those who sometimes fail are no figures.
        _fail(lives, size, str(trial.verdict) + (f" (repetition {number + 1})" if number else ""))


def _live_series(lives: Lives, sizes: Sequence[Size], given: Conditions, folder: Path) -> None:
    series = []
    for size in sizes:
        place = Path(tempfile.mkdtemp(dir=folder))
        series.append((size.label, save_feeds(_arrays(lives, size), place)))
    task = {**worker_task(lives.candidate, series[0][1], given), "series": series}
    trial = _run(task, lives, given)
    if trial.verdict.ok:
        lives.series.append(trial)


def _run(task: Mapping[str, Any], lives: Lives, given: Conditions) -> Trial:
    worker = "onnxmem.torch.worker" if lives.candidate.kind == "torch" else "onnxmem.measurement.worker"
    return run_trial(
        task, timeout=given.timeout, memory_limit=given.memory_limit, model_files=lives.files, worker=worker
    )


def _arrays(lives: Lives, size: Size) -> Mapping[str, Array]:
    return feeds_for(lives.signature, size.arrays) if lives.signature else size.arrays


def save_feeds(arrays: Mapping[str, Array], folder: Path) -> list[tuple[str, str]]:
    """Write the arrays where a worker can read them."""
    return Feeds(arrays, {}, {}, {}).save(folder)


def worker_task(
    candidate: Candidate, feeds: list[tuple[str, str]], given: Conditions, save: str | None = None
) -> dict[str, Any]:
    """What the worker is told."""
    return {
        "kind": candidate.kind,
        "model": str(candidate.path),
        "source": candidate.source.document() if candidate.source else None,
        "feeds": feeds,
        "mode": candidate.mode,
        "runs": given.runs,
        "threads": given.threads,
        "options": {},
        "config": {},
        "profile": False,
        "save": save,
    }


def _fail(lives: Lives, size: Size, why: str) -> None:
    lives.failures[size.label] = why
    lives.trials.pop(size.label, None)
