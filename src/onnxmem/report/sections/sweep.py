"""The sections on sweeps: how far one is, what it found, what has changed, and what one would do."""

from __future__ import annotations

from collections import Counter

from onnxmem.report.cells import Document, day, listed, name, number, percent, seconds, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.units import format_bytes, format_count, format_duration

_COLUMNS = 6
"""Sizes side by side, as many as a terminal has room for; more go below each other."""
_TOLD = 5
_LABEL = 60


def section(document: Document) -> Section:
    """`onnxmem.sweep/1`."""
    status, changes, failures = document["status"], document["changes"], document["failures"]
    grown = [change for change in changes if change["bytes"] > change["before_bytes"]]
    return Section(
        f"{words(document['file'], 80)}, {_cells(status)}",
        f"{_progress(status)} {_changed(document, grown)}".strip(),
        facts=_facts(document),
        actions=_actions(document),
        story=tuple(map(_change, grown[:_TOLD])),
        charts=tuple(_charts(document)),
        tables=(*_maps(document["maps"]), _changes(changes), _trades(document["trades"]), _failures(failures)),
        notes=tuple(_notes(document)),
        alarm=bool(status["failed"] or grown),
    )


def status_section(document: Document) -> Section:
    """`onnxmem.sweep_status/1`."""
    status = document["status"]
    left = number(status, "left_seconds")
    facts = [
        Fact("finished", _count(status["finished"]), f"of {format_count(_all(status), 'cell')}"),
        Fact("failed", _count(status["failed"]), _reasons(status)),
        Fact("waiting", _count(status["waiting"]), "" if not left else f"about {format_duration(left)} of work"),
        Fact("work so far", Cell(format_duration(status["seconds"])), "all finished cells together"),
    ]
    return Section(
        f"{words(document['file'], 80)}, {_cells(status)}",
        _progress(status),
        facts=tuple(facts),
        tables=(_slowest(status),),
        notes=(f"Begun {words(str(status['date'])[:16].replace('T', ' '))} UTC, {_engine(status)}.", *_where(status)),
        alarm=bool(status["failed"]),
    )


def plan_section(document: Document) -> Section:
    """`onnxmem.sweep_plan/1`."""
    cells = document["cells"]
    done = sum(1 for cell in cells if cell["finished"])
    total, left = number(document, "seconds"), len(cells) - done
    took = [cell["seconds"] for cell in cells if not cell["finished"] and number(cell, "seconds") is not None]
    slowest = max(took, default=None)
    rows = tuple(
        (
            name(cell["model"], _LABEL),
            Cell(words(cell["verb"], 20)),
            Cell(words(cell["mode"], 40)),
            Cell(words(cell["size"], 60)),
            Cell("finished") if cell["finished"] else seconds(cell, "seconds"),
        )
        for cell in sorted(cells, key=lambda cell: bool(cell["finished"]))  # what is left to do is what was asked
    )
    will = "nothing tells how long that takes" if total is None else f"about {format_duration(total)}"
    return Section(
        f"{words(document['file'], 80)}, what a sweep would do",
        f"{format_count(left, 'cell')} to work out: {will}." if left else "All cells are finished: nothing to do.",
        facts=(
            Fact("cells", _count(len(cells)), f"{done:,} of them finished before" if done else "none finished yet"),
            Fact("time", Cell("?" if total is None else format_duration(total)), _pace(document)),
            *([Fact("slowest", Cell(format_duration(slowest)))] if slowest is not None else []),
        ),
        tables=(Table("Cells", ("model", "verb", "mode", "size", "time"), rows),),
        notes=tuple(words(note) for note in document.get("notes") or ()),
    )


def _pace(document: Document) -> str:
    return (
        f"{format_count(document['workers'], 'estimate')} or plans at a time, "
        f"then {format_count(document['parallel'], 'measurement')}"
    )


def _all(status: Document) -> int:
    return int(status["finished"] + status["failed"] + status["waiting"])


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def _cells(status: Document) -> str:
    return f"a sweep of {format_count(_all(status), 'cell')}"


def _engine(status: Document) -> str:
    return "on a Ray cluster" if status["engine"] == "ray" else "on this machine"


def _reasons(status: Document) -> str:
    return ", ".join(f"{count:,} {words(reason, 30)}" for reason, count in status["reasons"].items())


def _progress(status: Document) -> str:
    total, waiting, failed = _all(status), status["waiting"], status["failed"]
    if not waiting and not failed:
        return f"All {total:,} cells are finished." if total != 1 else "The cell is finished."
    parts = [f"{status['finished']:,} of {format_count(total, 'cell')} are finished"]
    parts += [f"{failed:,} failed ({_reasons(status)})"] if failed else []
    parts += [f"{waiting:,} are waiting"] if waiting else []
    return f"{listed(parts)}."


