"""The section on a comparison: which candidate, by how much, and whether they compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxmem.report.cells import UNKNOWN, Document, known, listed, number, percent, seconds, size, times, words
from onnxmem.report.cells import shape as shape_text
from onnxmem.report.charts.curves import is_curve, summary
from onnxmem.report.report import NOT_KNOWN, Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_assumed, about_machine, shapes_text
from onnxmem.units import format_bytes, format_count, format_percent

_FEW, _SHORT, _FACTS, _ACTIONS = 3, 14, 4, 3
# Smaller than this, half a spread is not worth a column's width.
_SPREAD = 0.005


def section(document: Document) -> Section:
    """`onnxmem.compare/1`. What is there is shown: candidates that failed have little more than their reason."""
    candidates, on_device = document["candidates"], is_on_device(document)
    names = short_names(candidates)
    alarm = _mismatch(document.get("parity") or {})
    advice = [each for each in document.get("advice") or () if each.get("text")]
    actions = [each for each in advice if number(each, "saving_bytes")]
    # On a device, how the peak on the host comes about is not what it is about.
    host = () if on_device else (_breakdowns(candidates, names), _fits(document, names))
    tables = (_candidates(candidates, names), _rows(document, names), *host)
    return Section(
        "Comparison of " + (listed([words(each["name"], 60) for each in candidates]) or "nothing"),
        (alarm or _summary(document)) + _absent_words(candidates),
        facts=_facts(candidates, _key(document)),
        actions=tuple(Action(words(each["text"], 600)) for each in actions[:_ACTIONS]),
        story=tuple(words(each["text"], 600) for each in advice if each not in actions[:_ACTIONS]),
        charts=() if on_device else _charts(document),
        tables=tables,
        notes=_notes(document),
        alarm=bool(alarm) or not _measured(candidates, _key(document)),
    )


def is_on_device(document: Document) -> bool:
    """Whether the candidates ran on a GPU, whose memory they are compared by."""
    return bool((document.get("conditions") or {}).get("device", "cpu") != "cpu")


def _key(document: Document) -> str:
    """The figure that candidates are compared by."""
    return "peak_device_bytes" if is_on_device(document) else "peak_rss_bytes"


def short_names(candidates: list[Document]) -> dict[str, str]:
    """How candidates are called in tables: by name while these are few and short, else by letters, explained first."""
    shown = [each["name"] for each in candidates if not each.get("failure")]
    if len(shown) <= _FEW and all(len(words(each)) <= _SHORT for each in shown):
        return {each: words(each) for each in shown}
    return {each: _letter(number) for number, each in enumerate(shown)}


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"{_letter(number // 26 - 1)}{_letter(number % 26)}"


def _peak(candidate: Document, key: str) -> Document:
    """The largest input at which it ran."""
    points = [point for point in candidate.get("inputs") or () if number(point, key) is not None]
    return points[-1] if points else {}


def _measured(candidates: list[Document], key: str) -> list[Document]:
    return sorted((each for each in candidates if _peak(each, key)), key=lambda each: _peak(each, key)[key])


def _mismatch(parity: Document) -> str:
    """The headline if the candidates do not compute the same."""
    if parity.get("same") is not False:
        return ""
    worst = number(parity, "max_abs")
    by = "" if worst is None else f" by up to {worst:.3g}"
    return f"The answers differ{by}: candidates whose outputs differ are excluded."


def _summary(document: Document) -> str:
    """Peaks at the same, largest size; then whether the answers agree."""
    parity, key = document.get("parity") or {}, _key(document)
    found = _measured(document["candidates"], key)
    if not found:
        return "No candidate could be measured."
    sizes = {str(_peak(each, key).get("size")) for each in found}
    at = f" at {words(sizes.pop(), 40)}" if len(sizes) == 1 else ""
    where = " on the device" * is_on_device(document)
    text = f"Peak memory{where}{at}: {_ends(document, found, key, same_size=bool(at))}"
    return f"{text}. {_parity_words(parity)}"


def _ends(document: Document, found: list[Document], key: str, *, same_size: bool) -> str:
    """The least and the most; what lies between them is named where it is not shown to take more than the least."""
    first, last = found[0], found[-1]
    verdict, tied = _verdict(document, str(_peak(first, key).get("size"))) if same_size else ("", [])
    if verdict and not tied:
        tied = [each["name"] for each in found]
    beside = [each["name"] for each in found[1:-1] if each["name"] in tied]
    least = f"{known(_peak(first, key), key)} {words(first['name'], 60)}"
    if first is last:
        return least
    most = f"{known(_peak(last, key), key)} {words(last['name'], 60)}"
    if verdict and last["name"] in tied:
        return f"{least}, {most} ({verdict})"
    if beside and verdict:
        least += f" ({listed([words(name, 60) for name in beside])}: {verdict})"
    if not same_size:
        return f"{least}, {most}"
    return f"{least}, {most} ({format_percent(1 - _peak(first, key)[key] / max(_peak(last, key)[key], 1))} less)"


def _verdict(document: Document, at: str) -> tuple[str, list[str]]:
    """What the samples say about peaks at this size where several take about the same, and which these are."""
    metric = "device memory" if is_on_device(document) else "peak memory"
    rows = [row for row in document.get("rows") or () if row["metric"] == metric and str(row.get("size")) == at]
    row = rows[0] if rows else {}
    said = {"same": "about the same", "undecided": "undecided"}.get(row.get("verdict") or "", "")
    return said, list(row.get("tied") or ()) if said else []


def _parity_words(parity: Document) -> str:
    worst = number(parity, "max_abs")
    if parity.get("equal"):
        return "The answers are equal, bit for bit."
    if not parity.get("same") or worst is None:
        return "There was nothing to compare the answers with."
    if not worst:
        return "The answers are the same: no number differs."
    return f"The answers are the same: they differ by at most {worst:.2g}."


def _absent_words(candidates: list[Document]) -> str:
    """Who is missing in the comparison: that changes what its winner has won."""
    absent = [words(each["name"], 60) for each in candidates if _reason(each)]
    return f" {listed(absent)} could not be measured: see below." if absent and len(absent) < len(candidates) else ""


def _reason(candidate: Document) -> Any:
    """Why a candidate has no figures, or none at one of its sizes."""
    return candidate.get("failure") or next(
        (point["failure"] for point in candidate.get("inputs") or () if point.get("failure")), None
    )


def _facts(candidates: list[Document], key: str) -> tuple[Fact, ...]:
    of = "peak RSS" if key == "peak_rss_bytes" else "most on the device"
    return tuple(
        Fact(words(each["name"], 40), size(_peak(each, key), key), f"{of} at {_shape(_peak(each, key))}")
        for each in _measured(candidates, key)[:_FACTS]
    )


def _charts(document: Document) -> tuple[Chart, ...]:
    points = [(c, p) for c in document["candidates"] for p in c.get("inputs") or ()]
    points = [(c, p) for c, p in points if number(p, "peak_rss_bytes") is not None]
    if not points:
        return ()
    told = ", ".join(f"{words(c['name'], 40)} at {_shape(p)} {known(p, 'peak_rss_bytes')}" for c, p in points)
    if not is_curve(document):
        return (Chart("sizes", "Peak RSS", f"Bars of peak RSS: {told}.", document),)
    about = f"Measured points of peak RSS: {told}. Lines through them: {'; '.join(summary(document))}."
    title = "Peak RSS against input size: points measured, lines fitted, dashed extrapolated"
    return (Chart("sizes", title, about, document),)


def _shape(point: Document) -> str:
    found = point.get("shape")
    if isinstance(found, Mapping):
        return shapes_text(found)
    if isinstance(found, list | tuple):
        return shape_text(found)
    return words(found if found is not None else UNKNOWN, 60)


def _candidates(candidates: list[Document], names: Mapping[str, str]) -> Table:
    """What the letters stand for; where names stand for themselves the other tables say it all."""
    rows = tuple(
        (Cell(names[each["name"]]), Cell(words(each["name"], 120)), Cell(words(each.get("framework") or "", 40)))
        for each in candidates
        if names.get(each["name"], each["name"]) != words(each["name"])
    )
    return Table("Candidates", ("", "candidate", "framework"), rows)


def _rows(document: Document, names: Mapping[str, str]) -> Table:
    """Who needs less in each respect, and by how much."""
    rows = []
    for row in document.get("rows") or ():
        metric = words(row["metric"], 60) + (f" at {words(row['size'], 40)}" if row.get("size") else "")
        cells = (_value(row, candidate) for candidate in names)
        ratio = times(row, "ratio") if number(row, "ratio") is not None else Cell("")
        rows.append((Cell(metric), *cells, Cell(_winner(row, names)), ratio))
    columns = ("less is better", *names.values(), "winner", "next takes")
    return Table("All figures, medians", columns, tuple(rows))


def _value(row: Document, candidate: str) -> Cell:
    """The median, and ± half of the spread where it would show."""
    show = {"bytes": size, "seconds": seconds}.get(row.get("unit", ""), times)
    cell = show(row.get("values") or {}, candidate)
    low, high = (row.get("spread") or {}).get(candidate) or (0, 0)
    half = (high - low) / 2 / cell.value if cell.value else 0
    return Cell(f"{cell.text} ±{half:.0%}", cell.value, cell.unit) if half >= _SPREAD else cell


def _winner(row: Document, names: Mapping[str, str]) -> str:
    """Who wins, or why nobody does."""
    if row.get("winner"):
        return names.get(row["winner"], words(row["winner"], 40))
    best = [names.get(each, words(each, 40)) for each in row.get("tied") or ()]
    some = len(best) < sum(value is not None for value in (row.get("values") or {}).values())
    if row.get("verdict") == "same":
        return " = ".join(best) if some else "same"
    return "–" if not best else f"undecided: {', '.join(best)}" if some else "undecided"


def _breakdowns(candidates: list[Document], names: Mapping[str, str]) -> Table:
    """How each candidate's peak came about."""
    found = {names.get(each["name"], words(each["name"], 40)): each["breakdown"] for each in candidates
             if each.get("breakdown")}  # fmt: skip
    by_name = [{part["name"]: part["bytes"] for part in parts} for parts in found.values()]
    steps = sorted(dict.fromkeys(step for parts in by_name for step in parts), key=lambda step: step == "peak")
    signs = {"peak": "= ", "initial": ""}
    rows = tuple(
        (Cell(signs.get(step, "+ ") + words(step, 60)), *(size(parts, step) for parts in by_name)) for step in steps
    )
    return Table("How the peak RSS comes about", ("each step raises it by", *found), rows)


