"""Does this model keep within its budget? Measured in a fresh process, and compared with what it took before."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxmem.checking.answer import answer
from onnxmem.checking.baseline import baseline_of, find_entry, read_baseline
from onnxmem.checking.case import Case, Prepared, prepare
from onnxmem.checking.checked import Checked
from onnxmem.checking.checking import Checking
from onnxmem.checking.settings import find_settings
from onnxmem.deadline import MORE_TIME, Deadline
from onnxmem.environment import read_environment
from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.history.entry import Entry, key_of
from onnxmem.history.figures_of import unknown_figures
from onnxmem.history.revision import read_commit
from onnxmem.history.store import append, check_history, last_passed
from onnxmem.history.tolerance import USUAL, Tolerance
from onnxmem.measurement.scenario import Scenario
from onnxmem.progress import OnProgress, Progress
from onnxmem.session.modes import Setting
from onnxmem.units import parse_bytes

HISTORY = "history"
"""As a baseline: the last result of the history that was as it should be."""


def check(
    model: str | os.PathLike[str],
    budget: int | str | None = None,
    *,
    figure: str = "peak",
    mode: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    threads: int | None = None,
    options: Mapping[str, Setting] | None = None,
    config: Mapping[str, str] | None = None,
    by: str = "measurement",
    runs: int = 5,
    repeat: int = 1,
    baseline: str | os.PathLike[str] | None = None,
    tolerance: str = USUAL,
    history: str | os.PathLike[str] | None = None,
    advice: bool = True,
    time_limit: float = 600.0,
    on_progress: OnProgress | None = None,
) -> Checking:
    """Check a model: `check("model.onnx", "300MiB", mode="planned").ok`.

    `figure` says what the budget is about: `peak` (of the whole process), `load`, `loaded`, `run` or `steady`. With
    `by="estimate"` nothing is run: the figures are predictions. With a `baseline` (a file that `check` or `measure`
    saved, or the word "history") it must not have grown by more than the `tolerance`, "5%" or "4MiB", either. A
    `history` is an SQLite file to which the result is added. With `advice`, a model over its budget is run again: to
    tell what takes the memory, and in modes in which it may fit.
    """
    scenario = Scenario.of(locals())
    case = Case(
        scenario=scenario,
        budget=parse_bytes(budget) if isinstance(budget, str) else budget,
        figure=figure,
        by=by,
        repeat=repeat,
        tolerance=Tolerance.parse(tolerance),
    )
    against = Against(baseline=baseline, history=history)
    return check_cases([case], against, advice=advice, time_limit=time_limit, on_progress=on_progress)


def check_project(
    config: str | os.PathLike[str] | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    by: str | None = None,
    baseline: str | os.PathLike[str] | None = None,
    tolerance: str | None = None,
    history: str | os.PathLike[str] | None = None,
    advice: bool = True,
    time_limit: float = 3600.0,
    on_progress: OnProgress | None = None,
) -> Checking:
    """Check all that the `[tool.onnxmem]` table of a project asks for, or one of its models: `check_project()`.

    The table is that of the nearest pyproject.toml, from the current folder upwards, or of the file `config`. Whatever
    is given here counts instead of what stands there.
    """
    settings = find_settings(None if config is None else Path(config))
    cases = settings.cases if model is None else settings.about(Path(model))
    changes = {"by": by, "tolerance": None if tolerance is None else Tolerance.parse(tolerance)}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    against = Against(
        baseline=settings.baseline if baseline is None else baseline,
        history=settings.history if history is None else history,
    )
    cases = tuple(replace(case, **given) for case in cases)
    return check_cases(cases, against, advice=advice, time_limit=time_limit, on_progress=on_progress)


@dataclass(frozen=True, kw_only=True)
class Against:
    """What results are compared with, and where they are kept."""

    baseline: str | os.PathLike[str] | None = None
    history: str | os.PathLike[str] | None = None

    @property
    def file(self) -> Path | None:
        """Where results are kept."""
        return None if self.history is None else Path(self.history)

    def find(self, prepared: Sequence[Prepared]) -> list[Entry | None]:
        """For each case what it took before. Files that cannot be used are an error, before any work."""
        if self.file is not None:
            check_history(self.file)
        if self.baseline is None:
            return [None] * len(prepared)
        if self.baseline == HISTORY:
            if self.file is None:
                raise UsageError("there is no history to compare with", hint="give --history FILE.sqlite, too")
            last = [(each, last_passed(self.file, each.key)) for each in prepared]
            # A result without this figure is none to compare with.
            return [e if e and isinstance(each.case.about.of(e.figures), int) else None for each, e in last]
        entries = read_baseline(Path(self.baseline))
        known = {entry.key.identity: entry for entry in entries}
        found = [known.get(each.key.identity) for each in prepared]
        if prepared and not any(found):
            find_entry(entries, prepared[0].key, Path(self.baseline))
        for each, entry in zip(prepared, found, strict=True):
            if entry is not None:
                baseline_of(entry, each.case, self.origin)
        return found

    @property
    def origin(self) -> Path:
        """The file that baselines are from."""
        return Path(self.file or HISTORY) if self.baseline in (None, HISTORY) else Path(self.baseline)


def check_cases(
    cases: Sequence[Case],
    against: Against,
    *,
    advice: bool = True,
    time_limit: float = 3600.0,
    on_progress: OnProgress | None = None,
) -> Checking:
    """Check all of them, one after the other. One that cannot be run is an answer like any other."""
    if not cases:
        raise UsageError("there is nothing to check")
    deadline = Deadline(time_limit)
    for case in cases:
        if case.budget is None and against.baseline is None:
            raise UsageError(f"{case.title} has no budget", hint="give --budget 300MiB, or a --baseline")
    looked = [_look(case) for case in cases]
    ready = [each for each in looked if isinstance(each, Prepared)]
    before = dict(zip(map(id, ready), against.find(ready), strict=True))
    environment, commit = read_environment(), read_commit()
    result = Checking(checks=(), commit=commit, environment=environment)
    for number, each in enumerate(looked):
        if isinstance(each, Checked):
            result = replace(result, checks=(*result.checks, each))
            continue
        began, entry = time.monotonic(), before[id(each)]
        step = _progress(on_progress, each, number, len(cases))
        checked = _answer(each, deadline, advice, step, alone=len(cases) == 1)
        if entry is not None:
            checked = _compared(checked, entry, result.entry(checked), against.origin)
        elif against.baseline is not None:
            checked = replace(checked, notes=(*checked.notes, f"There is no earlier result of {each.key.label}."))
        checked = replace(checked, seconds=time.monotonic() - began)
        result = replace(result, checks=(*result.checks, checked))
        if against.file is not None and not checked.failure:
            # At once: whatever ends this process later, the result is kept.
            append(against.file, result.entry(checked), checked.document())
    return result


def _look(case: Case) -> Prepared | Checked:
    """Look at a model; one that is no model is an answer."""
    try:
        return prepare(case)
    except ModelError as error:
        return failed(case, error)
    except UsageError as error:
        raise UsageError(f"{case.place}: {error}" if case.place else str(error), hint=error.hint) from error


def failed(case: Case, error: OnnxmemError) -> Checked:
    """A case that could not be checked."""
    return Checked(
        case=case,
        key=key_of(case.scenario, {}, case.by),
        figures=unknown_figures("it could not be checked"),
        failure=str(error),
        hint=error.hint,
    )


def _answer(each: Prepared, deadline: Deadline, advice: bool, step: OnProgress | None, *, alone: bool) -> Checked:
    if deadline.passed:
        message = f"there was no time left of {deadline.time_limit:g} seconds"
        return failed(each.case, OnnxmemError(message, hint=MORE_TIME))
    try:
        return answer(each, deadline, advice=advice, on_progress=step)
    except OnnxmemError as error:
        # A request that cannot be carried out is the caller's, if it is the only one.
        if alone and isinstance(error, UsageError):
            raise
        return replace(failed(each.case, error), key=each.key, sha256=each.sha256)


def _compared(checked: Checked, before: Entry, now: Entry, origin: Path) -> Checked:
    if checked.failure:
        return checked
    baseline = baseline_of(before, checked.case, origin)
    return replace(checked, baseline=replace(baseline, since=before.changes(now)))


def _progress(on_progress: OnProgress | None, each: Prepared, number: int, total: int) -> OnProgress | None:
    """One stage for each case if there are several; otherwise the phases of the only one."""
    if on_progress is None or total == 1:
        return on_progress
    stage = Progress(f"{number + 1} of {total}, {each.key.label}", number, total)
    on_progress(stage)
    return lambda now: on_progress(stage._replace(pid=now.pid))
