"""Loading takes more than running: then loading decides how large the machine must be."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.session.modes import find_mode
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """What a package, whose weights are mapped, would spare of it."""
    over = explained.load_peak - explained.run_peak
    mode = find_mode(explained.loaded_as)
    if over <= 0 or mode.form == "ort" or mode.shared:
        return None
    packed = explained.forecast("prepacked")
    lower = max(explained.run_peak, packed.load_peak) if packed else explained.run_peak
    return Finding(
        rule="load_peak",
        what="load peak above the run peak",
        evidence=f"Loading reached {format_bytes(explained.load_peak)}, running {format_bytes(explained.run_peak)}.",
        advice="Pack it: weights are then mapped, not copied",
        saving=explained.load_peak - lower,
        command=explained.command("pack", "-o", "package"),
    )
