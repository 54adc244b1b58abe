"""A batch whose rows do not mix can be run a few rows at a time, with the same bits."""

from __future__ import annotations

import json

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.explaining.leaner import once_loaded, planning_costs
from onnxmem.prediction.chunks import cutting_of
from onnxmem.session.package import is_package
from onnxmem.units import format_bytes, format_count, typed_bytes
from onnxmem.unknown import Unknown

_LEFT = 4
"""A part of so many of what could be saved is left: runs of very few rows take longer."""


def find(explained: Explained) -> Finding | None:
    """What a budget would save that leaves runs as many rows as are still worth having at once."""
    subject, model = explained.subject, explained.scenario.model
    if subject is None or is_package(model):
        return None
    cutting = cutting_of(subject.model, subject.input_shapes, threads=subject.threads)
    if isinstance(cutting, Unknown) or cutting.rows < 2:
        return None
    least, whole = cutting.needs(cutting.exact[0]), cutting.needs(cutting.rows)
    chunking = cutting.within(least + (whole - least) // _LEFT)
    before = explained.needed_at_once(whole - cutting.outputs) + cutting.outputs
    saving = max(0, before - chunking.needed - planning_costs(explained))
    at_once = format_count(chunking.rows_at_once or cutting.exact[0], "row")
    return Finding(
        rule="batch",
        what="a batch in one run",
        evidence=f"Its rows do not mix: of {cutting.rows}, {at_once} at a time give the same bits, and need "
        f"{format_bytes(chunking.needed)} with all outputs and not {format_bytes(before)}.",
        advice="Let a budget decide how many rows are run at once",
        saving=saving,
        when=once_loaded(explained, saving),
        command=f'onnxmem.InferenceSession({json.dumps(str(model))}, budget="{typed_bytes(chunking.needed)}")',
    )
