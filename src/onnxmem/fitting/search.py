"""What is the largest size that fits? Predictions at few sizes, each made once, in the order a search asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxmem.errors import ImpossibleShapes, UsageError
from onnxmem.fitting.axis import Axis
from onnxmem.fitting.fitting import ModeFit, Point
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import Calibration
from onnxmem.prediction.predict import Subject, forecast_mode
from onnxmem.prediction.prediction import Forecast
from onnxmem.prediction.requests import unknown_tensors
from onnxmem.schedule.scheduled import Question

MARGIN = 0.08
"""Kept free above a prediction, as a part of it. Of some 700 processes that were measured, 19 in 20 took less than that
more than predicted; with a larger one, those that are predicted well would give away a tenth."""
_FARTHEST = 1 << 16
"""Steps after which a range without an end is given up."""
_LOOKED_AT = 8
"""Sizes below the answer that are looked at, too."""
_WALK = 40
"""Sizes at the beginning of a range that the model may refuse, …"""
_REFUSED = 6
"""… and those, further and further apart, after which it is taken to refuse all that are larger."""
_WORKERS = 1024


def together(forecast: Forecast, workers: int) -> int:
    """What so many workers take at most, of which one loads or makes its plan while the others have run."""
    return forecast.pss(workers) + max(0, forecast.peak - forecast.steady)


def workers_within(forecast: Forecast, budget: int) -> int:
    """How many workers fit with the margin."""
    count = 0
    while count < _WORKERS and together(forecast, count + 1) * (1 + MARGIN) <= budget:
        count += 1
    return count


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A model along one range of sizes: forecasts, each made when it is first asked for."""

    model: Model
    axis: Axis
    question: Callable[[Mapping[str, int]], Question]
    threads: int | None
    environment: Calibration
    budget: int
    workers: int
    on_size: Callable[[int], None]
    _subjects: dict[int, Subject | None] = field(default_factory=dict)
    _forecasts: dict[tuple[str, int], Forecast] = field(default_factory=dict)

    def subject(self, index: int) -> Subject | None:
        """The model at this size; None if it cannot run there."""
        if index not in self._subjects:
            size = self.axis.size(index)
            self.on_size(size)
            try:
                self._subjects[index] = Subject.of(self.model, self.question(self.axis.dims(size)), self.threads)
            except ImpossibleShapes:
                if not self.axis.names:
                    raise
                self._subjects[index] = None
        return self._subjects[index]

    def forecast(self, mode: str, index: int) -> Forecast | None:
        """What a mode takes there; None if the model cannot run there."""
        subject = self.subject(index)
        if subject is None:
            return None
        if (mode, index) not in self._forecasts:
            self._forecasts[mode, index] = forecast_mode(subject, mode, self.environment)
        return self._forecasts[mode, index]

    def need(self, mode: str, index: int) -> int | None:
        """What all workers together take there, without the margin."""
        forecast = self.forecast(mode, index)
        return None if forecast is None else together(forecast, self.workers)

    def fits(self, mode: str, index: int) -> bool:
        """Whether that fits with the margin."""
        need = self.need(mode, index)
        return need is not None and need * (1 + MARGIN) <= self.budget

    @property
    def impossible(self) -> tuple[int, ...]:
        """The sizes that the model cannot run at, of those that were looked at."""
        return tuple(self.axis.size(index) for index in sorted(self._subjects) if self._subjects[index] is None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Tensors of unknown size."""
        found = (unknown_tensors(subject.graph) for subject in self._subjects.values() if subject is not None)
        return tuple(dict.fromkeys(name for names in found for name in names))

    @property
    def threads_used(self) -> int:
        """How many threads it is about."""
        return next(subject.threads for subject in self._subjects.values() if subject is not None)

    @property
    def assumed(self) -> Mapping[str, int]:
        """Dimensions that nobody decided, and the numbers used for them."""
        return next(subject.assumed for subject in self._subjects.values() if subject is not None)

    @property
    def first(self) -> int:
        """The smallest size that the model can run at."""
        last = self.axis.last
        for index in range(_WALK if last is None else min(last + 1, _WALK)):
            if self.subject(index) is not None:
                return index
        raise UsageError(
            f"the model runs at none of the sizes {self.axis.start} … {self.axis.size(index)} of {self.axis.label}",
            hint=f"give sizes that suit it, as in --dim {self.axis.names[0]}=256..1024:32",
        )

    def check_steps(self) -> None:
        """An error if the model cannot run at a size between others: then the search has looked in wrong places."""
        possible = [index for index, subject in self._subjects.items() if subject is not None]
        for index in sorted(self._subjects):
            above = [each for each in possible if each > index > min(possible)]
            if self._subjects[index] is None and above:
                name, wrong, right = self.axis.names[0], self.axis.size(index), self.axis.size(min(above))
                raise UsageError(
                    f"the model cannot run with {self.axis.label} {wrong}, but with {right}: not every size suits it",
                    hint=f"say in which steps its sizes go, as in --dim {name}=32..{right * 2}:32",
                )


def search(sizes: Sizes, modes: Sequence[str]) -> tuple[ModeFit, ...]:
    """Each mode's largest size that fits, and what is below it."""
    first = sizes.first
    top = _reach(sizes, modes, first)
    found = {mode: _largest(sizes, mode, first, top) for mode in modes}
    sizes.check_steps()
    highest = max((index for index in found.values() if index is not None), default=first)
    # One step beyond the highest answer, so that a picture shows where the budget is crossed.
    shown = {first + (min(highest + 1, top) - first) * k // _LOOKED_AT for k in range(_LOOKED_AT + 1)}
    shown |= {index for index in found.values() if index is not None}
    fits = []
    for mode in modes:
        points, gaps, answer = [], [], found[mode]
        for index in sorted(shown):
            need = sizes.need(mode, index)
            if need is None:
                continue
            points.append(Point(size=sizes.axis.size(index), bytes=need))
            if answer is not None and index < answer and not sizes.fits(mode, index):
                gaps.append(sizes.axis.size(index))
        forecast = sizes.forecast(mode, first)
        assert forecast is not None  # the first size is possible
        fits.append(
            ModeFit(
                mode=mode,
                size=None if answer is None else sizes.axis.size(answer),
                open_end=sizes.axis.last is None and answer is not None and answer >= top,
                gaps=tuple(gaps),
                workers=workers_within(forecast, sizes.budget),
                points=tuple(points),
            )
        )
    return tuple(fits)


def _reach(sizes: Sizes, modes: Sequence[str], first: int) -> int:
    """The last place of the range, or one where nothing fits any more."""
    if sizes.axis.last is not None:
        return sizes.axis.last
    distance, refused = 1, 0
    while distance < _FARTHEST:
        refused = refused + 1 if sizes.subject(first + distance) is None else 0
        if refused > _REFUSED or not (refused or any(sizes.fits(mode, first + distance) for mode in modes)):
            break
        distance *= 2
    return first + distance


def _largest(sizes: Sizes, mode: str, first: int, top: int) -> int | None:
    """The largest that fits: alternately where a straight line meets the budget, and in the middle."""
    if not sizes.fits(mode, first):
        return None
    if sizes.fits(mode, top):
        return top
    low, high, straight = first, top, True
    while high - low > 1:
        guess = _on_line(sizes, mode, low, high) if straight else (low + high) // 2
        straight = not straight
        if sizes.fits(mode, guess):
            low = guess
        else:
            high = guess
    return low


def _on_line(sizes: Sizes, mode: str, low: int, high: int) -> int:
    below, above = sizes.need(mode, low), sizes.need(mode, high)
    if below is None or above is None or above <= below:
        return (low + high) // 2
    part = (sizes.budget / (1 + MARGIN) - below) / (above - below)
    return min(max(low + int(part * (high - low)), low + 1), high - 1)
