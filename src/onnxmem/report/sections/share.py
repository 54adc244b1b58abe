"""The section on sharing: what N workers take together, mode by mode."""

from __future__ import annotations

from onnxmem.report.cells import Document, count, known, number, seconds, size, times, words
from onnxmem.report.report import Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_inputs, about_machine, few, model

PAIRED = "median of the ratios in each turn, not ratio of the medians"


def section(document: Document) -> Section:
    """`onnxmem.share/1`."""
    groups = document["modes"]
    most = max((number(group, "workers") or 0 for group in groups), default=0)
    advice = document.get("recommendations") or ()
    chosen = advice[0]["mode"] if advice else None
    best = next((group for group in groups if group["workers"] == most and group["mode"] == chosen), None)
    return Section(
        f"{model(document)}, shared by workers",
        _summary(document, best),
        story=tuple(
            words(f"{each['text']} Trade-off: {each['trade_off']}. Avoid if {each['avoid_if']}.", 800)
            for each in advice
        ),
        facts=_facts(document, best),
        charts=_charts(groups, document),
        tables=tuple(t.without_empty_columns() for t in (_memory(document), _speed(document)) if t.rows),
        notes=few(_notes(document)),
        alarm=best is None,
        source=document,
    )


def _summary(document: Document, best: Document | None) -> str:
    if best is None:
        return f"No group of workers of {model(document)} ran to the end."
    text = f"{best['workers']} workers take {known(best, 'total_pss_bytes')} together in mode {words(best['mode'], 30)}"
    stock = _stock(document, best)
    if stock is None:
        return f"{text}."
    return f"{text}, instead of {known(stock, 'total_pss_bytes')} in mode {words(stock['mode'], 30)} (sum of PSS)."


def _stock(document: Document, best: Document) -> Document | None:
    for group in document["modes"]:
        if group["mode"] == document.get("baseline") and group["workers"] == best["workers"] and group is not best:
            found: Document = group
            return found if number(group, "total_pss_bytes") is not None else None
    return None


def _facts(document: Document, best: Document | None) -> tuple[Fact, ...]:
    if best is None:
        return ()
    where = f"{best['workers']} workers, mode {words(best['mode'], 30)}"
    facts = [Fact("together", size(best, "total_pss_bytes"), f"sum of PSS, {where}")]
    if (stock := _stock(document, best)) is not None:
        facts.append(Fact("as it comes", size(stock, "total_pss_bytes"), f"mode {words(stock['mode'], 30)}"))
    facts.append(Fact("one more worker", size(best, "per_worker_uss_bytes"), "USS: private to each"))
    if number(best, "floor_bytes") is not None:
        facts.append(Fact("floor", size(best, "floor_bytes"), "one copy of the weights + the smallest workers"))
    return tuple(facts)


def _charts(groups: list[Document], document: Document) -> tuple[Chart, ...]:
    if all(number(group, "total_pss_bytes") is None for group in groups):
        return ()
    listed = ", ".join(
        f"{words(g['mode'], 30)} with {g['workers']} {known(g, 'total_pss_bytes', 'unknown')}" for g in groups
    )
    alt = f"Total PSS against the number of workers, one line per mode: {listed}."
    return (Chart("workers", "Workers against the memory they take together", alt, document),)


def _memory(document: Document) -> Table:
    columns = ("mode", "workers", "total PSS", _base(document), "of floor", "USS of each", "anonymous of each")
    rows = tuple(
        (
            Cell(words(group["mode"], 30)),
            count(group, "workers"),
            size(group, "total_pss_bytes"),
            times(group, "of_baseline"),
            times(group, "of_floor"),
            size(group, "per_worker_uss_bytes"),
            size(group, "per_worker_anon_bytes"),
        )
        for group in document["modes"]
    )
    return Table("Memory", columns, rows)


def _speed(document: Document) -> Table:
    columns = ("mode", "workers", "load", "load, cold cache", "first run", "latency", f"latency {_base(document)}")
    paired = {each["mode"]: each for each in document.get("latency") or ()}
    fewest = min((group["workers"] for group in document["modes"]), default=0)
    rows = tuple(
        (
            Cell(words(group["mode"], 30)),
            count(group, "workers"),
            seconds(group, "load_seconds"),
            seconds(group, "load_cold_seconds"),
            seconds(group, "first_run_seconds"),
            seconds(group, "latency_seconds"),
            times(paired.get(group["mode"], {}) if group["workers"] == fewest else {}, "of_baseline"),
        )
        for group in document["modes"]
    )
    return Table("Loading and latency", columns, rows)


def _base(document: Document) -> str:
    return f"of {words(document.get('baseline') or 'stock', 30)}"


def _notes(document: Document) -> list[str]:
    notes = [words(failure) for group in document["modes"] for failure in group.get("failures") or ()]
    differ = dict.fromkeys(g["mode"] for g in document["modes"] if g.get("outputs_equal_baseline") is False)
    if differ:
        notes.append(f"Outputs differ from those of {words(document['baseline'], 30)}: {words(', '.join(differ))}.")
    if sum(number(each, "of_baseline") is not None for each in document.get("latency") or ()) > 1:
        notes.append(f"Latency {_base(document)}: {PAIRED}.")
    return notes + about_inputs(document) + about_machine(document)
