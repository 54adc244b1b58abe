"""What is the largest batch, image or sequence that fits into a budget, mode by mode? Model + budget → Fitting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from onnxmem.deadline import Deadline
from onnxmem.errors import UsageError
from onnxmem.fitting.axis import Axis, Given, read_dims
from onnxmem.fitting.changes import changes_of, recommend
from onnxmem.fitting.fitting import Answer, Fitting
from onnxmem.fitting.search import MARGINS, Sizes, at_sizes, search
from onnxmem.fitting.tiles import tiles_of
from onnxmem.fitting.verify import Trials
from onnxmem.measurement.scenario import check_threads
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import calibration
from onnxmem.prediction.predict import MODES, check_predictable
from onnxmem.progress import OnProgress, Progress
from onnxmem.schedule.scheduled import Question
from onnxmem.units import parse_bytes

_FAR = 0.85
"""No prediction is that much above what is then measured, but for a few."""


def fit(
    model: str | PathLike[str],
    budget: int | str | None = None,
    *,
    dims: Mapping[str, Given] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    modes: Sequence[str] | None = None,
    workers: int = 1,
    threads: int | None = None,
    verify: bool = False,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    time_limit: float = 600.0,
    on_progress: OnProgress | None = None,
) -> Fitting:
    """The largest size that fits into a budget: `fit("m.onnx", "512MiB", dims={"batch": "1..64"})`.

    For each mode there is a curve, too: what sizes below and above that take, `answers[0].modes[0].points`. Without a
    budget there is only the curve, over the whole range.

    A dimension has a number, a range (`"256..1024:32"`, `range(1, 65)`) or the name of another one that it is equal to.
    Without a range the batch grows, or if there is none every free dimension by itself. By prediction, and nothing is
    run; with `verify` the recommended mode, or those of `modes`, are run under a real limit until a size holds. With
    `workers` so many processes have to fit together. `ranges` and `seed` are for the inputs of runs.
    """
    deadline, path, step = Deadline(time_limit), Path(model), on_progress or (lambda _: None)
    limit = parse_bytes(budget) if isinstance(budget, str) else budget
    _check(limit, workers, modes)
    if verify and limit is None:
        raise UsageError("without a budget there is nothing to verify", hint="add one, as in --budget 512MiB")
    check_threads(threads)
    opened = Model.open(path)
    fixed, axes = read_dims(opened.inputs, dims or {}, shapes or {})
    step(Progress("what a process takes by itself"))
    environment = calibration()
    request = _Request(
        model=path,
        opened=opened,
        given=tuple(dims or ()),
        fixed=fixed,
        axes=axes,
        threads=threads,
        deadline=deadline,
        on_progress=step,
    )
    answers, sizes = [], []
    for axis in axes:
        found = Sizes(
            model=opened,
            axis=axis,
            question=request.question(axis),
            threads=threads,
            environment=environment,
            budget=limit,
            workers=workers,
            deadline=deadline,
            on_size=lambda _: step(Progress("predicting")),
        )
        sizes.append(found)
        answer = _answer(found, modes)
        if limit is not None:
            step(Progress("looking at what fits in pieces"))
            answer = replace(answer, tiles=tiles_of(found, answer.modes))
        if verify and limit is not None:
            feed = {"dims": request.others(axis), "ranges": ranges or {}, "seed": seed}
            answer = _verified(answer, request.trials(found, feed, limit), modes)
        answers.append(answer)
    return Fitting(
        model=opened.name,
        budget=limit,
        workers=workers,
        threads=sizes[0].threads_used,
        margins=MARGINS,
        fixed=fixed,
        assumed={name: number for each in sizes for name, number in each.assumed.items()},
        answers=tuple(answers),
        unknown_tensors=tuple(dict.fromkeys(name for each in sizes for name in each.unknown)),
    )


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What is asked, once it was checked."""

    model: Path
    opened: Model
    given: Collection[str]
    """Dimensions that the caller said something about."""
    fixed: Mapping[str, int]
    axes: Sequence[Axis]
    threads: int | None
    deadline: Deadline
    on_progress: OnProgress

    def others(self, axis: Axis) -> dict[str, int]:
        """The dimensions that stay the same along an axis: fixed ones, and other ranges at their beginning."""
        starts = [each.dims(each.start) for each in self.axes if each is not axis and each.names[0] in self.given]
        return {**self.fixed, **{name: size for each in starts for name, size in each.items()}}

    def question(self, axis: Axis) -> Any:
        """What is asked at a size."""
        others = self.others(axis)
        return lambda dims: Question(dims={**others, **dims}, time_limit=max(self.deadline.left, 1.0))

    def trials(self, sizes: Sizes, feed: Mapping[str, Any], budget: int) -> Trials:
        """What is measured."""
        return Trials(
            model=self.model,
            sizes=sizes,
            feed=feed,
            budget=budget,
            threads=self.threads,
            deadline=self.deadline,
            on_progress=self.on_progress,
        )


def _check(budget: int | None, workers: int, modes: Sequence[str] | None) -> None:
    if budget is not None and budget < 1:
        raise UsageError(f"a budget of {budget} bytes leaves nothing")
    if not 1 <= workers <= 256:
        raise UsageError(f"workers must be between 1 and 256; it is {workers}")
    for mode in modes or ():
        check_predictable(mode)


def _answer(sizes: Sizes, modes: Sequence[str] | None) -> Answer:
    found = search(sizes, tuple(dict.fromkeys(modes or MODES)))
    return Answer(
        axis=sizes.axis,
        modes=found,
        changes=changes_of(found),
        recommended=recommend(found),
        impossible=sizes.impossible,
    )


def _verified(answer: Answer, trials: Trials, modes: Sequence[str] | None) -> Answer:
    """The same, measured: the modes asked for, or the recommended one, and others only if that does not hold at all."""
    left = [mode.mode for mode in sorted(answer.modes, key=lambda mode: (-(mode.size or 0), mode.smallest.bytes))]
    if answer.recommended:
        left.sort(key=lambda mode: mode != answer.recommended)
    found = {mode.mode: mode for mode in answer.modes}
    for number, mode in enumerate(left):
        # One that is far too large by prediction is measured only if it is the best there is, or was asked for.
        if number and not modes and found[mode].smallest.bytes * _FAR > trials.budget:
            continue
        found[mode] = trials.verify(found[mode])
        if not modes and found[mode].holds is not None:
            break
    measured = [mode for mode in found.values() if mode.verified]
    held = [mode.holds for mode in measured if mode.holds is not None]
    every = tuple(at_sizes(trials.sizes, mode, held) for mode in found.values())
    return replace(answer, modes=every, changes=changes_of(every), recommended=recommend(measured))
