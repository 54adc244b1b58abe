"""What loading frees stays in the C library's heap until somebody trims it; stock does not."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.explaining.leaner import leaner_mode, saved_in_mode
from onnxmem.session.modes import find_mode
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """Freed memory that is still resident."""
    kept = explained.part("kept by the heap")
    if find_mode(explained.mode).trim or not kept:
        return None
    mode = leaner_mode(explained) if explained.mode == "stock" else "ort-mapped-packed"
    return saved_in_mode(
        explained,
        mode,
        kept,
        rule="heap_retention",
        what="heap kept after loading",
        evidence=f"Of what loading took, {format_bytes(kept)} were freed and are still resident.",
        advice=f"Run it {mode}: it trims the heap" if mode in ("tuned", "planned") else f"Load it {mode}",
    )
