"""The section on a trace: what one run asked its allocator for."""

from __future__ import annotations

from onnxmem.report.cells import Document, known, size
from onnxmem.report.report import Action, Fact, Section
from onnxmem.report.sections.common import about_inputs, command, few, model
from onnxmem.units import format_count


def section(document: Document) -> Section:
    """`onnxmem.trace/1`."""
    buffers, steps = format_count(document["buffers"], "buffer"), format_count(document["steps"], "step")
    alive = known(document, "lower_bound_bytes")
    return Section(
        f"Trace of {model(document)}",
        f"One run asked for {buffers}; at most {alive} were in use at once.",
        facts=(
            Fact("in use at once", size(document, "lower_bound_bytes"), "at most; no plan can take less"),
            Fact("all buffers", size(document, "total_bytes"), f"{buffers} over {steps}, if none were ever reused"),
            Fact("outputs", size(document, "output_bytes"), "outlive the run"),
        ),
        actions=(
            Action("Run it inside a plan of these buffers", command=command(document, "measure", "--mode", "planned")),
            Action("Save the buffers, to plan them elsewhere", command=command(document, "trace", "-o", "trace.csv")),
        ),
        notes=few(about_inputs(document)),
        source=document,
    )
