"""What is a peak made of? The data of the chart "peak parts", and the same as a table.

A bar is `{"label": "planned", "parts": [{"name": "libraries", "bytes": 1234}, …], "budget_bytes": None}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxmem.measurement.parts import PARTS, parts_of
from onnxmem.report.cells import Document, number, size, words
from onnxmem.report.report import Cell, Chart, Table
from onnxmem.units import format_bytes

_ABOUT = {
    "libraries": "and other files: code of Python and ONNX Runtime",
    "weights": "mapped from the model's files, or copied from them",
    "packed copies": "weights as kernels want them",
    "arena": "taken by runs",
    "outputs": "of the last run",
    "heap": "the rest: Python, inputs, the session, freed memory",
}

Labelled = Sequence[tuple[str, Document]]


def peak_parts(measured: Labelled) -> tuple[Chart, ...]:
    """One bar for each measurement (`onnxmem.measure/1`) whose peak can be told apart."""
    bars: list[dict[str, Any]] = [
        {"label": label, "parts": [{"name": part, "bytes": found[part]} for part in PARTS if found.get(part)],
         "budget_bytes": number(document.get("memory_limit") or {}, "bytes")}
        for label, document in measured
        if (found := parts_of(document))
    ]  # fmt: skip
    if not bars:
        return ()
    told = "; ".join(f"{bar['label']}: {', '.join(map(_part, bar['parts']))}" for bar in bars)
    return (Chart("peak parts", "What the peak is made of", f"One bar each. {told}.", {"bars": bars}),)


def _part(part: Document) -> str:
    return f"{part['name']} {format_bytes(part['bytes'])}"


def parts_table(measured: Labelled) -> Table:
    """The same as figures."""
    found = {words(label, 40): parts for label, document in measured if (parts := parts_of(document))}
    rows = []
    for part in PARTS:
        if any(parts.get(part) for parts in found.values()):
            cells = (
                size({**parts, "unknown": {part: "not known, and so in the heap or the arena"}}, part)
                for parts in found.values()
            )
            rows.append((Cell(part), *cells, Cell(_ABOUT[part])))
    return Table("The parts of the peak", ("part", *found, "what it is"), tuple(rows))
