"""What is the largest size that fits? Predictions at few sizes, each made once, in the order a search asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnxmem.deadline import Deadline
from onnxmem.errors import ImpossibleShapes, UsageError
from onnxmem.fitting.axis import Axis
from onnxmem.fitting.fitting import ModeFit, Point
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import Calibration
from onnxmem.prediction.loading import INLINE
from onnxmem.prediction.predict import Subject, forecast_mode
from onnxmem.prediction.prediction import Forecast
from onnxmem.prediction.requests import unknown_tensors
from onnxmem.schedule.scheduled import Question

MARGINS = {"loading": 0.13, "stock": 0.10, "runs": 0.05}
"""Kept free above a prediction, as a part of it: of loading a model's own file, of runs in stock's arena, of everything
else. Of 972 processes that were measured, 964 took less. What loading leaves in the heap is what is known least, and it
is the same at every size; with one margin of 8 % for all, which leaves as much free on average, 50 took more."""
_FARTHEST = 1 << 16
"""Steps after which a range without an end is given up."""
_LOOKED_AT = 12
"""Sizes below and above the answers that are looked at, too."""
_WITHOUT_BUDGET = 63
"""Steps that are looked at if neither a budget nor a range has an end."""
_WALK = 40
"""Sizes at the beginning of a range that the model may refuse, …"""
_REFUSED = 6
"""… and those, further and further apart, after which it is taken to refuse all that are larger."""
_WORKERS = 1024


def together(forecast: Forecast, workers: int) -> int:
    """What so many workers take at most, of which one loads or makes its plan while the others have run."""
    return forecast.pss(workers) + max(0, forecast.peak - forecast.steady)


def needed(forecast: Forecast, workers: int) -> int:
    """The same with the margin: a budget that will do."""
    runs = 1 + MARGINS.get(forecast.mode, MARGINS["runs"])
    loading = 1 + MARGINS["loading"] if forecast.mode in INLINE else runs
    return round(forecast.pss(workers) * runs + max(0.0, forecast.load_peak * loading - forecast.steady * runs))


def workers_within(forecast: Forecast, budget: int) -> int:
    """How many workers fit with the margin."""
    count = 0
    while count < _WORKERS and needed(forecast, count + 1) <= budget:
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
    budget: int | None
    workers: int
    deadline: Deadline
    on_size: Callable[[int], None]
    _subjects: dict[int, Subject | None] = field(default_factory=dict)
    _forecasts: dict[tuple[str, int], Forecast] = field(default_factory=dict)

    def subject(self, index: int) -> Subject | None:
        """The model at this size; None if it cannot run there."""
        if index not in self._subjects:
            size = self.axis.size(index)
            self.on_size(size)
            try:
                self._subjects[index] = self._read(self.question(self.axis.dims(size)))
            except ImpossibleShapes:
                if not self.axis.names:
                    raise
                self._subjects[index] = None
        return self._subjects[index]

    def _read(self, question: Question) -> Subject:
        found = Subject.of(self.model, question, self.threads)
        other = next((subject for subject in self._subjects.values() if subject is not None), None)
        return found if other is None else other.at(found.graph, found.assumed)

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

    def needed(self, mode: str, index: int) -> int | None:
        """The same with the margin."""
        forecast = self.forecast(mode, index)
        return None if forecast is None else needed(forecast, self.workers)

    def fits(self, mode: str, index: int) -> bool:
        """Whether that fits with the margin."""
        need = self.needed(mode, index)
        return need is not None and (self.budget is None or need <= self.budget)

    def seen(self, index: int) -> bool:
        """Whether this size was looked at."""
        return index in self._subjects

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
    """Each mode's largest size that fits, if there is a budget, and what is below and above it."""
    first = sizes.first
    top = _reach(sizes, modes, first)
    found = {mode: None if sizes.budget is None else _largest(sizes, mode, first, top) for mode in modes}
    sizes.check_steps()
    places = _places(sizes, modes, first, top, [index for index in found.values() if index is not None])
    return tuple(_fit(sizes, mode, places, found[mode], top) for mode in modes)


