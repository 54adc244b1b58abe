"""What a model will take on a GPU: the figures, the table and the bars that an estimate for one begins with."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.report.cells import Document, known, listed, sentence, size, words
from onnxmem.report.report import Chart, Fact, Table
from onnxmem.report.sections.common import Columns, figures
from onnxmem.report.sections.peak_parts import bars_of_parts
from onnxmem.units import format_bytes, format_count

_GROWTH = "run_growth_bytes"
_LEAST, _MOST = "least_steady_bytes", "most_steady_bytes"
_MODES: Columns = (
    ("loaded", "loaded_bytes", size),
    ("runs add", _GROWTH, size),
    ("after runs", "steady_bytes", size),
)
_SHOWN = 3
# As the parts of a process in memory, so that both are drawn alike.
_DRAWN_AS = {
    "context": "libraries",
    **dict.fromkeys(("inputs", "activations", "scratch", "pattern", "arena slack"), "arena"),
}


def device_summary(document: Document) -> str:
    """The answer in a sentence; empty if there is none."""
    rows = {row["mode"]: row for row in _modes(document)}
    if "stock" not in rows or "planned" not in rows:
        return ""
    stock, planned = (known(rows[mode], "steady_bytes") for mode in ("stock", "planned"))
    return f"On the GPU the process will take {stock} as ONNX Runtime comes, {planned} planned."


def device_facts(document: Document) -> list[Fact]:
    """What the process takes there, by mode."""
    rows = _modes(document)
    if not rows:
        return []
    about = f"kernels' scratch too; {words(document['device']['base']['device'], 60)}"
    facts = [
        Fact(f"on the GPU, {row['mode']}", size(row, "steady_bytes"), f"of which runs add {known(row, _GROWTH)}")
        for row in rows
    ]
    return [*facts, Fact("alive at once there", size(document["device"], "bound_bytes"), about)]


def device_tables(document: Document) -> list[Table]:
    """One row per mode, and one per part."""
    rows = _modes(document)
    if not rows:
        return []
    names = dict.fromkeys(part["name"] for row in rows for part in row["parts"])
    parts = [{"part": name, **{row["mode"]: _part(row, name) for row in rows}} for name in names]
    columns: Columns = tuple((row["mode"], row["mode"], size) for row in rows)
    return [
        figures("What the process will take on the GPU", "mode", _MODES, rows),
        figures("What that is made of", "part", columns, parts),
    ]


def _part(row: Document, name: str) -> int:
    return next((int(part["bytes"]) for part in row["parts"] if part["name"] == name), 0)


def device_charts(document: Document) -> tuple[Chart, ...]:
    """One bar per mode."""
    named = []
    for row in _modes(document):
        parts: dict[str, int | None] = {}
        for part in row["parts"]:
            drawn = _DRAWN_AS.get(part["name"], part["name"])
            parts[drawn] = (parts.get(drawn) or 0) + int(part["bytes"])
        named.append((row["mode"], parts))
    return bars_of_parts("What the process will be made of on the GPU, after its runs", named)


def device_notes(document: Document) -> list[str]:
    """What the figures stand for, or why there are none."""
    if reason := (document.get("unknown") or {}).get("device"):
        return [sentence(f"What it takes on the GPU is not known: {reason}")]
    if not _modes(document):
        return []
    base, silent = document["device"]["base"], document["device"].get("not_asked") or ()
    always = format_bytes(base["context"] + base["libraries"])
    notes = [
        f"The {always} of the driver's context and of libraries were measured once on this device, kernels were asked "
        "for their scratch, one by one, and nothing else was run."
    ]
    if luck := [row for row in _modes(document) if row[_MOST] > row[_LEAST]]:
        ranges = [f"{row['mode']} {known(row, _LEAST)} to {known(row, _MOST)}" for row in luck]
        notes.append(
            "ONNX Runtime loads weights in an order that is another one in each process, and its arena grows by powers "
            f"of two: possible are {listed(ranges)}."
        )
    if silent:
        shown = "; ".join(words(each, 80) for each in silent[:_SHOWN])
        notes.append(sentence(f"{format_count(len(silent), 'node')} gave no answer, whose scratch is missing: {shown}"))
    return notes


def _modes(document: Document) -> Sequence[Document]:
    return (document.get("device") or {}).get("modes") or ()
