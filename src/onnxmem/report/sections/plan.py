"""The sections on a plan, how small buffers can be packed and how good that is, and on a trace: what a run asks for."""

from __future__ import annotations

from onnxmem.report.cells import Document, known, number, seconds, sentence, size, words
from onnxmem.report.report import Action, Fact, Section, Table
from onnxmem.report.sections.common import (
    about_graph,
    about_inputs,
    about_order,
    command,
    memory_map,
    model,
    of_limit,
    tensors,
    unknown_tensors,
    verdict,
)
from onnxmem.units import format_bytes, format_count

_LISTED = 1000


def section(document: Document) -> Section:
    """`onnxmem.plan/1`."""
    fits, capacity = document.get("fits", True), number(document, "capacity_bytes")
    buffers = format_count(document["buffers"], "buffer")
    text = f"{buffers} {'takes' if document['buffers'] == 1 else 'take'} {known(document, 'peak_bytes')}"
    if capacity is not None:
        text += f", which {'fits' if fits else 'does not fit'} into the capacity of {format_bytes(capacity)}"
    return Section(
        f"Plan of {model(document)}",
        f"{text}: {verdict(document)}.",
        facts=_facts(document, capacity),
        actions=_actions(document),
        charts=memory_map(document, known(document, "peak_bytes"), verdict(document)),
        tables=_tables(document),
        notes=_notes(document),
        alarm=not fits,
    )


def _facts(document: Document, capacity: int | float | None) -> tuple[Fact, ...]:
    peak = number(document, "peak_bytes")
    bound = "alive at once" + (f"; {about_order(document)}" if document.get("view") else "; no plan can take less")
    facts = [
        Fact("peak", size(document, "peak_bytes"), f"{peak:,} bytes, strategy {words(document['strategy'], 40)}"),
        Fact("lower bound", size(document, "lower_bound_bytes"), bound),
        Fact("without reuse", size(document, "naive_bytes"), format_count(document["buffers"], "buffer")),
        Fact("time to plan", seconds(document, "seconds")),
    ]
    if capacity is not None:
        fits = "fits" if document["fits"] else "does not fit"
        facts.insert(1, Fact("capacity", size(document, "capacity_bytes"), f"{fits}; {of_limit(peak, capacity)}"))
    return tuple(facts)


def _actions(document: Document) -> tuple[Action, ...]:
    """What may make it smaller, or what to do with it."""
    peak, actions = document["peak_bytes"], []
    bound = number(document, "proven_bound_bytes") or number(document, "lower_bound_bytes") or 0
    if not document["optimal"] and peak > bound:
        longer = Action("Search longer", f"at most {format_bytes(peak - bound)}",
                        command(document, "plan", "--time-limit", "60"))  # fmt: skip
        actions.append(longer)
    if document.get("view") and not document.get("order_search"):
        order = "Let another order of the nodes need less"
        actions.append(Action(order, command=command(document, "plan", "--order", "best")))
    if document.get("view"):
        run = "Run the model inside its plan, and measure what that takes"
        actions.append(Action(run, command=command(document, "measure", "--mode", "planned")))
    return tuple(actions)


def _tables(document: Document) -> tuple[Table, ...]:
    placement, unknown = document.get("placement"), document.get("unknown") or ()
    tables = unknown_tensors(unknown if isinstance(unknown, list | tuple) else ())
    if not placement:
        return tables
    largest = sorted(placement, key=lambda row: -row["bytes"])[:_LISTED]
    title = f"All {len(placement):,} buffers" if len(placement) <= _LISTED else f"The {_LISTED:,} largest buffers"
    title = "The buffer" if len(placement) == 1 else f"{title}, largest first"
    return (tensors(title, largest, folded=True), *tables)


def _notes(document: Document) -> list[str]:
    notes = about_inputs(document) + about_graph(document)
    notes.append(f"Offsets are multiples of {format_count(document['alignment'], 'byte')}.")
    if (number(document, "proven_bound_bytes") or 0) > (number(document, "lower_bound_bytes") or 0):
        notes.append(f"A search proved that no plan takes less than {known(document, 'proven_bound_bytes')}.")
    if document.get("placement_note"):
        notes.append(sentence(document["placement_note"]))
    return notes


def trace_section(document: Document) -> Section:
    """`onnxmem.trace/1`."""
    buffers, steps = format_count(document["buffers"], "buffer"), format_count(document["steps"], "step")
    alive = known(document, "lower_bound_bytes")
    return Section(
        f"Trace of {model(document)}",
        f"One run asked for {buffers}; at most {alive} were in use at once.",
        facts=(
            Fact("in use at once", size(document, "lower_bound_bytes"), "at most; no plan can take less"),
            Fact("all buffers", size(document, "total_bytes"), f"{buffers} over {steps}, if none were ever reused"),
            Fact("outputs", size(document, "output_bytes"), "outlive the run"),
        ),
        actions=(
            Action("Run it inside a plan of these buffers", command=command(document, "measure", "--mode", "planned")),
            Action("Save the buffers, to plan them elsewhere", command=command(document, "trace", "-o", "trace.csv")),
        ),
        notes=about_inputs(document),
    )
