"""What a process will take in one mode, as a result that can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from onnxmem.documents import Record, stored
from onnxmem.result import Result
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown

WORKERS = (1, 2, 4, 8)
PARTS = (
    *("libraries", "interpreter", "inputs", "weights", "packed copies", "session", "kept by the heap"),
    *("activations", "scratch", "reuse", "pattern", "arena slack", "outputs"),
)
"""What is resident after the runs, by what it is, in the order in which it comes."""
_NOT_ASKED = Unknown("estimate finds it, for dimensions that are left open")


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    """A part of what is resident after the runs."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Term(Record):
    """So many bytes, times these powers of dimensions."""

    bytes: float
    powers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ModeFormula(Record):
    """The peak in bytes: the largest of `terms`' sums, where each dimension is in its range and a multiple."""

    text: str
    terms: tuple[tuple[Term, ...], ...]
    range: Mapping[str, tuple[int, int]]
    """From where to where it was made and checked."""
    multiples: Mapping[str, int]
    checked: int
    """At so many sizes it was compared with forecasts that it was not made from."""
    error: float
    """It was nowhere further off than this part of a forecast."""

    def at(self, dims: Mapping[str, int]) -> int:
        """The peak at these sizes."""
        sums = [
            sum(term.bytes * prod(float(dims[name]) ** power for name, power in term.powers.items()) for term in each)
            for each in self.terms
        ]
        return round(max(sums))


@dataclass(frozen=True, kw_only=True)
class Forecast(Record):
    """What a process that loads and runs a model will take in one mode, in bytes.

    The parts add up to what is resident after the runs.
    """

    mode: str
    load_peak: int = stored("load_peak_bytes")
    """The most that is resident while the model is loaded."""
    loaded: int = stored("loaded_bytes")
    """Resident before the first run."""
    run_growth: int = stored("run_growth_bytes")
    """What runs add to it …"""
    least_growth: int = stored("least_run_growth_bytes")
    """… at least, if they find all that loading left free …"""
    most_growth: int = stored("most_run_growth_bytes")
    """… and at most, if nothing of it fits. What fits is not the same from process to process."""
    peak: int = stored("peak_bytes")
    """The most that is ever resident."""
    shared: int = stored("shared_bytes")
    """Of what is resident after the runs, pages of files, which processes share."""
    parts: tuple[Part, ...]
    formula: ModeFormula | Unknown = _NOT_ASKED
    """The peak for other sizes."""

    @property
    def steady(self) -> int:
        """Resident after the runs."""
        return self.loaded + self.run_growth

    def pss(self, workers: int) -> int:
        """What so many processes take together, each shared page counted once."""
        return workers * (self.steady - self.shared) + self.shared

    def derived(self) -> Mapping[str, Any]:
        """What is resident after the runs, and what several such processes take together."""
        return {"steady_bytes": self.steady, "total_pss_bytes": {str(n): self.pss(n) for n in WORKERS}}


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(Forecast, Result):
    """The same of a model at given sizes. Tensors of unknown size are in no figure."""

    SCHEMA: ClassVar[str] = "onnxmem.predict/1"

    model: str
    threads: int
    inputs: Mapping[str, tuple[int, ...]]
    assumed: Mapping[str, int]
    """Dimensions that were left open, and the numbers used for them."""
    unknown_tensors: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Prediction of {self.model}, mode {self.mode}: peak {format_bytes(self.peak)}>"
