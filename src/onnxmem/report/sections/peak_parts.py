"""What is a peak made of? The data of the chart "peak parts", and the same as a table.

A bar is `{"label": "planned", "parts": [{"name": "libraries", "bytes": 1234}, …], "budget_bytes": None}`. Its parts, in
the order of PARTS, add up to the peak RSS of the process; the heap is what no other part explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxmem.report.cells import Document, number, size, words
from onnxmem.report.report import Cell, Chart, Table
from onnxmem.units import format_bytes

PARTS = ("libraries", "weights", "packed copies", "arena", "outputs", "heap")
_ABOUT = {
    "libraries": "and other files: code of Python and ONNX Runtime",
    "weights": "mapped from the model's files, or copied from them",
    "packed copies": "weights as kernels want them",
    "arena": "taken by runs",
    "outputs": "of the last run",
    "heap": "the rest: Python, inputs, the session, freed memory",
}
_LIBRARIES, _MODEL = "libraries and other files", "model files"
# After these a model holds nothing that a run needs: how high they reach says nothing about it.
_BEFORE = ("start", "import", "inputs", "load")

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
                size({**parts, "unknown": {part: "not known, and so in the heap or the arena"}}, part)
                for parts in found.values()
            )
            rows.append((Cell(part), *cells, Cell(_ABOUT[part])))
    return Table("The parts of the peak", ("part", *found, "what it is"), tuple(rows))


def parts_of(document: Document) -> dict[str, int | None] | None:
    """The parts of the highest peak in bytes; None where the system does not tell what memory is.

    A part that is not known is None, and the heap holds it.
    """
    phases = [p for p in document["phases"] if number(p, "peak_rss_bytes") is not None and p.get("made_of")]
    if not phases:
        return None
    top = max(phases, key=lambda phase: phase["peak_rss_bytes"])
    kinds = {kind["kind"]: kind["rss_bytes"] for kind in top["made_of"]}
    runtime, peak = document.get("runtime") or {}, int(top["peak_rss_bytes"])
    parts: dict[str, Any] = {"libraries": kinds.get(_LIBRARIES, 0)}
    parts["weights"] = kinds.get(_MODEL, 0) or number(runtime, "weights_bytes")
    parts["packed copies"] = number(runtime, "packed_bytes")
    outputs = int(number(document, "output_bytes") or 0)
    parts["arena"] = max(_taken_by_runs(document, top) - outputs, 0)
    if outputs and top["name"] not in _BEFORE:
        parts["outputs"] = outputs
    # ONNX Runtime's figures come from another run: together they may be more than there was.
    room = peak
    for part in ("libraries", "arena", "outputs", "weights", "packed copies"):
        if parts.get(part) is not None:
            parts[part] = min(int(parts[part]), room)
            room -= parts[part]
    return {**parts, "heap": room}


def _taken_by_runs(document: Document, top: Mapping[str, Any]) -> int:
    """What the process had at its peak and not when the model was loaded, without pages of files."""
    loaded = next((phase for phase in document["phases"] if phase["name"] == "load"), None)
    if loaded is None or top["name"] in _BEFORE or number(loaded, "rss_bytes") is None or not loaded.get("made_of"):
        return 0
    files = sum(
        sign * kind["rss_bytes"]
        for phase, sign in ((top, 1), (loaded, -1))
        for kind in phase["made_of"]
        if kind["kind"] in (_LIBRARIES, _MODEL)
    )
    return max(int(top["peak_rss_bytes"] - loaded["rss_bytes"] - files), 0)
