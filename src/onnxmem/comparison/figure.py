"""A measured quantity: all its samples, their median and how far they spread; and records that hold such figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from onnxmem.documents import Document, Record
from onnxmem.unknown import Unknown


@dataclass(frozen=True)
class Figure(Record):
    """All samples of one quantity, in the order they were taken."""

    samples: tuple[int | float, ...]

    @property
    def median(self) -> int | float:
        """The middle one, of an even number the lower: it was measured, and a disturbed run does not move it."""
        return statistics.median_low(self.samples)

    @property
    def low(self) -> int | float:
        """The smallest."""
        return min(self.samples)

    @property
    def high(self) -> int | float:
        """The largest."""
        return max(self.samples)


Known = Figure | Unknown


def figure(values: Iterable[int | float | Unknown | None], why: str) -> Known:
    """The figure of all known values; if there are none, the reason of the first unknown one, or `why`."""
    given = [value for value in values if value is not None]
    numbers = tuple(value for value in given if not isinstance(value, Unknown))
    return Figure(numbers) if numbers else next((v for v in given if isinstance(v, Unknown)), Unknown(why))


class Figures(Record):
    """A record with figures: medians stand under the keys of the fields, `spread` and `samples` beside them."""

    def document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        document = super().document()
        samples = {key: each["samples"] for key, each in document.items() if _is_figure(each)}
        medians = {key: statistics.median_low(each) for key, each in samples.items()}
        spread = {key: [min(each), max(each)] for key, each in samples.items()}
        return {**document, **medians, "spread": spread, "samples": samples}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The record that `document` wrote."""
        samples = document.get("samples") or {}
        return super().from_document({**document, **{key: {"samples": each} for key, each in samples.items()}})


def _is_figure(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"samples"}
