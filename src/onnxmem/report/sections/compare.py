"""The section on a comparison: which candidate, by how much, and whether they compute the same."""

from __future__ import annotations

from collections.abc import Mapping

from onnxmem.report.cells import UNKNOWN, Document, known, name, number, percent, seconds, shape, size, times, words
from onnxmem.report.charts.scaling import is_curve, summary
from onnxmem.report.report import NOT_KNOWN, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_machine, few
from onnxmem.units import format_bytes

_PLAIN = ("Candidates", "By input")


def section(document: Document) -> Section:
    """`onnxmem.compare/1`. What is there is shown: candidates that failed have little more than their reason."""
    candidates = document["candidates"]
    mismatch = _mismatch(document.get("parity") or {})
    tables = (_rows(document), _breakdowns(candidates), _candidates(candidates), _inputs(candidates), _fits(document))
    # The rows hold all that the two plain tables hold, with winners.
    shown = [table for table in tables if table.rows and not (document.get("rows") and table.title in _PLAIN)]
    return Section(
        "Comparison of " + _listed([words(each["name"], 60) for each in candidates]),
        mismatch or _agreed(document.get("parity") or {}) + _summary(candidates),
        story=tuple(_advice(document)),
        facts=_facts(candidates),
        charts=_charts(document),
        tables=tuple(shown),
        notes=few(_notes(document)),
        alarm=bool(mismatch),
        source=document,
    )


def _measured(candidates: list[Document], key: str = "total_rss_bytes") -> list[Document]:
    return [each for each in candidates if number(each, key) is not None]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "nothing"


def _mismatch(parity: Document) -> str:
    """The headline if the candidates do not compute the same."""
    if parity.get("same") is not False:
        return ""
    worst = number(parity, "max_abs")
    by = "" if worst is None else f" (outputs differ by up to {worst:.3g})"
    return f"The candidates do not give the same answers{by}: do not choose by the figures below."


def _agreed(parity: Document) -> str:
    """That they do, and how nearly: said before anything else is."""
    if not parity.get("same") or number(parity, "max_abs") is None:
        return ""
    return f"The answers are the same (they differ by at most {parity['max_abs']:.3g}). "


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
    if not is_curve(document):
        return (Chart("sizes", "Peak RSS", f"Bars of peak RSS: {listed}.", document),)
    about = f"Measured points of peak RSS: {listed}. Lines through them: {'; '.join(summary(document))}."
    title = "Peak RSS against input size: points measured, lines fitted, dashed extrapolated"
    return (Chart("sizes", title, about, document),)


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
    """Who needs less in each respect, and by how much."""
    names = [each["name"] for each in document["candidates"]]
    rows = []
    for row in document.get("rows") or ():
        metric = words(row["metric"], 60) + (f", {words(row['size'], 40)}" if row.get("size") else "")
        show = {"bytes": size, "seconds": seconds}.get(row.get("unit", ""), times)
        verdict = row.get("verdict") or ("within the noise" if row.get("tied") else "none")
        winner = words(row["winner"], 60) if row.get("winner") else words(verdict, 40)
        cells = (show(row.get("values") or {}, candidate) for candidate in names)
        ratio = times(row, "ratio") if number(row, "ratio") is not None else Cell("–")
        rows.append((Cell(metric), *cells, Cell(winner), ratio))
    columns = ("less is better", *(words(each, 40) for each in names), "winner", "next takes")
    return Table("All figures, medians", columns, tuple(rows))


def _breakdowns(candidates: list[Document]) -> Table:
    """How each candidate's peak came about in one process."""
    found = {words(each["name"], 40): each["breakdown"] for each in candidates if each.get("breakdown")}
    steps = dict.fromkeys(part["name"] for parts in found.values() for part in parts)
    by_name = [{part["name"]: part["bytes"] for part in parts} for parts in found.values()]
    rows = tuple((name(step), *(size(parts, step) for parts in by_name)) for step in steps)
    return Table("How the peak came about: each step raised it by", ("step", *found), rows)


def _fits(document: Document) -> Table:
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
        rows.append((name(fit["candidate"]), size(fit, "constant_bytes"), *terms, error, *cells))
    marked = (f"at {words(each, 40)}, extrapolated" for each in beyond)
    columns = ("candidate", "constant", *powers.values(), "error", *marked)
    return Table("Peak RSS as a function of n, the elements in the inputs", columns, tuple(rows))


def _per_element(fit: Document, key: str) -> Cell:
    """Bytes that one more element takes: often less than one."""
    value = number(fit, key)
    return (
        NOT_KNOWN if value is None else Cell(format_bytes(value) if value >= 1024 else f"{value:.3g} B", value, "bytes")
    )


def _advice(document: Document) -> list[str]:
    texts = [each.get("text", "") if isinstance(each, Mapping) else each for each in document.get("advice") or ()]
    return [words(text, 600) for text in texts if text]


def _notes(document: Document) -> list[str]:
    notes = []
    for each in document["candidates"]:
        reason = each.get("failure") or next((p["failure"] for p in each.get("inputs") or () if p.get("failure")), None)
        if reason:
            notes.append(f"{words(each['name'], 60)} could not be measured: {words(reason)}")
    for twin, model in (document.get("exported") or {}).items():
        notes.append(f"{words(twin, 60)} was exported from {words(model, 60)} on the way.")
    return notes + about_machine(document)
