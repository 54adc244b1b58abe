"""A constant in float64 takes twice what float32 would, and the tensors computed with it do, too."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes, format_count


def find(explained: Explained) -> Finding | None:
    """What float32 would save of the constants alone."""
    if explained.subject is None:
        return None
    wide = [weight for weight in explained.subject.weights.run if weight.dtype == "float64" and weight.size]
    if not wide:
        return None
    total, largest = sum(weight.size or 0 for weight in wide), max(wide, key=lambda weight: weight.size or 0)
    return Finding(
        rule="float64",
        what="constants in float64",
        evidence=f"{format_count(len(wide), 'constant')} in float64 take {format_bytes(total)}; the largest is "
        f"'{largest.name}'.",
        advice="Export the model in float32",
        saving=total // 2,
        command="torch.onnx.export(model.float(), …)",
    )
