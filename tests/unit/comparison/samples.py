"""Comparisons made of plain numbers."""

from __future__ import annotations

from typing import Any

from onnxmem.comparison.compare import Comparison
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import AtSize, CandidateResult, Figure, Part
from onnxmem.comparison.sizes import InputSize
from onnxmem.comparison.trials import Conditions
from onnxmem.unknown import Unknown

MIB = 2**20


def candidate(name: str, *peaks: int, batch: int = 4, **more: Any) -> CandidateResult:
    """A candidate with so many MiB at the peak, in each process that was measured at its one size."""
    known = Figure(tuple(peak * MIB for peak in peaks))
    some = Figure(tuple(10 * MIB + k for k in range(len(peaks))))
    at = AtSize(
        size="x",
        shapes={"x": (batch, 3)},
        peak=known,
        own_peak=known,
        run_growth=Figure(tuple(peak * MIB // 2 for peak in peaks)),
        latency=Figure((0.1,) * len(peaks)),
        first_run=Unknown("it was not asked for"),
        failure=None,
    )
    figures: dict[str, Any] = {
        "kind": "onnx",
        "mode": "stock",
        "framework": "ONNX Runtime 1.31.1",
        "file_bytes": MIB,
        "import_growth": some,
        "import_seconds": Figure((0.5, 0.25)),
        "load_growth": some,
        "load_seconds": Figure((0.5, 1)),
        "total_rss": some,
        "load_peak": some,
        "cold_start": Unknown("it did not run"),
        "breakdown": (Part("load", 3), Part("peak", 3)),
        "failure": None,
        **more,
    }
    return CandidateResult(name=name, at=(at,), **figures)


def comparison(*candidates: CandidateResult, **more: Any) -> Comparison:
    """A comparison of these, which give the same answers."""
    figures: dict[str, Any] = {
        "parity": Parity(candidates[0].name if candidates else None, 1e-4, ()),
        "advice": (),
        "conditions": Conditions(),
        "exported": {},
        **more,
    }
    size = InputSize(label="x", shapes={"x": (4, 3)}, dtypes={"x": "float32"}, assumed={})
    return Comparison(candidates=candidates, sizes=(size,), **figures)
