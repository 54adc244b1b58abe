"""The section on an estimate: what the model will take, before anything runs."""

from __future__ import annotations

from onnxmem.report.cells import Document, count, known, name, number, percent, seconds, size, words, yes_no
from onnxmem.report.report import Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_inputs, few, memory_map, model, tensors
from onnxmem.units import format_bytes

_SHOWN = 15


def section(document: Document) -> Section:
    """`onnxmem.estimate/1`."""
    activations = document["activations"]
    plans = activations["strategies"]
    # Strategies are listed from naive to best: among equals the last is the one to name.
    best = min(reversed(plans), key=lambda plan: plan["peak_bytes"]) if plans else None
    return Section(
        f"Estimate of {model(document)}",
        _summary(document, best),
        facts=_facts(document, best),
        charts=_charts(document, best),
        tables=_tables(document),
        notes=few(_notes(document)),
        source=document,
    )


def _summary(document: Document, best: Document | None) -> str:
    activations = document["activations"]
    start = f"{model(document)} has {known(document, 'weights_bytes')} of weights"
    if best is None:
        return f"{start}."
    naive, peak = number(activations, "naive_bytes") or 0, number(best, "peak_bytes") or 0
    text = f"{start}, and its activations fit into {format_bytes(peak)}"
    if peak and naive > peak:
        text += f", {naive / peak:.1f} times less than the {format_bytes(naive)} they are without reuse"
    return text + (": provably no plan takes less in this order." if best["optimal"] else ".")


def _facts(document: Document, best: Document | None) -> tuple[Fact, ...]:
    activations = document["activations"]
    facts = [Fact("weights", size(document, "weights_bytes"), "as they lie in memory")]
    if best is not None:
        how = "proven optimal" if best["optimal"] else "the best plan found"
        facts.append(
            Fact("activations, planned", size(best, "peak_bytes"), f"strategy {words(best['name'], 40)}, {how}")
        )
    facts += [
        Fact("lower bound", size(activations, "lower_bound_bytes"), "alive at once: no plan can be smaller"),
        Fact("activations, no reuse", size(activations, "naive_bytes"), f"{activations['count']:,} buffers"),
    ]
    return tuple(facts)


def _charts(document: Document, best: Document | None) -> tuple[Chart, ...]:
    activations = document["activations"]
    if best is None or not number(activations, "naive_bytes"):
        return ()
    listed = ", ".join(f"{words(plan['name'], 40)} {known(plan, 'peak_bytes')}" for plan in activations["strategies"])
    bars = Chart(
        "strategies",
        "Activations by strategy",
        f"One bar per strategy: {listed}. The lower bound is {known(activations, 'lower_bound_bytes')}.",
        activations,
    )
    plan = {
        "placement": activations.get("placement"),
        "alignment": document["alignment"],
        "strategy": best["name"],
        "seconds": best["seconds"],
        "proven_bound_bytes": best["peak_bytes"] if best["optimal"] else activations["lower_bound_bytes"],
    }
    return (
        bars,
        *memory_map(
            plan, known(best, "peak_bytes"), "which is optimal" if best["optimal"] else "which may not be optimal"
        ),
    )


def _tables(document: Document) -> tuple[Table, ...]:
    activations = document["activations"]
    peak = activations["peak"]
    where = f"Alive at the peak: step {peak['step']}" + (f", {words(peak['node'], 60)}" if peak["node"] else "")
    strategies = Table(
        "Strategies",
        ("strategy", "peak", "above the bound", "optimal", "time to plan"),
        tuple(
            (name(p["name"]), size(p, "peak_bytes"), percent(p, "gap"), yes_no(p["optimal"]), seconds(p, "seconds"))
            for p in activations["strategies"]
        ),
    )
    tables = [strategies] if strategies.rows else []
    if document.get("table"):
        dims = list(document["table"][0]["dims"])
        rows = tuple((*(count(row["dims"], dim) for dim in dims), size(row, "peak_bytes")) for row in document["table"])
        tables.append(Table("At other sizes", (*(words(dim, 30) for dim in dims), "peak of activations"), rows))
    if peak["tensors"]:
        tables.append(tensors(where, peak["tensors"][:_SHOWN]))
    if activations["unknown"]:
        tables.append(
            Table(
                "Not counted: tensors of unknown size",
                ("tensor", "why"),
                tuple((name(each["name"]), Cell(words(each["reason"]))) for each in activations["unknown"][:_SHOWN]),
            )
        )
    return tuple(tables)


def _notes(document: Document) -> list[str]:
    activations, formula = document["activations"], document.get("formula")
    notes = about_inputs(document)
    notes.append(
        f"Graph: {words(document['view'], 60)}, {document['nodes']:,} nodes, {words(document['order'], 40)} order."
    )
    if formula:
        notes.append(f"Peak for any size, in bytes: {words(formula['peak_bytes'])}, for {words(formula['holds_for'])}.")
    if document.get("formula_note"):
        notes.append(f"{words(document['formula_note'])}.")
    more = len(activations["peak"]["tensors"]) - _SHOWN
    if more > 0:
        notes.append(f"{more} smaller tensors are alive at the peak, too; the JSON lists them.")
    wasted = number(document["weights"], "duplicate_bytes")
    if wasted:
        notes.append(f"{format_bytes(wasted)} of weights are stored more than once.")
    return notes + [words(note) for note in document.get("notes") or ()]