def _places(sizes: Sizes, modes: Sequence[str], first: int, top: int, answers: Sequence[int]) -> list[int]:
    """The places of the curves, small to large, the answers among them; each has been looked at if there was time."""
    # As far again as the highest answer, so that a picture shows where the budget is crossed, and what follows.
    end = top if sizes.budget is None else min(top, 2 * max(answers, default=first) - first + 1)
    even = [first + (end - first) * k // _LOOKED_AT for k in range(_LOOKED_AT + 1)]
    # The ends first and then halves: if the time is over, what is left lies between sizes that are known.
    for k in sorted(range(_LOOKED_AT + 1), key=lambda k: -(k & -k) if 0 < k < _LOOKED_AT else -_LOOKED_AT):
        if sizes.deadline.passed and even[k] not in (first, end):
            break
        for mode in modes:
            sizes.forecast(mode, even[k])
    if sizes.budget is None:
        sizes.check_steps()
    return sorted({*even, *answers})


def _fit(sizes: Sizes, mode: str, places: Sequence[int], answer: int | None, top: int) -> ModeFit:
    axis, smallest = sizes.axis, sizes.forecast(mode, places[0])
    assert smallest is not None  # the first size is possible
    below = (index for index in places if answer is not None and index < answer and sizes.seen(index))
    return ModeFit(
        mode=mode,
        size=None if answer is None else axis.size(answer),
        open_end=axis.last is None and answer is not None and answer >= top,
        gaps=tuple(axis.size(i) for i in below if sizes.need(mode, i) is not None and not sizes.fits(mode, i)),
        workers=None if sizes.budget is None else workers_within(smallest, sizes.budget),
        points=tuple(_curve(sizes, mode, places)),
    )


def _curve(sizes: Sizes, mode: str, places: Sequence[int]) -> Iterator[Point]:
    """What a mode takes at these places; those that nobody has looked at lie on the line between their neighbours."""
    forecasts = {index: found for index in places if sizes.seen(index) and (found := sizes.forecast(mode, index))}
    known = {index: _point(sizes, index, found) for index, found in forecasts.items()}
    for index in places:
        if index in known:
            yield known[index]
        elif not sizes.seen(index):
            low = max(place for place in known if place < index)
            high = min((place for place in known if place > index), default=None)
            if high is not None:
                part = (index - low) / (high - low)
                ends = (known[low].bytes, known[high].bytes), (known[low].needed, known[high].needed)
                least, safe = (round(a + part * (b - a)) for a, b in ends)
                yield Point(size=sizes.axis.size(index), bytes=least, needed=safe, exact=False)


def at_sizes(sizes: Sizes, fit: ModeFit, more: Sequence[int]) -> ModeFit:
    """The same with these sizes on its curve, too."""
    known = {point.size: point for point in fit.points}
    for size in more:
        index = (size - sizes.axis.start) // sizes.axis.step
        if size not in known and (found := sizes.forecast(fit.mode, index)):
            known[size] = _point(sizes, index, found)
    return replace(fit, points=tuple(known[size] for size in sorted(known)))


def _point(sizes: Sizes, index: int, forecast: Forecast) -> Point:
    least, safe = together(forecast, sizes.workers), needed(forecast, sizes.workers)
    return Point(size=sizes.axis.size(index), bytes=least, needed=safe, exact=not sizes.unknown)


def _reach(sizes: Sizes, modes: Sequence[str], first: int) -> int:
    """The last place of the range, or one where nothing fits any more."""
    if sizes.axis.last is not None:
        return sizes.axis.last
    if sizes.budget is None:
        return first + _WITHOUT_BUDGET
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
    below, above = sizes.needed(mode, low), sizes.needed(mode, high)
    if below is None or above is None or above <= below:
        return (low + high) // 2
    assert sizes.budget is not None  # without one there is nothing to search
    part = (sizes.budget - below) / (above - below)
    return min(max(low + int(part * (high - low)), low + 1), high - 1)