def _fits(document: Document, names: Mapping[str, str]) -> Table:
    """Peak RSS as a function of the input elements n; what the fit says beyond the measured sizes is marked."""
    fits = document.get("fits") or ()
    beyond = list(dict.fromkeys(each["size"] for fit in fits for each in fit.get("predictions") or ()))
    powers = {"linear_bytes": "+ n ×", "quadratic_bytes": "+ n² ×"}
    powers = {key: head for key, head in powers.items() if any(number(fit, key) for fit in fits)}
    rows = []
    for fit in fits:
        predicted = {each["size"]: each for each in fit.get("predictions") or ()}
        cells = (size(predicted[label], "bytes") if label in predicted else NOT_KNOWN for label in beyond)
        terms = (_per_element(fit, key) for key in powers)
        error = percent({**fit, "unknown": {"left_out_relative_error": "too few sizes"}}, "left_out_relative_error")
        candidate = names.get(fit["candidate"], words(fit["candidate"], 40))
        rows.append((Cell(candidate), size(fit, "constant_bytes"), *terms, error, *cells))
    columns = ("candidate", "constant", *powers.values(), "error", *(f"at {words(each, 40)}*" for each in beyond))
    star = " (* extrapolated: nothing so large was measured)" if beyond else ""
    return Table(f"Peak RSS as a function of n, the elements in the inputs{star}", columns, tuple(rows))


