"""From the second run on, stock's memory pattern takes one more block, beside the arena of the first run."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.explaining.leaner import leaner_mode, saved_in_mode
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """The block that the pattern takes."""
    block = explained.part("pattern")
    if explained.mode != "stock" or not block:
        return None
    mode, tensors = leaner_mode(explained), explained.part("activations")
    return saved_in_mode(
        explained,
        mode,
        block,
        rule="pattern",
        what="memory pattern",
        evidence=f"The pattern takes a second block of {format_bytes(block)}, beside the {format_bytes(tensors)} in "
        "which the first run held its tensors.",
    )
