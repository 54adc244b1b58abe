"""Several measurements of one report beside each other: stock against planned, before against after."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.report.cells import Document, format_percent, known, number, seconds, size, words
from onnxmem.report.report import Cell, Chart, Section, Table
from onnxmem.report.sections.measure import label, peak
from onnxmem.units import format_bytes


def overview(documents: Sequence[Document]) -> Section | None:
    """The measurements side by side; None if there are not two to compare."""
    found = [document for document in documents if document.get("schema") == "onnxmem.measure/1"]
    if len(found) < 2:
        return None
    names = labels(found)
    rows = tuple(
        (
            Cell(label),
            size(peak(document), "peak_rss_bytes"),
            size(document, "load_growth_bytes"),
            size(document, "run_growth_bytes"),
            seconds(document, "latency_seconds"),
            Cell(words(document["verdict"]["kind"], 30)),
        )
        for label, document in zip(names, found, strict=True)
    )
    columns = ("measurement", "peak RSS", "loading took", "running took", "latency", "ended")
    listed = ", ".join(f"{n} {known(peak(d), 'peak_rss_bytes', 'unknown')}" for n, d in zip(names, found, strict=True))
    chart = Chart(
        "side by side",
        "What loading and running took",
        f"One bar per measurement; peak RSS: {listed}.",
        {"labels": names, "measurements": found},
    )
    return Section(
        "At a glance",
        _summary(names, found),
        charts=(chart,),
        tables=(Table("Side by side", columns, rows),),
        notes=_notes(found),
    )


def labels(documents: Sequence[Document]) -> list[str]:
    """A name for each measurement: the mode, with the model where there are several; numbered if that is not enough."""
    models = {document["model"] for document in documents}
    names = [words(d["scenario"]["mode"], 30) if len(models) == 1 else label(d) for d in documents]
    return [n if names.count(n) == 1 else f"{n} ({names[: k + 1].count(n)})" for k, n in enumerate(names)]


def _summary(names: Sequence[str], documents: Sequence[Document]) -> str:
    totals = [(number(d, "load_growth_bytes"), number(d, "run_growth_bytes")) for d in documents]
    known_totals = [(a + b, n) for (a, b), n in zip(totals, names, strict=True) if a is not None and b is not None]
    if len(known_totals) < 2:
        return f"{len(documents)} measurements side by side."
    (least, small), (most, large) = min(known_totals), max(known_totals)
    if most <= 0 or least == most:
        return f"{len(documents)} measurements side by side; they took the same."
    saved = format_percent(1 - least / most)
    return (
        f"Loading and running took {format_bytes(least)} as {small} and {format_bytes(most)} as {large}: {saved} less."
    )


def _notes(documents: Sequence[Document]) -> tuple[str, ...]:
    notes = []
    environments = [document.get("environment") or {} for document in documents]
    different = [key for key in environments[0] if any(e.get(key) != environments[0][key] for e in environments[1:])]
    if different:
        listed = ", ".join(words(key, 30) for key in different)
        notes.append(f"These were not measured under the same conditions: {listed} differ. Compare with care.")
    hashes = {document.get("outputs_sha256") for document in documents}
    if len({d["model"] for d in documents}) == 1 and None not in hashes:
        notes.append(
            "The outputs are equal, bit for bit." if len(hashes) == 1 else "The outputs are not bit for bit equal."
        )
    return tuple(notes)
