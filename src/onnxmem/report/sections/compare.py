"""The section on a comparison: which candidate, by how much, and whether they compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxmem.report.cells import UNKNOWN, Document, known, name, number, seconds, shape, size, times, words
from onnxmem.report.report import Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_machine, few


def section(document: Document) -> Section:
    """`onnxmem.compare/1`. What is there is shown: candidates that failed have little more than their reason."""
    candidates = document["candidates"]
    mismatch = _mismatch(document.get("parity"))
    return Section(
        "Comparison of " + _listed([words(each["name"], 60) for each in candidates]),
        mismatch or _summary(candidates),
        facts=_facts(candidates),
        charts=_charts(document),
        tables=tuple(table for table in (_candidates(candidates), _inputs(candidates), _rows(document)) if table.rows),
        notes=few(_notes(document)),
        alarm=bool(mismatch),
        source=document,
    )


def _measured(candidates: list[Document], key: str = "total_rss_bytes") -> list[Document]:
    return [each for each in candidates if number(each, key) is not None]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "nothing"


def _mismatch(parity: Any) -> str:
    """The headline if the candidates do not compute the same."""
    pairs = parity if isinstance(parity, list) else [parity]
    for pair in pairs:
        if isinstance(pair, Mapping) and any(pair.get(key) is False for key in ("ok", "equal", "agree", "within")):
            return "The candidates do not compute the same: no figure below makes one of them the better."
    return ""


def _summary(candidates: list[Document]) -> str:
    found = sorted(_measured(candidates), key=lambda each: each["total_rss_bytes"])
    if not found:
        return "No candidate could be measured."
    least, most = found[0], found[-1]
    if least is most:
        return f"{words(least['name'], 60)} takes {known(least, 'total_rss_bytes')} (RSS)."
    return (
        f"{words(least['name'], 60)} takes {known(least, 'total_rss_bytes')} (RSS), "
        f"{words(most['name'], 60)} {known(most, 'total_rss_bytes')}."
    )


def _facts(candidates: list[Document]) -> tuple[Fact, ...]:
    return tuple(
        Fact(words(each["name"], 40), size(each, "total_rss_bytes"), "total RSS") for each in _measured(candidates)[:4]
    )


def _points(candidates: list[Document]) -> list[tuple[Document, Document]]:
    return [(each, point) for each in candidates for point in each.get("inputs") or ()]


def _charts(document: Document) -> tuple[Chart, ...]:
    points = [(c, p) for c, p in _points(document["candidates"]) if number(p, "peak_rss_bytes") is not None]
    if not points:
        return ()
    listed = ", ".join(f"{words(c['name'], 40)} at {_shape(p)} {known(p, 'peak_rss_bytes')}" for c, p in points)
    return (Chart("sizes", "Peak RSS by input size", f"Grouped bars of peak RSS: {listed}.", document),)


def _candidates(candidates: list[Document]) -> Table:
    columns = ("candidate", "files", "loading took", "total RSS", "time to load")
    rows = tuple(
        (
            name(each["name"]),
            size(each, "file_bytes"),
            size(each, "load_growth_bytes"),
            size(each, "total_rss_bytes"),
            seconds(each, "load_seconds"),
        )
        for each in candidates
    )
    return Table("Candidates", columns, rows)


def _inputs(candidates: list[Document]) -> Table:
    rows = tuple(
        (name(each["name"]), Cell(_shape(point)), size(point, "peak_rss_bytes"), seconds(point, "latency_seconds"))
        for each, point in _points(candidates)
    )
    return Table("By input", ("candidate", "input", "peak RSS", "latency"), rows)


def _shape(point: Document) -> str:
    found = point.get("shape")
    if isinstance(found, Mapping):
        return ", ".join(f"{words(key, 30)} {shape(dims)}" for key, dims in found.items())
    return shape(found) if isinstance(found, list | tuple) else words(found if found is not None else UNKNOWN, 60)


def _rows(document: Document) -> Table:
    """Who wins in each respect, and by how much."""
    rows = tuple(
        (
            Cell(words(row.get("title") or row.get("label") or row.get("name") or row.get("metric") or UNKNOWN, 60)),
            Cell(words(row["winner"], 60) if row.get("winner") else "none: within the noise"),
            times(row, "ratio"),
        )
        for row in document.get("rows") or ()
    )
    return Table("Who needs less", ("respect", "winner", "ratio"), rows)


def _notes(document: Document) -> list[str]:
    notes = []
    for each in document["candidates"]:
        reason = each.get("error") or each.get("reason") or each.get("failure")
        if reason:
            notes.append(f"{words(each['name'], 60)} could not be measured: {words(reason)}")
    for advice in document.get("advice") or ():
        notes.append(words(advice.get("text", "") if isinstance(advice, Mapping) else advice, 600))
    return notes + about_machine(document)
