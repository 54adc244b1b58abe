"""How much more may something take before that counts as grown? "5%" of it, or "4MiB"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnxmem.documents import Record, stored
from onnxmem.errors import UsageError
from onnxmem.units import format_bytes, parse_bytes

_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
USUAL = "5%"


@dataclass(frozen=True)
class Tolerance(Record):
    """A part of what it was, or so many bytes."""

    fraction: float = 0.0
    size: int = stored("bytes", default=0)

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Read "5%" or "4MiB"."""
        if match := _PERCENT.fullmatch(text):
            return cls(fraction=float(match[1]) / 100)
        try:
            return cls(size=parse_bytes(text))
        except UsageError:
            raise UsageError(f"'{text}' is not a tolerance", hint="write for example 5% or 4MiB") from None

    def above(self, size: int) -> int:
        """The most that is not yet grown."""
        return size + int(size * self.fraction) + self.size

    def __str__(self) -> str:
        return f"{self.fraction * 100:g}%" if self.fraction else format_bytes(self.size)