def _changed(document: Document, grown: list[Document]) -> str:
    if not document["changed"]:
        return ""
    if len(document["changes"]) < document["changed"]:
        return f"{document['changed']:,} take more or less than before."
    less = document["changed"] - len(grown)
    parts = [f"{len(grown):,} grew"] if grown else []
    parts += [f"{less:,} shrank"] if less else []
    # Where all changed with the same, that is the answer.
    causes = {tuple(change["since"]) for change in document["changes"]}
    same = [words(each, 120) for each in next(iter(causes))] if len(causes) == 1 else []
    return f"Since the time before {listed(parts)}{f', with {listed(same)}' if same else ''}."


def _label(cell: Document) -> str:
    return " ".join(words(cell[key], _LABEL) for key in ("model", "mode", "size") if cell.get(key))


def _facts(document: Document) -> tuple[Fact, ...]:
    facts = []
    for each in document["maps"]:
        known = [(value, row, size_) for row in each["rows"]
                 for value, size_ in zip(row["bytes"], each["sizes"], strict=True) if value is not None]  # fmt: skip
        value, row, at = max(known, key=lambda found: found[0])
        about = f"the most: {_label({**row, 'size': at})}"
        facts.append(Fact(words(each["label"], 40), size({"most": value}, "most"), about))
    saved = _saving(document["trades"])
    if saved is not None:
        saving, trade = saved
        about = f"{_label(trade)}, against {_baseline(trade)}"
        facts.append(Fact("most saved by a mode", size({"saved": saving}, "saved"), about))
    return tuple(facts[:5])


def _baseline(trade: Document) -> str:
    """The mode that a saving counts against: whoever does nothing runs stock."""
    return str(trade["mode"]).replace(str(trade["mode"]).partition(" ")[0], "stock", 1)


def _saving(trades: list[Document]) -> tuple[int, Document] | None:
    """What the smallest mode of a model saves against stock, where that is most."""
    stock = {_key(trade): trade["bytes"] for trade in trades if trade["mode"] == _baseline(trade)}
    found = [(stock[_key(trade)] - trade["bytes"], trade) for trade in trades if _key(trade) in stock]
    best = max(found, key=lambda each: each[0], default=None)
    return best if best and best[0] > 0 else None


def _key(trade: Document) -> tuple[str, str, str]:
    """What modes are compared at."""
    return trade["model"], trade["size"], trade["processor"]


def _actions(document: Document) -> tuple[Action, ...]:
    status, saved = document["status"], _saving(document["trades"])
    actions = []
    if status["waiting"]:
        actions.append(Action("Go on with what is waiting: give the same command again"))
    if status["failed"]:
        actions.append(Action("See why cells failed, below; --retry-failed tries them once more"))
    if saved is not None:
        saving, trade = saved
        what, mode, at = (words(trade[key], _LABEL) for key in ("model", "mode", "size"))
        text = f"Run {what} in mode {mode}, as measured at {at}"
        actions.append(Action(text, format_bytes(saving)))
    return tuple(actions[:3])


def _change(change: Document) -> str:
    before, after = change["before_bytes"], change["bytes"]
    part = f" ({percent({'part': (after - before) / before}, 'part').text})" if before else ""
    since = [words(each, 120) for each in change["since"]]
    why = f"with {listed(since)}" if since else "and nothing else that is recorded changed"
    return (
        f"{_label(change)} ({words(change['verb'], 20)}) grew by {format_bytes(after - before)}{part} "
        f"since {day(change['date'])}, to {format_bytes(after)}, {why}."
    )


def _maps(maps: list[Document]) -> list[Table]:
    tables = []
    for each in maps:
        sizes, several = each["sizes"], any(row["processor"] for row in each["rows"])
        modes = any(row["mode"] for row in each["rows"])
        for start in range(0, len(sizes), _COLUMNS):
            part = sizes[start : start + _COLUMNS]
            heads = ("model", *(("mode",) if modes else ()), *(("processor",) if several else ()))
            rows = []
            for row in each["rows"]:
                first = [name(row["model"], _LABEL)]
                first += [Cell(words(row["mode"], 40))] if modes else []
                first += [name(row["processor"], 40)] if several else []
                values = ({"bytes": value} for value in row["bytes"][start : start + _COLUMNS])
                rows.append((*first, *(size(value, "bytes") for value in values)))
            title = f"{words(each['verb'], 20)}: {words(each['label'], 40)}"
            tables.append(Table(title, (*heads, *(words(at, 40) for at in part)), tuple(rows)))
    return tables


