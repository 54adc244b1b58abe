"""What was expected and what was measured, side by side: the estimate, stock, planned."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.report.cells import Document, known, listed, number, seconds, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import Show, figures, model_path, session_line, shapes_text
from onnxmem.report.sections.explain import next_steps
from onnxmem.report.sections.measure import how_run, label, limit, peak
from onnxmem.report.sections.peak_parts import parts_table, peak_parts
from onnxmem.units import format_bytes, format_percent

MEASURED, ESTIMATED = "onnxmem.measure/1", "onnxmem.estimate/1"
_NOISE = 0.95
"""Nearer to each other than this, nobody is named the smaller."""
_FACTS = 5
_ACTIONS = 3


def overview(documents: Sequence[Document]) -> Section | None:
    """Measurements beside each other, and beside the estimate of the same model; None if there are not two of them."""
    # What was measured on a device is not about the memory of the others.
    measured = [each for each in documents if each["schema"] == MEASURED and not each.get("device")]
    expected = [d for d in documents if d["schema"] == ESTIMATED and d["activations"]["strategies"]]
    if len(expected) != 1 or not measured or differences([*measured, expected[0]]):
        expected = []
    if not measured or len(measured) + len(expected) < 2:
        return None
    names, different = labels(measured), [*differences(measured), *conditions(measured)]
    named = list(zip(names, measured, strict=True))
    return Section(
        "At a glance",
        _not_comparable(different) if different else _summary(named, expected),
        facts=_facts(named),
        actions=() if different else _actions(named),
        story=() if different else tuple(filter(None, [stock_against_planned(measured)])),
        charts=() if differences(measured) else _charts(named, expected),
        tables=(_table(named, expected), *([] if differences(measured) else [parts_table(named)])),
        notes=_notes(measured, estimated=bool(expected)),
        alarm=bool(different),
    )


def differences(documents: Sequence[Document]) -> list[str]:
    """In what results are not about the same thing: the model or its inputs."""
    found = []
    if len({document["model"] for document in documents}) > 1:
        found.append("models")
    elif len({number(document, "file_bytes") for document in documents}) > 1:
        found.append("versions of the model")
    if not found and len({_inputs(document) for document in documents}) > 1:
        found.append("input shapes")
    return found


def conditions(documents: Sequence[Document]) -> list[str]:
    """In what the machines, or the software on them, differ."""
    environments = [document.get("environment") or {} for document in documents]
    keys = dict.fromkeys(key for environment in environments for key in environment)
    return [words(key, 30) for key in keys if any(e.get(key) != environments[0].get(key) for e in environments[1:])]


def labels(documents: Sequence[Document]) -> list[str]:
    """A name for each measurement: the mode, model and shapes where they differ, a number if that is not enough."""
    different = differences(documents)
    names = [label(d) if "models" in different else how_run(d) for d in documents]
    if "input shapes" in different:
        names = [f"{n}, {_inputs(d)}" for n, d in zip(names, documents, strict=True)]
    return [n if names.count(n) == 1 else f"{n} ({names[: k + 1].count(n)})" for k, n in enumerate(names)]


def stock_against_planned(documents: Sequence[Document]) -> str:
    """What running inside the plan saves, in one sentence; empty if not both were measured to the end."""
    found = {how_run(document): document for document in documents if document["verdict"]["kind"] == "ok"}
    if not {"stock", "planned"} <= found.keys() or differences(documents):
        return ""
    stock, planned = found["stock"], found["planned"]
    before, after = number(stock, "run_growth_bytes"), number(planned, "run_growth_bytes")
    if not before or not after:
        return ""
    less = "" if after > before * _NOISE else f" ({format_percent(1 - after / before)} less)"
    same = stock.get("outputs_sha256") == planned.get("outputs_sha256") is not None
    outputs = "The outputs are equal, bit for bit." if same else "The outputs are not equal bit for bit."
    return f"Running took {format_bytes(after)} planned, {format_bytes(before)} stock{less}. {outputs}"


def _inputs(document: Document) -> str:
    return shapes_text(document.get("inputs") or {})


def _not_comparable(different: Sequence[str]) -> str:
    what = "differs" if len(different) == 1 and not different[0].endswith("s") else "differ"
    return f"These results cannot be compared: their {listed(different)} {what}. They are only listed."


def _summary(named: Sequence[tuple[str, Document]], expected: Sequence[Document]) -> str:
    peaks = _peaks(named)
    if len(peaks) > 1:
        (least, small), (most, large) = min(peaks), max(peaks)
        both = f"Peak memory: {format_bytes(least)} {small}, {format_bytes(most)} {large}"
        about = "about the same" if least > most * _NOISE else f"{format_percent(1 - least / most)} less"
        return f"{both} ({about})."
    if peaks and expected:
        name, document = next((n, d) for n, d in named if n == peaks[0][1])
        plan = known(_expected(expected[0]), "run_growth_bytes")
        return (
            f"Running took {known(document, 'run_growth_bytes')} {name}; the best plan of its activations takes {plan}."
        )
    return f"{len(named) + len(expected)} results side by side."


def _peaks(named: Sequence[tuple[str, Document]]) -> list[tuple[int | float, str]]:
    """Of those that ran to the end: one that ended early took little, and that is no merit."""
    ended = [(name, document) for name, document in named if document["verdict"]["kind"] == "ok"]
    return [(value, name) for name, document in ended if (value := number(peak(document), "peak_rss_bytes"))]


def _facts(named: Sequence[tuple[str, Document]]) -> tuple[Fact, ...]:
    return tuple(
        Fact(f"peak, {name}", size(peak(d), "peak_rss_bytes"), f"load {known(d, 'load_growth_bytes')}, "
             f"run {known(d, 'run_growth_bytes')}" + ("" if d["verdict"]["kind"] == "ok" else "; did not finish"))
        for name, d in named[:_FACTS]
    )  # fmt: skip


def _actions(named: Sequence[tuple[str, Document]]) -> tuple[Action, ...]:
    peaks = _peaks(named)
    if len(peaks) < 2 or min(peaks)[0] > max(peaks)[0] * _NOISE:
        return ()
    least, name = min(peaks)
    best = next(document for other, document in named if other == name)
    mode = words(best["scenario"]["mode"], 30)
    session = session_line(model_path(best), f'mode="{mode}"')
    worst = next(document for other, document in named if other == max(peaks)[1])
    # What was found about the largest one, but for what the smallest one shows already.
    others = [each for each in next_steps(worst.get("findings") or ()) if f"--mode {mode}" not in each.command]
    return (Action(f"Run it {name}", format_bytes(max(peaks)[0] - least), session), *others)[:_ACTIONS]


def _charts(named: Sequence[tuple[str, Document]], expected: Sequence[Document]) -> tuple[Chart, ...]:
    bars: list[Document] = [*map(_expected, expected), *({"name": name, **document} for name, document in named)]
    told = ", ".join(
        f"{bar['name']} {known(bar, 'load_growth_bytes', 'unknown')} and {known(bar, 'run_growth_bytes', 'unknown')}"
        for bar in bars
    )
    alt = f"Two bars each: {told}."
    return (*peak_parts(named), Chart("side by side", "What loading and running take", alt, {"bars": bars}))


def _expected(document: Document) -> Document:
    """An estimate as if it had been measured: weights to load, the best plan's arena to run in."""
    best = min(plan["peak_bytes"] for plan in document["activations"]["strategies"])
    return {"name": "estimate", "load_growth_bytes": document["weights_bytes"], "run_growth_bytes": best}


