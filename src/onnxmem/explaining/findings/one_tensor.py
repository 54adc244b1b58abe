"""One tensor is most of what is alive at the peak: nothing else is worth looking at."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes, format_percent

_MOST = 0.5


def find(explained: Explained) -> Finding | None:
    """The largest tensor, if it is more than half of what is alive at once."""
    if explained.subject is None:
        return None
    runs = explained.subject.plain_runs.first
    largest = max((event.buffer for event in runs), key=lambda buffer: buffer.size, default=None)
    alive = runs.peak
    if largest is None or largest.kind != "activation" or largest.size < _MOST * alive:
        return None
    tensor = explained.subject.graph.tensors.get(largest.name)
    shape = f" ({'×'.join(map(str, tensor.shape))})" if tensor is not None and tensor.shape else ""
    return Finding(
        rule="one_tensor",
        what="one tensor",
        evidence=f"'{largest.name}'{shape} takes {format_bytes(largest.size)}, {format_percent(largest.size / alive)} "
        "of what is alive at the peak of a run.",
        advice="Compute it in parts, or in a narrower type",
        saving=largest.size // 2,
        when="if it is computed in two halves",
        command=explained.command("estimate", "--tensors", "tensors.csv"),
    )
