"""Stock lets a tensor take the place of an ended one of the same size, and keeps that place in between."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.explaining.leaner import leaner_mode, saved_in_mode
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """What places that are kept for later take at the peak."""
    stretched = explained.part("reuse")
    if explained.mode != "stock" or not stretched:
        return None
    mode, tensors = leaner_mode(explained), explained.part("activations")
    return saved_in_mode(
        explained,
        mode,
        stretched,
        rule="reuse",
        what="same-size reuse",
        evidence=f"Places that wait for a tensor of the same size take {format_bytes(stretched)} at the peak, where "
        f"{format_bytes(tensors)} are alive.",
    )