def _per_element(fit: Document, key: str) -> Cell:
    """Bytes that one more element takes: often less than one."""
    value = number(fit, key)
    if value is None:
        return NOT_KNOWN
    return Cell(format_bytes(value) if value >= 1024 else f"{value:.3g} B", value, "bytes")


def _notes(document: Document) -> list[str]:
    notes = []
    for each in document["candidates"]:
        if reason := _reason(each):
            # Many a reason names the model itself.
            named = f"'{each['name']}'" in reason
            who = "Not measured" if named else f"{words(each['name'], 60)} could not be measured"
            notes.append(f"{who}: {words(reason)}")
    notes += _differences(document.get("parity") or {})
    for twin, model in (document.get("exported") or {}).items():
        notes.append(f"{words(twin, 60)} was exported from {words(model, 60)} on the way.")
    given = document.get("conditions") or {}
    if measured := number(given, "runs"):
        limit = given.get("repeat_limit")
        repeated = format_count(given.get("repeat", 1), "fresh process", "fresh processes")
        runs = f"1 + {measured} runs in each"
        rss = "All other memory is RSS" if is_on_device(document) else "Memory is RSS"
        notes.append(f"Medians of at least {repeated} per size, in turns, {runs}; ± is half the spread. {rss}.")
        if limit is not None and limit < 3:
            notes.append("With fewer than 3 repetitions hardly anything is decided: see --repeat.")
    notes += about_assumed(next((size.get("assumed") or {} for size in document.get("sizes") or ()), {}))
    frameworks = dict.fromkeys(words(e["framework"], 40) for e in document["candidates"] if e.get("framework"))
    return [*notes, f"Frameworks: {', '.join(frameworks)}." if frameworks else "", *about_machine(document)]


def _differences(parity: Document) -> list[str]:
    """The worst of each candidate whose outputs differ, and from what."""
    worst: dict[str, str] = {}
    for each in parity.get("differences") or ():
        if not each["same"]:
            how = words(each.get("reason") or f"differs by {each['max_abs']:.3g}, relative {each['max_rel']:.3g}")
            where = f"at {words(each['size'], 40)}, output '{words(each['output'], 40)}'"
            worst.setdefault(each["candidate"], f"{words(each['candidate'], 60)} {where}: {how}.")
    if worst:
        reference = words(parity.get("reference") or "?", 60)
        worst[""] = f"The reference is {reference}, the tolerance {parity.get('tolerance', 0):g}."
    return list(worst.values())