def _table(named: Sequence[tuple[str, Document]], expected: Sequence[Document]) -> Table:
    def measured(show: Show) -> Show:
        return lambda row, key: show(row, key) if "verdict" in row else Cell("–")

    columns: list[tuple[str, str, Show]] = [
        ("loading takes", "load_growth_bytes", size),
        ("running takes", "run_growth_bytes", size),
        ("peak RSS", "peak_rss_bytes", measured(lambda row, key: size(peak(row), key))),
        ("latency", "latency_seconds", measured(seconds)),
        ("ended", "verdict", measured(lambda row, key: Cell(words(row[key]["kind"], 30)))),
    ]
    documents = [document for _, document in named]
    if any(map(limit, documents)):
        columns.insert(3, ("limit", "bytes", measured(lambda row, key: size(row.get("memory_limit") or {}, key))))
    if "input shapes" in differences(documents):
        columns.append(("inputs", "inputs", measured(lambda row, _: Cell(_inputs(row)))))
    rows = [{**bar, "result": bar["name"]} for bar in map(_expected, expected)]
    rows += [{**document, "result": name} for name, document in named]
    return figures("Side by side", "result", columns, rows)


def _notes(documents: Sequence[Document], *, estimated: bool) -> tuple[str, ...]:
    notes = ["Loading and running: the growth of resident memory, peak RSS − RSS before."]
    if estimated:
        notes.append("Estimated: weights, and the arena of the best plan; scratch memory of operators is not in it.")
    if len(documents) > 1 and any(len(document.get("repeats") or ()) < 2 for document in documents):
        notes.append("Not all were repeated: small differences may be noise. Measure with --repeat to see the spread.")
    hashes = {document.get("outputs_sha256") for document in documents}
    if len(documents) > 1 and not differences(documents) and None not in hashes:
        equal = "The outputs are equal, bit for bit." if len(hashes) == 1 else "The outputs are not equal bit for bit."
        notes.append(equal)
    return tuple(notes)
