"""The result of comparing: immutable, and the same as versioned JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmem.comparison.advice import Advice
from onnxmem.comparison.figure import Figure
from onnxmem.comparison.fits import Fit
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import Result
from onnxmem.comparison.rows import Row
from onnxmem.comparison.sizes import Size
from onnxmem.comparison.trials import Conditions
from onnxmem.environment import Environment

SCHEMA = "onnxmem.compare/1"
BEYOND = (2.0, 4.0)
"""Where fits are asked beyond what was measured: inputs of so many times the elements."""


@dataclass(frozen=True)
class Comparison:
    """What candidates took, side by side."""

    results: tuple[Result, ...]
    sizes: tuple[Size, ...]
    parity: Parity
    rows: tuple[Row, ...]
    fits: tuple[Fit, ...]
    advice: tuple[Advice, ...]
    conditions: Conditions
    environment: Environment
    exported: Mapping[str, str]
    """ONNX twins made on the way: the PyTorch candidate by the twin's name."""

    @property
    def ok(self) -> bool:
        """Whether all candidates ran and gave the same answers."""
        return self.parity.same and all(result.ok for result in self.results)

    @property
    def finished(self) -> tuple[Result, ...]:
        """Those that ran at every size."""
        return tuple(result for result in self.results if result.ok)

    @property
    def smallest(self) -> Result | None:
        """The one with the lowest peak at the largest size among those that finished and agree."""
        fit = [r for r in self.finished if self.parity.agrees(r.name) and isinstance(r.at[-1].peak, Figure)]
        return min(fit, key=peak_of, default=None)

    def beyond(self) -> list[tuple[str, int]]:
        """Sizes that were not measured, to extrapolate to."""
        largest = self.sizes[-1]
        return [(f"{factor:g} × n({largest.label})", round(largest.elements * factor)) for factor in BEYOND]

    def disagreements(self, again: Comparison) -> list[str]:
        """Did a second comparison say the same? The rows of which it did not, with both verdicts."""
        found = []
        for first, second in zip(self.rows, again.rows, strict=True):
            before, after = first.winner or first.decision.verdict, second.winner or second.decision.verdict
            if before != after:
                found.append(f"{first.label}: {before}, then {after}")
        return found

    def document(self) -> dict[str, Any]:
        """`onnxmem.compare/1`: bytes as integers, seconds as floats, null with a reason where nothing is known."""
        return {
            "schema": SCHEMA,
            "candidates": [result.document() for result in self.results],
            "sizes": [
                {
                    "size": size.label,
                    "shapes": {name: list(shape) for name, shape in size.shapes.items()},
                    "dtypes": {name: str(array.dtype) for name, array in size.arrays.items()},
                    "elements": size.elements,
                    "assumed": dict(size.assumed),
                }
                for size in self.sizes
            ],
            "parity": self.parity.document(),
            "rows": [row.document() for row in self.rows],
            "fits": [fit.document(self.beyond()) for fit in self.fits],
            "advice": [each.document() for each in self.advice],
            "exported": dict(self.exported),
            "conditions": dict(self.conditions.__dict__),
            "environment": self.environment.document(),
        }


def peak_of(result: Result) -> float:
    """The median peak at the largest size."""
    peak = result.at[-1].peak
    return peak.median if isinstance(peak, Figure) else float("inf")
