"""ONNX Runtime's arena grows by powers of two, and what it leaves between tensors is nobody's."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.explaining.leaner import saved_in_mode
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """What the arena takes beyond what is in it."""
    slack = explained.part("arena slack")
    if explained.mode == "planned" or not slack:
        return None
    used = sum(map(explained.part, ("activations", "scratch", "outputs", "reuse", "pattern")))
    return saved_in_mode(
        explained,
        "planned",
        slack,
        rule="arena_slack",
        what="arena slack",
        evidence=f"The arena has written to {format_bytes(used + slack)} for {format_bytes(used)}: it grows by powers "
        "of two, and leaves gaps.",
    )
