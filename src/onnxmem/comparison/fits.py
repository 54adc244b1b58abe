"""How does memory grow with the input? A constant, and what each input element adds: linearly, or with its square."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from onnxmem.documents import Record, stored

Array = np.ndarray[Any, Any]
_Form = tuple[str, tuple[int, ...]]
# From simple to complex. A square without a linear part is what attention looks like where it dominates.
FORMS: tuple[_Form, ...] = (
    ("constant", (0,)),
    ("constant + linear", (0, 1)),
    ("constant + quadratic", (0, 2)),
    ("constant + linear + quadratic", (0, 1, 2)),
)
_FLAT = 0.01
_BETTER = 0.8


class Prediction(NamedTuple):
    """What a fit says about another size."""

    size: str
    elements: int
    bytes: int
    extrapolated: bool
    """Whether nothing so small or so large was measured."""


@dataclass(frozen=True, kw_only=True)
class Fit(Record):
    """Peak RSS as a function of the number of input elements."""

    candidate: str
    quantity: str = "peak_rss_bytes"
    variable: str = "input_elements"
    form: str
    constant: float = stored("constant_bytes")
    linear: float = stored("linear_bytes")
    quadratic: float = stored("quadratic_bytes")
    points: tuple[tuple[int, float], ...]
    """Elements and measured bytes."""
    error: float = stored("max_relative_error")
    """The largest distance of a measured point from the fit, as a part of the measured value."""
    left_out: float | None = stored("left_out_relative_error")
    """The same for points that the fit was not shown: the honest one. None where there are too few points."""
    predictions: tuple[Prediction, ...] = ()

    def __call__(self, elements: float) -> float:
        """The fitted bytes."""
        return self.constant + self.linear * elements + self.quadratic * elements**2

    @property
    def range(self) -> tuple[int, int]:
        """Fewest and most elements that were measured: beyond is extrapolation."""
        return self.points[0][0], self.points[-1][0]

    def derived(self) -> Mapping[str, Any]:
        """The range that was measured."""
        return {"range": self.range}

    def predict(self, size: str, elements: int) -> Prediction:
        """What the fit says about a size."""
        low, high = self.range
        return Prediction(size, elements, round(self(elements)), not low <= elements <= high)


def fit(candidate: str, points: Sequence[tuple[int, float]], others: Iterable[tuple[str, int]] = ()) -> Fit | None:
    """The simplest form that the points speak for; None for fewer than two sizes. `others` are sizes to predict.

    Each form is judged by points it was not fitted to. One with more terms has to be clearly better, and none may say
    that larger inputs take less. Two points decide between a constant and a line, and nothing more.
    """
    points = tuple(sorted(points))
    if len({x for x, _ in points}) < 2:
        return None
    sizes = [y for _, y in points]
    if max(sizes) / min(sizes) - 1 < _FLAT:
        chosen = _fitted(candidate, FORMS[0], points)
    else:
        tried = [_fitted(candidate, form, points) for form in FORMS[1:] if _allowed(form, len(points))]
        good = [each for each in tried if min(each.constant, each.linear, each.quadratic) >= 0]
        chosen = good[0] if good else _fitted(candidate, FORMS[1], points)
        for each in good[1:]:
            if _judged(each) < _BETTER * _judged(chosen):
                chosen = each
    return replace(chosen, predictions=tuple(chosen.predict(*other) for other in others))


def _allowed(form: _Form, count: int) -> bool:
    name, powers = form
    return len(powers) <= max(2, count - 1) and (name != "constant + quadratic" or count >= 3)


def _judged(made: Fit) -> float:
    return made.error if made.left_out is None else made.left_out


def _fitted(candidate: str, form: _Form, points: tuple[tuple[int, float], ...]) -> Fit:
    name, powers = form
    xs, ys = (np.array(column, np.float64) for column in zip(*points, strict=True))
    terms = _solve(xs, ys, powers)
    left_out = None
    if len(points) > len(powers):
        others = [np.arange(len(xs)) != k for k in range(len(xs))]
        left_out = max(_error(_solve(xs[kept], ys[kept], powers), xs[~kept], ys[~kept]) for kept in others)
    return Fit(
        candidate=candidate,
        form=name,
        constant=terms.get(0, 0.0),
        linear=terms.get(1, 0.0),
        quadratic=terms.get(2, 0.0),
        points=points,
        error=_error(terms, xs, ys),
        left_out=left_out,
    )


def _solve(xs: Array, ys: Array, powers: tuple[int, ...]) -> dict[int, float]:
    # Scaled to 1, or squares of millions would drown the constant.
    scale = float(xs.max())
    matrix = np.stack([(xs / scale) ** power for power in powers], axis=1)
    solved, *_ = np.linalg.lstsq(matrix, ys, rcond=None)
    return {power: float(value) / scale**power for power, value in zip(powers, solved, strict=True)}


def _error(terms: Mapping[int, float], xs: Array, ys: Array) -> float:
    """The largest distance from the points, as a part of each."""
    fitted = sum(value * xs**power for power, value in terms.items())
    return float((np.abs(fitted - ys) / ys).max())
