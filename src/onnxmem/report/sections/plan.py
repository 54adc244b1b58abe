"""The sections on what needs no measuring: an estimate, a plan and how good it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxmem.report.cells import (
    Document,
    count,
    known,
    listed,
    name,
    number,
    seconds,
    sentence,
    shape,
    size,
    words,
)
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections import on_device
from onnxmem.report.sections.common import Columns, about_inputs, command, figures, model, of_limit
from onnxmem.report.sections.forecast import (
    forecast_actions,
    forecast_charts,
    forecast_facts,
    forecast_notes,
    forecast_summary,
    forecast_tables,
    forecasts,
)
from onnxmem.report.sections.sizes import LONGEST_FORMULA, formula_tables, in_dimensions, not_counted, unknown_tensors
from onnxmem.report.sections.tiling import (
    budget_actions,
    budget_facts,
    budget_notes,
    budget_tables,
    tiling_actions,
    tiling_facts,
    tiling_notes,
    tiling_tables,
)
from onnxmem.units import format_bytes, format_count, format_percent, format_times

_SHOWN = 10
_LISTED = 1000
_STRATEGY: Columns = (
    ("peak", "peak_bytes", size),
    ("how good", "gap", lambda plan, _: Cell(verdict(plan))),
    ("time to plan", "seconds", seconds),
)


def estimate_section(document: Document) -> Section:
    """`onnxmem.estimate/1`."""
    activations = document["activations"]
    plans = activations["strategies"]
    # Strategies are listed from naive to best: among equals the last is the one to name.
    best = min(reversed(plans), key=lambda plan: plan["peak_bytes"]) if plans else None
    return Section(
        f"Estimate of {model(document)}",
        _estimate_summary(document, best),
        facts=_estimate_facts(document, best),
        actions=_estimate_actions(document, best),
        charts=_estimate_charts(document, best),
        tables=_estimate_tables(document),
        notes=_estimate_notes(document),
    )


def _estimate_summary(document: Document, best: Document | None) -> str:
    weights = known(document, "weights_bytes")
    if best is None:
        return f"{model(document)} has {weights} of weights."
    naive, peak = number(document["activations"], "naive_bytes") or 0, number(best, "peak_bytes") or 0
    reuse = f", {format_percent(1 - peak / naive)} less than without reuse" if peak < naive else ""
    minimal = "; provably no plan takes less in this order" if best["optimal"] else ""
    least = "at least " if (missing := not_counted(document["activations"]["unknown"])) else ""
    how = missing or f"{reuse}{minimal}"
    own = f"{model(document)} needs {weights} for weights and {least}{format_bytes(peak)} for activations{how}."
    return " ".join(filter(None, (on_device.device_summary(document), forecast_summary(document), own)))


def _estimate_facts(document: Document, best: Document | None) -> tuple[Fact, ...]:
    activations = document["activations"]
    facts = on_device.device_facts(document) + forecast_facts(document)
    facts.append(Fact("weights", size(document, "weights_bytes"), "as they lie in memory"))
    facts += tiling_facts(document) + budget_facts(document)
    if best is not None:
        how = f"strategy {words(best['name'], 40)}, {verdict(best)}{not_counted(activations['unknown'])}"
        facts.append(Fact("activations, planned", size(best, "peak_bytes"), how))
    facts.append(Fact("lower bound", size(activations, "lower_bound_bytes"), f"alive at once; {about_order(document)}"))
    if not forecasts(document):
        buffers = format_count(activations["count"], "buffer")
        facts.append(Fact("activations, no reuse", size(activations, "naive_bytes"), f"{buffers}, none ever reused"))
    return tuple(facts)


def _estimate_actions(document: Document, best: Document | None) -> tuple[Action, ...]:
    actions = tiling_actions(document) + budget_actions(document)
    if best is not None and number(best, "peak_bytes"):
        actions += forecast_actions(document)
    if not document.get("order_search") and not document.get("device"):
        order = "See whether another order of the nodes needs less"
        actions.append(Action(order, command=command(document, "plan", "--order", "best")))
    if wasted := number(document["weights"], "duplicate_bytes"):
        actions.append(Action("Store equal weights once", format_bytes(wasted)))
    return tuple(actions)


def _estimate_charts(document: Document, best: Document | None) -> tuple[Chart, ...]:
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
    processes = on_device.device_charts(document) or forecast_charts(document)
    return (*processes, bars, *memory_map(plan, known(best, "peak_bytes"), verdict(best)))


def _estimate_tables(document: Document) -> tuple[Table, ...]:
    activations = document["activations"]
    peak = activations["peak"]
    strategies = ({**plan, "strategy": plan["name"]} for plan in activations["strategies"])
    node = f", {words(peak['node'], 60)}" if peak["node"] else ""
    more = len(peak["tensors"]) - _SHOWN
    where = f"Alive at the peak, step {number(peak, 'step')} of {document['steps']:,}{node}"
    return (
        *on_device.device_tables(document),
        *forecast_tables(document),
        *budget_tables(document),
        *tiling_tables(document),
        figures("Strategies", "strategy", _STRATEGY, strategies),
        *formula_tables(document),
        tensors(where + (f" (the {_SHOWN} largest of {len(peak['tensors'])})" if more > 0 else ""),
                peak["tensors"][:_SHOWN]),
        tensors("Largest tensors", (activations.get("largest") or ())[:_SHOWN]),
        in_dimensions(activations.get("largest") or ()),
        *unknown_tensors(activations["unknown"]),
    )  # fmt: skip


def _estimate_notes(document: Document) -> list[str]:
    formula, notes = document.get("formula"), on_device.device_notes(document) or forecast_notes(document)
    notes += about_inputs(document) + about_graph(document)
    if formula and len(formula["peak_bytes"]) > LONGEST_FORMULA:
        pieces = format_count(len(formula.get("general") or ()), "expression")
        notes.append(f"The peak for any size is the largest of {pieces}; --json has them.")
    if document.get("formula_note"):
        notes.append(sentence(document["formula_note"]))
    notes += tiling_notes(document) + budget_notes(document)
    if document["activations"].get("placement_note"):
        notes.append(sentence(document["activations"]["placement_note"]))
    if wasted := number(document["weights"], "duplicate_bytes"):
        groups = document["weights"].get("duplicates") or ()
        first = f", first {', '.join(name(each, 30).text for each in groups[0]['names'][:3])}" if groups else ""
        notes.append(f"{format_bytes(wasted)} of weights are stored more than once{first}.")
    return notes


def plan_section(document: Document) -> Section:
    """`onnxmem.plan/1`."""
    fits, capacity = document.get("fits", True), number(document, "capacity_bytes")
    buffers = format_count(document["buffers"], "buffer")
    text = f"{buffers} {'takes' if document['buffers'] == 1 else 'take'} {known(document, 'peak_bytes')}"
    if capacity is not None:
        text += f", which {'fits' if fits else 'does not fit'} into the capacity of {format_bytes(capacity)}"
    return Section(
        f"Plan of {model(document)}",
        f"{text}: {verdict(document)}{not_counted(_unknown(document))}.",
        facts=_plan_facts(document, capacity),
        actions=_plan_actions(document),
        charts=memory_map(document, known(document, "peak_bytes"), verdict(document)),
        tables=_plan_tables(document),
        notes=_plan_notes(document),
        alarm=not fits,
    )


def _plan_facts(document: Document, capacity: int | float | None) -> tuple[Fact, ...]:
    peak = number(document, "peak_bytes")
    bound = "alive at once" + (f"; {about_order(document)}" if document.get("view") else "; no plan can take less")
    facts = [
        Fact("peak", size(document, "peak_bytes"), f"{peak:,} bytes, strategy {words(document['strategy'], 40)}"),
        Fact("lower bound", size(document, "lower_bound_bytes"), bound),
        Fact("without reuse", size(document, "naive_bytes"), format_count(document["buffers"], "buffer")),
        Fact("time to plan", seconds(document, "seconds")),
    ]
    if document.get("sharing"):
        facts[-1] = _shared_places(document)
    facts[1:1] = tiling_facts(document)
    if capacity is not None:
        fits = "fits" if document["fits"] else "does not fit"
        facts.insert(1, Fact("capacity", size(document, "capacity_bytes"), f"{fits}; {of_limit(peak, capacity)}"))
    return tuple(facts)


def _shared_places(document: Document) -> Fact:
    """How many buffers are written over others, and what that saves."""
    sharing, peak = document["sharing"], document["peak_bytes"]
    pairs = Cell(f"{sharing['used']:,} of {format_count(sharing['possible'], 'pair')}")
    apart = sharing["unshared_bound_bytes"]
    saved = f"save at least {format_bytes(apart - peak)}; " if apart > peak else ""
    return Fact("shared places", pairs, f"{saved}{format_bytes(apart)} or more without")


def _plan_actions(document: Document) -> tuple[Action, ...]:
    """What may make it smaller, or what to do with it."""
    peak, actions = document["peak_bytes"], []
    bound = number(document, "proven_bound_bytes") or number(document, "lower_bound_bytes") or 0
    if not document["optimal"] and peak > bound:
        longer = Action("Search longer", f"at most {format_bytes(peak - bound)}",
                        command(document, "plan", "--time-limit", "60"))  # fmt: skip
        actions.append(longer)
    if tiled := tiling_actions(document):
        return (*actions, *tiled)
    if document.get("view") and not document.get("order_search"):
        order = "Let another order of the nodes need less"
        actions.append(Action(order, command=command(document, "plan", "--order", "best")))
    if document.get("view"):
        run = "Run the model inside its plan, and measure what that takes"
        actions.append(Action(run, command=command(document, "measure", "--mode", "planned")))
    return tuple(actions)


def _plan_tables(document: Document) -> tuple[Table, ...]:
    placement = document.get("placement")
    tables = (*tiling_tables(document), *unknown_tensors(_unknown(document)))
    if not placement:
        return tables
    largest = sorted(placement, key=lambda row: -row["bytes"])[:_LISTED]
    title = f"All {len(placement):,} buffers" if len(placement) <= _LISTED else f"The {_LISTED:,} largest buffers"
    title = "The buffer" if len(placement) == 1 else f"{title}, largest first"
    return (tensors(title, largest, folded=True), *tables)


def _unknown(document: Document) -> Sequence[Document]:
    """The tensors of unknown size; other kinds of results have reasons under that name."""
    found = document.get("unknown")
    return found if isinstance(found, list | tuple) else ()


def _plan_notes(document: Document) -> list[str]:
    notes = about_inputs(document) + about_graph(document) + tiling_notes(document)
    notes.append(f"Offsets are multiples of {format_count(document['alignment'], 'byte')}.")
    if (number(document, "proven_bound_bytes") or 0) > (number(document, "lower_bound_bytes") or 0):
        notes.append(f"A search proved that no plan takes less than {known(document, 'proven_bound_bytes')}.")
    if document.get("placement_note"):
        notes.append(sentence(document["placement_note"]))
    return notes


def verdict(plan: Document) -> str:
    """How good a plan is."""
    if plan["optimal"]:
        return "provably minimal"
    gap = number(plan, "gap")
    if gap is None:
        return "not proven minimal"
    above = f"{format_percent(gap)} above" if gap < 10 else f"{format_times(gap + 1)}"
    return f"{above} the lower bound" + ("; the search was interrupted" if plan.get("interrupted") else "")


def about_order(document: Document) -> str:
    """What is proven about all orders of the nodes."""
    search = document.get("order_search")
    if not search:
        return "no plan can take less in this order"
    if search["optimal"]:
        return "no order of the nodes takes less"
    return f"no order of the nodes takes less than {format_bytes(search['proven_bound_bytes'])}"


def about_graph(document: Document) -> list[str]:
    """Which graph was looked at, and what shares memory in it."""
    if not document.get("view"):
        return []
    rules = document.get("rules") or {}
    shared = [text for key, text in (("alias", "views"), ("in_place", "in-place results")) if rules.get(key)]
    file = f", file {format_bytes(document['file_bytes'])}" if number(document, "file_bytes") is not None else ""
    how = f"; {' and '.join(shared)} share memory" if shared else ""
    nodes = format_count(document["nodes"], "node")
    graph = f"Graph: {words(document['view'], 60)}, {nodes}{file}, {words(document['order'], 40)} order{how}."
    return [graph, *(words(note) for note in document.get("notes") or ())]


def tensors(title: str, rows: Iterable[Document], *, folded: bool = False) -> Table:
    """Tensors or buffers with their sizes and lifetimes, and what else is known of them."""
    rows = list(rows)
    shapes, offsets = any("shape" in row for row in rows), any(row.get("offset") is not None for row in rows)
    shared = any(row.get("over") for row in rows)
    columns = ["tensor", "size", *(["shape", "type"] if shapes else []), "first step", "last step"]
    return Table(
        title,
        (*columns, *(["offset"] if offsets else []), *(["written over"] if shared else [])),
        tuple(
            (
                name(row["name"]),
                size(row, "bytes"),
                *((Cell(shape(row.get("shape"))), Cell(words(row.get("dtype") or "?", 20))) if shapes else ()),
                count(row, "lower"),
                # A lifetime is half open: the step before its end is the last that reads it.
                count({"upper": row["upper"] - 1}, "upper"),
                *((size(row, "offset"),) if offsets else ()),
                *((name(row["over"]) if row.get("over") else Cell(""),) if shared else ()),
            )
            for row in rows
        ),
        folded,
    )


def memory_map(document: Document, peak: str, verdict: str) -> tuple[Chart, ...]:
    """The map of a placement, if the document has one."""
    if not document.get("placement"):
        return ()
    alt = (
        f"Memory map: time runs from left to right, the offset in the arena upwards, each of the "
        f"{len(document['placement']):,} buffers is a rectangle. The highest reaches {peak}, {verdict}."
    )
    if any(row.get("over") for row in document["placement"]):
        alt += " Buffers that are written over others at the same place have a dashed outline, with those."
    kinds = [row.get("kind") for row in document["placement"]]
    pieces = [format_count(kinds.count(kind), kind) for kind in ("stripe", "block") if kind in kinds]
    if pieces:
        alt += f" {listed(pieces)} of larger tensors have colours of their own."
    return (Chart("memory map", "Where every buffer lies, and when", alt, document),)
