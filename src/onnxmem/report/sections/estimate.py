"""The section on an estimate: what the model will take, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.report.cells import Document, count, known, name, number, seconds, sentence, size, text, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import (
    Columns,
    about_graph,
    about_inputs,
    about_order,
    command,
    few,
    figures,
    memory_map,
    model,
    tensors,
    unknown_tensors,
    verdict,
)
from onnxmem.units import format_bytes, format_count, format_percent

_SHOWN = 10
_LONGEST_FORMULA = 300
_STRATEGY: Columns = (
    ("peak", "peak_bytes", size),
    ("how good", "gap", lambda plan, _: Cell(verdict(plan))),
    ("time to plan", "seconds", seconds),
)


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
        actions=_actions(document, best),
        charts=_charts(document, best),
        tables=tuple(table for table in _tables(document) if table.rows),
        notes=few(_notes(document)),
        source=document,
    )


def _summary(document: Document, best: Document | None) -> str:
    weights = known(document, "weights_bytes")
    if best is None:
        return f"{model(document)} has {weights} of weights."
    naive, peak = number(document["activations"], "naive_bytes") or 0, number(best, "peak_bytes") or 0
    reuse = f", {format_percent(1 - peak / naive)} less than without reuse" if peak < naive else ""
    minimal = "; provably no plan takes less in this order" if best["optimal"] else ""
    return f"{model(document)} needs {weights} for weights and {format_bytes(peak)} for activations{reuse}{minimal}."


def _facts(document: Document, best: Document | None) -> tuple[Fact, ...]:
    activations = document["activations"]
    facts = [Fact("weights", size(document, "weights_bytes"), "as they lie in memory")]
    if best is not None:
        how = f"strategy {words(best['name'], 40)}, {verdict(best)}"
        facts.append(Fact("activations, planned", size(best, "peak_bytes"), how))
    buffers = format_count(activations["count"], "buffer")
    return (
        *facts,
        Fact("lower bound", size(activations, "lower_bound_bytes"), f"alive at once; {about_order(document)}"),
        Fact("activations, no reuse", size(activations, "naive_bytes"), f"{buffers}, none ever reused"),
    )


def _actions(document: Document, best: Document | None) -> tuple[Action, ...]:
    actions = []
    if best is not None and number(best, "peak_bytes"):
        run = "Run it inside this plan, and measure what that takes"
        actions.append(Action(run, command=command(document, "measure", "--mode", "planned")))
    if not document.get("order_search"):
        order = "See whether another order of the nodes needs less"
        actions.append(Action(order, command=command(document, "plan", "--order", "best")))
    if wasted := number(document["weights"], "duplicate_bytes"):
        actions.append(Action("Store equal weights once", format_bytes(wasted)))
    return tuple(actions)


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
    return (bars, *memory_map(plan, known(best, "peak_bytes"), verdict(best)))


def _tables(document: Document) -> tuple[Table, ...]:
    activations = document["activations"]
    peak = activations["peak"]
    strategies = ({**plan, "strategy": plan["name"]} for plan in activations["strategies"])
    node = f", {words(peak['node'], 60)}" if peak["node"] else ""
    more = len(peak["tensors"]) - _SHOWN
    where = f"Alive at the peak, step {peak['step']} of {document['steps']:,}{node}"
    return (
        figures("Strategies", "strategy", _STRATEGY, strategies),
        *_formula(document),
        tensors(where + (f" (the {_SHOWN} largest of {len(peak['tensors'])})" if more > 0 else ""),
                peak["tensors"][:_SHOWN]),
        tensors("Largest tensors", (activations.get("largest") or ())[:_SHOWN]),
        _in_dimensions(activations.get("largest") or ()),
        *unknown_tensors(activations["unknown"]),
    )  # fmt: skip


def _in_dimensions(tensors: Sequence[Document]) -> Table:
    """Shapes and sizes in the model's own dimensions, where some were left open."""
    rows = tuple(
        (name(row["name"]), Cell(words(f"[{', '.join(map(str, row['symbolic_shape']))}]")), text(row, "symbolic_bytes"))
        for row in tensors[:_SHOWN]
        if row.get("symbolic_shape") is not None
    )
    return Table("Largest tensors for any size", ("tensor", "shape", "bytes"), rows)


def _formula(document: Document) -> list[Table]:
    """The peak as a function of free dimensions, and what it says about useful sizes."""
    formula, found = document.get("formula"), []
    if formula and formula.get("pieces") and len(formula["peak_bytes"]) <= _LONGEST_FORMULA:
        rows = tuple((Cell(words(p["bytes"])), count(p, "from"), count(p, "to")) for p in formula["pieces"])
        title = f"Peak for any size, in bytes before alignment ({words(formula['holds_for'])})"
        bytes_title = "whichever is largest" if len(rows) > 1 else "bytes"
        found.append(Table(title, (bytes_title, "from", "to"), rows).without_empty_columns())
    if document.get("table"):
        dims = list(document["table"][0]["dims"])
        sizes = tuple((*(count(row["dims"], d) for d in dims), size(row, "peak_bytes")) for row in document["table"])
        found.append(Table("At other sizes", (*(words(dim, 30) for dim in dims), "peak of activations"), sizes))
    return found


def _notes(document: Document) -> list[str]:
    formula, notes = document.get("formula"), about_inputs(document) + about_graph(document)
    if formula and len(formula["peak_bytes"]) > _LONGEST_FORMULA:
        pieces = format_count(len(formula.get("general") or ()), "expression")
        notes.append(f"The peak for any size is the largest of {pieces}; --json has them.")
    if document.get("formula_note"):
        notes.append(sentence(document["formula_note"]))
    if document["activations"].get("placement_note"):
        notes.append(sentence(document["activations"]["placement_note"]))
    if wasted := number(document["weights"], "duplicate_bytes"):
        groups = document["weights"].get("duplicates") or ()
        first = f", first {', '.join(name(each, 30).text for each in groups[0]['names'][:3])}" if groups else ""
        notes.append(f"{format_bytes(wasted)} of weights are stored more than once{first}.")
    return notes
