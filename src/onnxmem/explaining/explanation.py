"""A measured peak, explained: its parts and what would make it smaller, as a result that can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from onnxmem.documents import stored
from onnxmem.explaining.attribution import ABOUT, UNKNOWN
from onnxmem.explaining.finding import Finding
from onnxmem.prediction.prediction import Part
from onnxmem.result import Result
from onnxmem.units import format_bytes, format_percent


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Result):
    """Every byte of a measured peak, by what it is, and findings: the largest saving first."""

    SCHEMA: ClassVar[str] = "onnxmem.explain/1"

    model: str
    mode: str
    inputs: Mapping[str, tuple[int, ...]]
    peak: int = stored("peak_bytes")
    load_peak: int = stored("load_peak_bytes")
    run_peak: int = stored("run_peak_bytes")
    parts: tuple[Part, ...]
    """They add up to the peak."""
    findings: tuple[Finding, ...]
    """What depends on a condition comes after what does not."""
    notes: tuple[str, ...] = ()
    measured: str = ""
    """The command and the date of the measurement."""

    @property
    def unknown(self) -> int:
        """What no part explains, in bytes."""
        return self.part(UNKNOWN)

    def part(self, name: str) -> int:
        """One part in bytes; 0 if there is none of it."""
        return sum(part.bytes for part in self.parts if part.name == name)

    def derived(self) -> Mapping[str, Any]:
        """How much of the peak is not explained, and what each part is."""
        return {
            "unknown_fraction": self.unknown / self.peak,
            "about": {part.name: ABOUT[part.name] for part in self.parts},
        }

    def __repr__(self) -> str:
        share = format_percent(self.unknown / self.peak)
        return (
            f"<Explanation of {self.model}, mode {self.mode}: peak {format_bytes(self.peak)}, {share} of it unknown, "
            f"{len(self.findings)} findings>"
        )
