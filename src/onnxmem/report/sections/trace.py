"""The section on a trace: what one run asked for, and what to do with it."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from onnxmem.commands import path_word
from onnxmem.report.cells import Document, known, size, words
from onnxmem.report.report import Action, Fact, Section
from onnxmem.report.sections.common import about_inputs, command, model, typed
from onnxmem.units import format_count


def section(document: Document) -> Section:
    """`onnxmem.trace/1`."""
    buffers, steps = format_count(document["buffers"], "buffer"), format_count(document["steps"], "step")
    outputs = format_count(document["outputs"], "buffer")
    device = words(document.get("device", "cpu"), 30)
    on = [] if device == "cpu" else ["--device", device]
    return Section(
        f"Trace of {model(document)}{f' on {device}' if on else ''}",
        f"One run asked for {buffers}; at most {known(document, 'lower_bound_bytes')} were in use at once, "
        "outputs aside.",
        facts=(
            Fact(
                "in use at once",
                size(document, "lower_bound_bytes"),
                "at most; for these requests no plan takes less, unless two of them share a place",
            ),
            Fact("all buffers", size(document, "total_bytes"), f"{buffers} over {steps}, if none were ever reused"),
            Fact("outputs", size(document, "output_bytes"), f"{outputs} of these, in use beyond the run: in no plan"),
        ),
        actions=(
            Action(
                "Run it inside a plan of these buffers", command=command(document, "measure", *on, "--mode", "planned")
            ),
            _elsewhere(document, on),
        ),
        notes=[*_written(document), *about_inputs(document)],
    )


def _table(document: Document) -> str:
    """The CSV that was asked for; empty if there is none."""
    path = typed(document, "--output", "-o")
    return path if PurePath(path).suffix.lower() == ".csv" else ""


def _elsewhere(document: Document, on: list[str]) -> Action:
    if table := _table(document):
        return Action("Plan the buffers that were saved", command=shlex.join(["onnxmem", "plan", path_word(table)]))
    return Action(
        "Save the buffers, to plan them elsewhere", command=command(document, "trace", *on, "-o", "trace.csv")
    )


def _written(document: Document) -> list[str]:
    """What is in the file: a plan of it has fewer buffers than the run."""
    if not (table := _table(document)):
        return []
    if "--outputs" in str(document.get("command")) or not document["outputs"]:
        return [f"Written: {words(table, 200)}, with all of them."]
    inside = format_count(document["buffers"] - document["outputs"], "buffer")
    return [f"Written: {words(table, 200)}, with the {inside} that a plan places; --outputs adds the outputs."]
