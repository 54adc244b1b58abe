"""What is a peak made of? The data of the chart "peak parts", and the same as a table.

A bar is `{"label": "planned", "parts": [{"name": "libraries", "bytes": 1234}, …], "budget_bytes": None}`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onnxmem.measurement.parts import PARTS, parts_of
from onnxmem.report.cells import Document, listed, number, size, words
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
    found = [(label, parts) for label, document in measured if (parts := parts_of(document))]
    limits = [number(document.get("memory_limit") or {}, "bytes") for _, document in measured if parts_of(document)]
    return bars_of_parts("What the peak is made of", found, limits)


def bars_of_parts(
    title: str, named: Sequence[tuple[str, Mapping[str, int | None]]], limits: Sequence[int | float | None] = ()
) -> tuple[Chart, ...]:
    """One bar for each name; none at all if there is nothing to show."""
    budgets = limits or [None] * len(named)
    bars: list[dict[str, Any]] = [
        {"label": label, "parts": [{"name": part, "bytes": parts[part]} for part in PARTS if parts.get(part)],
         "budget_bytes": budget}
        for (label, parts), budget in zip(named, budgets, strict=True)
    ]  # fmt: skip
    if not bars:
        return ()
    told = "; ".join(f"{bar['label']}: {', '.join(map(_part, bar['parts']))}" for bar in bars)
    return (Chart("peak parts", title, f"One bar each. {told}.", {"bars": bars}),)


def _part(part: Document) -> str:
    return f"{part['name']} {format_bytes(part['bytes'])}"


def parts_table(measured: Labelled) -> Table:
    """The same as figures."""
    found = {words(label, 40): parts for label, document in measured if (parts := parts_of(document))}
    rows = []
    for part in PARTS:
        if any(parts.get(part) for parts in found.values()):
            cells = (
                size({**parts, "unknown": {part: "not known, and so in the heap"}}, part) for parts in found.values()
            )
            rows.append((Cell(part), *cells, Cell(_about(part, found.values()))))
    return Table("The parts of the peak", ("part", *found, "what it is"), tuple(rows))


def _about(part: str, bars: Collection[Mapping[str, int | None]]) -> str:
    """What a part is. The heap is the rest, and so what is not known is in it: readers look for the weights."""
    hidden = [each for each in PARTS if any(bar.get(each, 0) is None for bar in bars)]
    more = f", and {listed(hidden)} where these are ?" if part == "heap" and hidden else ""
    return f"{_ABOUT[part]}{more}"
