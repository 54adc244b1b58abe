"""Outputs are the caller's for as long as it keeps them: two runs whose outputs are kept have them twice.

A planned session hands them over in pages that its plan has free, without a copy; bound to the caller's own arrays they
would lie beside it.
"""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes, format_percent
from onnxmem.unknown import Unknown

_LARGE = 0.05
"""Of the peak."""


def find(explained: Explained) -> Finding | None:
    """Outputs that are a good part of the peak."""
    size = explained.measurement.output_bytes
    if isinstance(size, Unknown) or size < _LARGE * explained.peak:
        return None
    names = [name for name, _ in sorted(explained.measurement.trial.output_shapes.items())]
    evidence = f"The outputs of one run take {format_bytes(size)}, {format_percent(size / explained.peak)} of the peak."
    advice = "Let go of a run's outputs before the next run, or bind them to arrays of your own"
    command = f'binding = session.io_binding(); binding.bind_output("{names[0] if names else "y"}", "cpu")'
    if explained.mode == "planned":
        evidence = f"The outputs of one run take {format_bytes(size)}, and are handed over without a copy: each run "
        evidence += "whose outputs are kept takes as much again."
        advice, command = "Let go of a run's outputs before the next run", "del outputs"
    return Finding(
        rule="outputs",
        what="large outputs",
        evidence=evidence,
        advice=advice,
        saving=size,
        when="if outputs of an earlier run are still held",
        command=command,
    )
