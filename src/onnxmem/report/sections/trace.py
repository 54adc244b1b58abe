"""The section on a trace: what one run asked its allocator for."""

from __future__ import annotations

from onnxmem.report.cells import Document, count, known, shape, size, words
from onnxmem.report.report import Fact, Section
from onnxmem.report.sections.common import model


def section(document: Document) -> Section:
    """`onnxmem.trace/1`."""
    fed = ", ".join(f"{words(key, 40)} {shape(dims)}" for key, dims in (document.get("inputs") or {}).items())
    return Section(
        f"Trace of {model(document)}",
        f"One run asked for {document['buffers']:,} buffers, {known(document, 'lower_bound_bytes')} alive at most.",
        facts=(
            Fact("alive at most", size(document, "lower_bound_bytes"), "within the run: no plan can be smaller"),
            Fact("all together", size(document, "total_bytes"), "if nothing were ever reused"),
            Fact("outputs", size(document, "output_bytes"), "outlive the run"),
            Fact("buffers", count(document, "buffers"), f"over {document['steps']:,} steps"),
        ),
        notes=(f"Inputs: {fed}.",) if fed else (),
        source=document,
    )
