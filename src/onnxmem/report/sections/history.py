"""The section on a history: what models took over time, where they grew, and with what."""

from __future__ import annotations

from typing import Any

from onnxmem.report.cells import Document, day, listed, name, number, percent, seconds, size, words
from onnxmem.report.report import Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import shapes_text
from onnxmem.units import format_bytes, format_count

_BLOCKS = "▁▂▃▄▅▆▇█"
_TREND = 24
# A series whose values are this close is flat: noise would look like mountains.
_FLAT = 0.1
_GROWN = 5


def section(document: Document) -> Section:
    """`onnxmem.history/1`."""
    series = document["series"]
    grown = [(each, point) for each in series for point in each["points"] if point["grew"]]
    grown.sort(key=lambda found: str(found[1]["entry"]["date"]), reverse=True)
    results = sum(len(each["points"]) for each in series)
    label = words(document["figure"]["label"], 40)
    tables = (_overview(series, label), *(_results(each, label) for each in series))
    return Section(
        f"{words(document['file'], 80)}, a history of {label}",
        _summary(results, series, grown),
        facts=_facts(series[0], label) if len(series) == 1 else (),
        story=tuple(_growth(each, point) for each, point in grown[:_GROWN]),
        charts=_charts(series, label),
        tables=tables,
        notes=tuple(_notes(document, grown)),
        alarm=any(each["points"][-1]["grew"] for each in series),
    )


def _label(series: Document) -> str:
    key = series["key"]
    parts = [words(key["model"], 60), words(key["mode"], 30)]
    parts += [shapes_text(key["shapes"])] if key.get("shapes") else []
    parts += [format_count(key["threads"], "thread")] if key.get("threads") else []
    parts += [f"{words(option, 40)}={words(value, 40)}" for option, value in (key.get("settings") or {}).items()]
    return ", ".join([*parts, *(["estimated"] if key.get("by") == "estimate" else [])])


def _summary(results: int, series: list[Document], grown: list[tuple[Document, Document]]) -> str:
    if not results:
        return "There are no results yet."
    models = len({each["key"]["model"] for each in series})
    about = f"{format_count(results, 'result')} of {format_count(models, 'model')}"
    if not grown:
        return f"{about}; nothing grew by more than the tolerance."
    times = {1: "once", 2: "twice"}.get(len(grown), f"{len(grown)} times")
    return f"{about}; memory grew {times}, last on {day(grown[0][1]['entry']['date'])}."


def _growth(series: Document, point: Document) -> str:
    now, change = number(point, "bytes") or 0, number(point, "change_bytes") or 0
    before = now - change
    part = f" ({percent({'part': change / before}, 'part').text})" if before else ""
    since = [words(each, 120) for each in point["since"]]
    return (
        f"{_label(series)} grew by {format_bytes(change)}{part} on {day(point['entry']['date'])}, "
        f"to {format_bytes(now)}, {f'with {listed(since)}' if since else 'and nothing else that is recorded changed'}."
    )


def _facts(series: Document, label: str) -> tuple[Fact, ...]:
    points = [point for point in series["points"] if number(point, "bytes") is not None]
    if not points:
        return ()
    last, first = points[-1], points[0]
    lowest, highest = (choose(points, key=lambda point: point["bytes"]) for choose in (min, max))
    change = last["bytes"] - first["bytes"]
    return (
        Fact(label, size(last, "bytes"), f"on {day(last['entry']['date'])}"),
        Fact("change", _change({"change": change}, "change"), f"since {day(first['entry']['date'])}"),
        Fact("lowest", size(lowest, "bytes"), f"on {day(lowest['entry']['date'])}"),
        Fact("highest", size(highest, "bytes"), f"on {day(highest['entry']['date'])}"),
    )


def _change(document: Document, key: str) -> Cell:
    cell = size(document, key)
    if cell.value is None:
        return Cell("–", why=cell.why)
    return Cell(f"+{cell.text}", cell.value, cell.unit) if cell.value > 0 else cell


def trend(values: list[int | float]) -> str:
    """So many values as a line of blocks: the last ones, from the lowest to the highest."""
    shown = values[-_TREND:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = max(high - low, high * _FLAT) or 1
    return "".join(_BLOCKS[min(int((value - low) / span * len(_BLOCKS)), len(_BLOCKS) - 1)] for value in shown)


def _overview(series: list[Document], label: str) -> Table:
    """A line for each series, with its trend."""
    rows = []
    for each in series:
        points = [point for point in each["points"] if number(point, "bytes") is not None]
        values = [point["bytes"] for point in points]
        last = {"bytes": values[-1] if values else None}
        change = {"change": values[-1] - values[0] if values else None}
        rows.append((name(_label(each), 80), size(last, "bytes"), _change(change, "change"),
                     Cell(f"{len(each['points']):,}", len(each["points"])), Cell(trend(values))))  # fmt: skip
    return Table("Series", ("series", label, "since the first", "results", "trend"), tuple(rows))


def _results(series: Document, label: str) -> Table:
    """The results of one series, the newest first."""
    rows = []
    for point in reversed(series["points"]):
        entry, figures = point["entry"], point["entry"]["figures"]
        commit = words(entry.get("commit") or "", 60)
        marks = [*(["grew"] if point["grew"] else []), *([] if entry.get("passed", True) else ["did not pass"])]
        rows.append((
            Cell(words(str(entry["date"])[:16].replace("T", " "))),
            Cell(f"{commit.partition('-')[0][:10]}{'+' if '-' in commit else ''}" or "–"),
            size(point, "bytes"),
            _change(point, "change_bytes"),
            size(figures, "run_growth_bytes"),
            seconds(figures, "latency_seconds"),
            Cell(words(entry["onnxruntime"], 20)),
            Cell(", ".join(marks)),
        ))  # fmt: skip
    columns = ("date (UTC)", "commit", label, "change", "run growth", "latency", "ONNX Runtime", "")
    return Table(_label(series), columns, tuple(rows), folded=True)


def _charts(series: list[Document], label: str) -> tuple[Chart, ...]:
    drawn: list[dict[str, Any]] = [
        {"name": _label(each), "points": [
            {"date": words(point["entry"]["date"], 40), "bytes": point["bytes"], "grew": point["grew"],
             "commit": words(point["entry"].get("commit") or "", 60), "change": number(point, "change_bytes")}
            for point in each["points"] if number(point, "bytes") is not None]}
        for each in series
    ]  # fmt: skip
    drawn = [each for each in drawn if each["points"]]
    if not drawn:
        return ()
    told = "; ".join(
        f"{each['name']} from {format_bytes(each['points'][0]['bytes'])} to {format_bytes(each['points'][-1]['bytes'])}"
        for each in drawn
    )
    alt = f"One line for each series, time from left to right: {told}."
    return (Chart("history", f"{label} over time", alt, {"figure": label, "series": drawn}),)


def _notes(document: Document, grown: list[tuple[Document, Document]]) -> list[str]:
    allowed = document["tolerance"]
    limit = percent(allowed, "fraction").text if allowed.get("fraction") else format_bytes(allowed["bytes"])
    notes = [f"A result counts as grown if it is more than {limit} above the one before."]
    if len(grown) > _GROWN:
        notes.append(f"Of {len(grown)} times that memory grew, the last {_GROWN} are told above.")
    if any("-" in str(point["entry"].get("commit") or "") for each in document["series"] for point in each["points"]):
        notes.append("A + after a commit: files had been changed.")
    return notes
