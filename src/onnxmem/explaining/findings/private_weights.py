"""Weights in the heap are private: every further process has its own copy."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """What one more process would not need if the weights were mapped."""
    weights, packed = explained.part("weights"), explained.part("packed copies")
    if explained.loaded_as not in ("stock", "tuned", "planned", "ort") or not weights + packed:
        return None
    return Finding(
        rule="private_weights",
        what="private weights",
        evidence=f"Weights take {format_bytes(weights)} and packed copies {format_bytes(packed)}, all of it private.",
        advice="Share its weights between processes, if several run it",
        saving=weights + packed,
        when="for each further process",
        command=explained.command("pack", "-o", "package"),
    )
