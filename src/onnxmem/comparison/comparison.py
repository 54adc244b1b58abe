"""The result of comparing: what was measured of each candidate, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from onnxmem.comparison.advice import Advice
from onnxmem.comparison.fits import Fit, fit
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import CandidateResult, Figure
from onnxmem.comparison.rows import Row, make_rows
from onnxmem.comparison.sizes import InputSize
from onnxmem.comparison.trials import Conditions
from onnxmem.result import Result

BEYOND = (2.0, 4.0)
"""Where fits are asked beyond what was measured: inputs of so many times the elements."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """What candidates took, side by side."""

    SCHEMA: ClassVar[str] = "onnxmem.compare/1"

    candidates: tuple[CandidateResult, ...]
    sizes: tuple[InputSize, ...]
    parity: Parity
    advice: tuple[Advice, ...]
    conditions: Conditions
    exported: Mapping[str, str]
    """ONNX twins made on the way: the PyTorch candidate by the twin's name."""

    @property
    def ok(self) -> bool:
        """Whether all candidates ran and gave the same answers."""
        return self.parity.same and all(each.ok for each in self.candidates)

    @property
    def finished(self) -> tuple[CandidateResult, ...]:
        """Those that ran at every size."""
        return tuple(each for each in self.candidates if each.ok)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each figure: who takes least, if that is decided."""
        return make_rows(self.candidates, [size.label for size in self.sizes], self.parity)

    @cached_property
    def fits(self) -> tuple[Fit, ...]:
        """How each candidate's peak grows with the input; none for a single size."""
        return make_fits(self.candidates, self.sizes)

    def disagreements(self, again: Comparison) -> list[str]:
        """Did a second comparison say the same? The rows of which it did not, with both verdicts."""
        both = [
            (first.label, first.winner or first.verdict, second.winner or second.verdict)
            for first, second in zip(self.rows, again.rows, strict=True)
        ]
        return [f"{label}: {before}, then {after}" for label, before, after in both if before != after]

    def derived(self) -> Mapping[str, Any]:
        """The rows and the fits."""
        return {"rows": self.rows, "fits": self.fits}


def make_fits(candidates: tuple[CandidateResult, ...], sizes: tuple[InputSize, ...]) -> tuple[Fit, ...]:
    """The fit of each candidate that ran at several sizes, with predictions for larger ones."""
    beyond = [
        (f"{factor:g} × n({size.label})", round(size.elements * factor)) for size in sizes[-1:] for factor in BEYOND
    ]
    fitted = (
        fit(each.name, [(at.elements, at.peak.median) for at in each.at if isinstance(at.peak, Figure)], beyond)
        for each in candidates
    )
    return tuple(each for each in fitted if each)
