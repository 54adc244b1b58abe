"""How does memory grow with the input? A constant, and what each input element adds: linearly, or with its square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# From simple to complex. A square without a linear part is what attention looks like where it dominates.
FORMS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("constant", (0,)),
    ("constant + linear", (0, 1)),
    ("constant + quadratic", (0, 2)),
    ("constant + linear + quadratic", (0, 1, 2)),
)
_FLAT = 0.01
_BETTER = 0.8


@dataclass(frozen=True)
class Fit:
    """Peak RSS as a function of the number of input elements."""

    candidate: str
    form: str
    constant: float
    linear: float
    quadratic: float
    points: tuple[tuple[int, float], ...]
    """Elements and measured bytes."""
    error: float
    """The largest distance of a measured point from the fit, as a part of the measured value."""
    left_out: float | None
    """The same for points that the fit was not shown: the honest one. None where there are too few points."""

    def __call__(self, elements: float) -> float:
        """The fitted bytes."""
        return self.constant + self.linear * elements + self.quadratic * elements**2

    @property
    def range(self) -> tuple[int, int]:
        """Fewest and most elements that were measured: beyond is extrapolation."""
        return self.points[0][0], self.points[-1][0]

    def extrapolated(self, elements: float) -> bool:
        """Whether nothing so small or so large was measured."""
        low, high = self.range
        return not low <= elements <= high

    def document(self, beyond: Sequence[tuple[str, int]] = ()) -> dict[str, Any]:
        """As JSON; `beyond` are labels and element counts to predict."""
        return {
            "candidate": self.candidate,
            "quantity": "peak_rss_bytes",
            "variable": "input_elements",
            "form": self.form,
            "constant_bytes": self.constant,
            "linear_bytes": self.linear,
            "quadratic_bytes": self.quadratic,
            "points": [list(point) for point in self.points],
            "max_relative_error": self.error,
            "left_out_relative_error": self.left_out,
            "range": list(self.range),
            "predictions": [
                {"size": label, "elements": n, "bytes": round(self(n)), "extrapolated": self.extrapolated(n)}
                for label, n in beyond
            ],
        }


def fit(candidate: str, points: Sequence[tuple[int, float]]) -> Fit | None:
    """The simplest form that the points speak for; None for fewer than two sizes.

    Each form is judged by points it was not fitted to. One with more terms has to be clearly better, and none may say
    that larger inputs take less. Two points decide between a constant and a line, and nothing more.
    """
    points = tuple(sorted(points))
    if len({x for x, _ in points}) < 2:
        return None
    xs, ys = (np.array(column, np.float64) for column in zip(*points, strict=True))
    if float(ys.max() / ys.min()) - 1 < _FLAT:
        return _made(candidate, FORMS[0], xs, ys, points)
    chosen: Fit | None = None
    for form in FORMS[1:]:
        if len(form[1]) > max(2, len(points) - 1) or (form[0] == "constant + quadratic" and len(points) < 3):
            continue
        made = _made(candidate, form, xs, ys, points)
        if made.linear < 0 or made.quadratic < 0 or made.constant < 0:
            continue
        if chosen is None or _judged(made) < _BETTER * _judged(chosen):
            chosen = made
    return chosen or _made(candidate, FORMS[1], xs, ys, points)


def _judged(made: Fit) -> float:
    return made.error if made.left_out is None else made.left_out


def _made(
    candidate: str,
    form: tuple[str, tuple[int, ...]],
    xs: np.ndarray[Any, Any],
    ys: np.ndarray[Any, Any],
    points: tuple[tuple[int, float], ...],
) -> Fit:
    name, powers = form
    terms = _solve(xs, ys, powers)
    errors = np.abs(_values(terms, xs) - ys) / ys
    left_out = None
    if len(points) > len(powers):
        keep = [np.arange(len(xs)) != k for k in range(len(xs))]
        missed = [
            abs(float(_values(_solve(xs[m], ys[m], powers), xs[~m])[0] - y)) / y for m, y in zip(keep, ys, strict=True)
        ]
        left_out = float(max(missed))
    constant, linear, quadratic = (terms.get(power, 0.0) for power in (0, 1, 2))
    return Fit(candidate, name, constant, linear, quadratic, points, float(errors.max()), left_out)


def _solve(xs: np.ndarray[Any, Any], ys: np.ndarray[Any, Any], powers: tuple[int, ...]) -> dict[int, float]:
    # Scaled to 1, or squares of millions would drown the constant.
    scale = float(xs.max())
    matrix = np.stack([(xs / scale) ** power for power in powers], axis=1)
    solved, *_ = np.linalg.lstsq(matrix, ys, rcond=None)
    return {power: float(value) / scale**power for power, value in zip(powers, solved, strict=True)}


def _values(terms: dict[int, float], xs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    total: np.ndarray[Any, Any] = sum((value * xs**power for power, value in terms.items()), np.zeros(len(xs)))
    return total
