"""A measured quantity: the median of several, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onnxmem.unknown import Unknown


@dataclass(frozen=True)
class Figure:
    """All samples of one quantity, in the order they were taken."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one: a disturbed run does not move it."""
        return statistics.median(self.samples)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.samples)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.samples)


Known = Figure | Unknown


def figure(values: Iterable[float | Unknown | None], why: str) -> Known:
    """The figure of all known values; if there are none, the reason of the first unknown one, or `why`."""
    values = list(values)
    numbers = tuple(value for value in values if value is not None and not isinstance(value, Unknown))
    if numbers:
        return Figure(numbers)
    return next((value for value in values if isinstance(value, Unknown)), Unknown(why))


def plain(value: Known) -> int | float | None:
    """The median as JSON has it: bytes stay integers."""
    if isinstance(value, Unknown):
        return None
    return round(value.median) if all(isinstance(sample, int) for sample in value.samples) else value.median


def spread(value: Known) -> list[Any] | None:
    """Smallest and largest, as JSON; None if there is no figure."""
    return None if isinstance(value, Unknown) else [value.low, value.high]
