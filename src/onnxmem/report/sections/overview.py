"""What was expected and what was measured, side by side: the estimate, stock, planned."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.report.cells import Document, format_percent, known, number, seconds, size, words
from onnxmem.report.report import Cell, Chart, Section, Table
from onnxmem.report.sections.measure import how_run, label, peak
from onnxmem.units import format_bytes

MEASURED = "onnxmem.measure/1"
_NONE = Cell("–")
_NOISE = 0.95
"""Nearer to each other than this, nobody is named the smaller."""


def overview(documents: Sequence[Document]) -> Section | None:
    """Measurements beside each other, and beside the estimate of the same model; None if there are not two of them."""
    measured = [document for document in documents if document["schema"] == MEASURED]
    expected = [document for document in documents if document["schema"] == "onnxmem.estimate/1"]
    models = {document["model"] for document in measured}
    if len(expected) != 1 or not expected[0]["activations"]["strategies"] or models != {expected[0]["model"]}:
        expected = []
    if not measured or len(measured) + len(expected) < 2:
        return None
    names = labels(measured)
    bars = [_expected(document) for document in expected]
    bars += [{"name": name, **document} for name, document in zip(names, measured, strict=True)]
    rows = [_estimate_row(bar) for bar in bars[: len(expected)]]
    rows += [_measured_row(name, document) for name, document in zip(names, measured, strict=True)]
    listed = ", ".join(
        f"{bar['name']} {known(bar, 'load_growth_bytes', 'unknown')} and {known(bar, 'run_growth_bytes', 'unknown')}"
        for bar in bars
    )
    return Section(
        "At a glance",
        _summary(names, measured, bars[: len(expected)]),
        story=tuple(filter(None, [stock_against_planned(measured)])),
        charts=(Chart("side by side", "What loading and running take", f"Two bars each: {listed}.", {"bars": bars}),),
        tables=(
            Table(
                "Side by side",
                ("result", "loading takes", "running takes", "peak RSS", "latency", "ended"),
                tuple(rows),
            ),
        ),
        notes=_notes(measured, estimated=bool(expected)),
    )


def stock_against_planned(documents: Sequence[Document]) -> str:
    """What running inside the plan saves, in one sentence; empty if not both were measured to the end."""
    found = {how_run(document): document for document in documents if document["verdict"]["kind"] == "ok"}
    if not {"stock", "planned"} <= found.keys() or len({document["model"] for document in documents}) > 1:
        return ""
    stock, planned = found["stock"], found["planned"]
    before, after = number(stock, "run_growth_bytes"), number(planned, "run_growth_bytes")
    if not before or not after:
        return ""
    less = "" if after > before * _NOISE else f": {before / after:.1f} times less"
    same = stock.get("outputs_sha256") == planned.get("outputs_sha256") is not None
    outputs = "with the same outputs, bit for bit" if same else "but the outputs are not equal bit for bit"
    return f"To run it, stock grows by {format_bytes(before)}, planned by {format_bytes(after)}{less}, {outputs}."


def labels(documents: Sequence[Document]) -> list[str]:
    """A name for each measurement: the mode, with the model where there are several; numbered if that is not enough."""
    models = {document["model"] for document in documents}
    names = [how_run(d) if len(models) == 1 else label(d) for d in documents]
    return [n if names.count(n) == 1 else f"{n} ({names[: k + 1].count(n)})" for k, n in enumerate(names)]


def _expected(document: Document) -> Document:
    """An estimate as if it had been measured: weights to load, the best plan's arena to run in."""
    best = min(plan["peak_bytes"] for plan in document["activations"]["strategies"])
    return {"name": "estimate", "load_growth_bytes": document["weights_bytes"], "run_growth_bytes": best}


def _estimate_row(bar: Document) -> tuple[Cell, ...]:
    return Cell("estimate"), size(bar, "load_growth_bytes"), size(bar, "run_growth_bytes"), _NONE, _NONE, _NONE


def _measured_row(name: str, document: Document) -> tuple[Cell, ...]:
    return (
        Cell(name),
        size(document, "load_growth_bytes"),
        size(document, "run_growth_bytes"),
        size(peak(document), "peak_rss_bytes"),
        seconds(document, "latency_seconds"),
        Cell(words(document["verdict"]["kind"], 30)),
    )


def _summary(names: Sequence[str], measured: Sequence[Document], expected: Sequence[Document]) -> str:
    # One that ended early took little, and that is no merit.
    ended = [(name, d) for name, d in zip(names, measured, strict=True) if d["verdict"]["kind"] == "ok"]
    peaks = [(value, name) for name, d in ended if (value := number(peak(d), "peak_rss_bytes"))]
    if len(peaks) > 1:
        (least, small), (most, large) = min(peaks), max(peaks)
        both = f"{format_bytes(least)} as {small} and {format_bytes(most)} as {large}"
        if least > most * _NOISE:
            return f"At most about the same was resident: {both}."
        return f"At most {both} were resident (peak RSS): {format_percent(1 - least / most)} less."
    if ended and expected and (took := number(ended[0][1], "run_growth_bytes")) is not None:
        plan = known(expected[0], "run_growth_bytes")
        return f"Running took {format_bytes(took)} as {ended[0][0]}; with the best plan its activations need {plan}."
    return f"{len(measured) + len(expected)} results side by side."


def _notes(documents: Sequence[Document], *, estimated: bool) -> tuple[str, ...]:
    notes = ["Measured: the growth of resident memory, peak RSS − RSS before."]
    if estimated:
        notes.append("Estimated: weights, and the arena of the best plan; scratch memory of operators is not in it.")
    if len(documents) > 1 and any(len(document.get("repeats") or ()) < 2 for document in documents):
        notes.append("Not all were repeated: small differences may be noise. Measure with --repeat to see the spread.")
    environments = [document.get("environment") or {} for document in documents]
    different = [key for key in environments[0] if any(e.get(key) != environments[0][key] for e in environments[1:])]
    if different:
        listed = ", ".join(words(key, 30) for key in different)
        notes.append(f"These were not measured under the same conditions: {listed} differ. Compare with care.")
    hashes = {document.get("outputs_sha256") for document in documents}
    if len(documents) > 1 and len({d["model"] for d in documents}) == 1 and None not in hashes:
        equal = "The outputs are equal, bit for bit." if len(hashes) == 1 else "The outputs are not equal bit for bit."
        notes.append(equal)
    return tuple(notes)