def _changes(changes: list[Document]) -> Table:
    rows = []
    for change in changes:
        moved = change["bytes"] - change["before_bytes"]
        rows.append((
            name(_label(change), 80),
            Cell(words(change["verb"], 20)),
            size(change, "before_bytes"),
            size(change, "bytes"),
            Cell(f"{'+' if moved > 0 else ''}{format_bytes(moved)}", moved, "bytes"),
            Cell("; ".join(words(each, 120) for each in change["since"]) or "nothing that is recorded"),
        ))  # fmt: skip
    return Table("Changed since the time before", ("cell", "verb", "before", "now", "change", "with"), tuple(rows))


def _trades(trades: list[Document]) -> Table:
    """Modes that are worth having, of models that were measured in several."""
    count = Counter(map(_key, trades))
    rows = [
        (name(trade["model"], _LABEL), Cell(words(trade["size"], 40)), Cell(words(trade["mode"], 30)),
         size(trade, "bytes"), seconds(trade, "latency_seconds"),
         Cell("yes" if trade["best"] else "no"))
        for trade in trades if count[_key(trade)] > 1
    ]  # fmt: skip
    return Table(
        "Memory against latency", ("model", "size", "mode", "peak", "latency", "worth it"), tuple(rows), folded=True
    )


def _failures(failures: list[Document]) -> Table:
    rows = tuple(
        (
            name(_label(cell), 80),
            Cell(words(cell["verb"], 20)),
            Cell(words(cell["reason"], 30)),
            Cell(f"{cell['tries']:,}", cell["tries"]),
            Cell(words(cell["message"], 160)),
        )
        for cell in failures
    )
    return Table("Failed", ("cell", "verb", "reason", "tries", "message"), rows)


def _slowest(status: Document) -> Table:
    rows = tuple(
        (name(_label(cell), 80), Cell(words(cell["verb"], 20)), seconds(cell, "seconds")) for cell in status["slowest"]
    )
    return Table("Slowest", ("cell", "verb", "time"), rows)


def _where(status: Document) -> list[str]:
    processors = [words(each, 80) for each in status["processors"]]
    return [f"Worked out on {listed(processors)}."] if processors else []


def _charts(document: Document) -> list[Chart]:
    charts = []
    for each in document["maps"]:
        if len(each["rows"]) * len(each["sizes"]) < 2:
            continue
        values = [value for row in each["rows"] for value in row["bytes"] if value is not None]
        alt = (
            f"A row for each model and mode, a column for each size, darker for more: from {format_bytes(min(values))} "
            f"to {format_bytes(max(values))}."
        )
        charts.append(Chart("size map", f"{_capital(each['label'])} by model and size", alt, each))
    trades = document["trades"]
    if len(trades) > 1:
        best = sum(1 for trade in trades if trade["best"])
        alt = (
            f"A point for each of {len(trades)} measurements, latency across and memory upwards. {best} are filled: "
            f"no other mode of the same model at that size has less of both."
        )
        charts.append(Chart("trades", "Memory against latency", alt, {"trades": trades}))
    return charts


def _capital(text: str) -> str:
    said = words(text, 40)
    return f"{said[:1].upper()}{said[1:]}"


def _notes(document: Document) -> list[str]:
    status, allowed = document["status"], document["tolerance"]
    limit = percent(allowed, "fraction").text if allowed.get("fraction") else format_bytes(allowed["bytes"])
    notes = [words(note) for note in document.get("notes") or ()]
    for each in document["maps"]:
        if each.get("left_out"):
            notes.append(
                f"{words(each['verb'], 20)}: the {len(each['rows'])} largest; {each['left_out']:,} rows are left out."
            )
    if document["changed"] > len(document["changes"]):
        notes.append(f"Of {document['changed']:,} that changed, the {len(document['changes'])} largest are here.")
    if status["failed"] > len(document["failures"]):
        notes.append(f"Of {status['failed']:,} that failed, the first {len(document['failures'])} are here.")
    if any(not trade["best"] for trade in document["trades"]):
        notes.append("A mode is not worth it where another has less of both: memory and latency.")
    if document["changed"]:
        notes.append(f"A cell counts as changed beyond {limit} of what the same one took the time before.")
    notes.append(f"Cells took {format_duration(status['seconds'])} together, {_engine(status)}.")
    return [*notes, *_where(status)]
