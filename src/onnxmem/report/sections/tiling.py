"""What computing parts of a model in pieces gives and costs, and what a budget takes, in estimates and plans."""

from __future__ import annotations

from collections.abc import Mapping

from onnxmem.report.cells import Document, count, known, name, number, percent, size, words
from onnxmem.report.report import Action, Cell, Fact, Table
from onnxmem.report.sections.common import command
from onnxmem.units import format_bytes, format_percent, format_times, typed_bytes, typed_exactly


def tiling_facts(document: Document) -> list[Fact]:
    """What computing parts of the model in pieces gives, where somebody asked."""
    tiling = document.get("tiling")
    if not tiling:
        return []
    if tiling.get("note"):
        return [Fact("alive at once, tiled", size(tiling, "after_bytes"), "as it is: it cannot be tiled")]
    if not tiling["parts"]:
        return [Fact("alive at once, tiled", size(tiling, "after_bytes"), "no part takes less in pieces")]
    before, ratio = known(tiling, "before_bytes"), format_times(tiling["ratio"])
    nodes = f"{tiling['nodes_before']:,} → {tiling['nodes']:,} nodes"
    work = f"{format_percent(tiling['extra_work'])} more work"
    return [Fact("alive at once, tiled", size(tiling, "after_bytes"), f"{ratio} of {before}; {nodes}, {work}")]


def tiling_notes(document: Document) -> list[str]:
    """Why it cannot be computed in pieces."""
    note = (document.get("tiling") or {}).get("note")
    return [f"It cannot be tiled, as {words(note, 400).rstrip('.')}."] if note else []


def tiling_actions(document: Document) -> list[Action]:
    """How to get it, if it gives something."""
    if not (document.get("tiling") or {}).get("parts"):
        return []
    capacity = number(document, "capacity_bytes")
    how = ("--tile",) if capacity is None else ("--budget", typed_exactly(int(capacity)))
    return [Action("Make a package that runs like this", command=command(document, "pack", "-o", "tiled.pack", *how))]


def tiling_tables(document: Document) -> tuple[Table, ...]:
    """The parts that are computed in pieces, one by one."""
    parts = (document.get("tiling") or {}).get("parts") or ()
    rows = tuple(
        (
            Cell(f"{count(part, 'pieces').text} {words(part['kind'], 20)}"),
            count(part, "nodes"),
            name(part["first"]),
            name(part["last"]),
            Cell(format_bytes(part["before_bytes"] - part["after_bytes"])),
            percent(part, "extra_work"),
        )
        for part in parts
    )
    return (Table("In pieces", ("pieces", "nodes", "from", "to", "gives", "more work"), rows),) if rows else ()


def budget_facts(document: Document) -> list[Fact]:
    """What a budget takes, where somebody asked."""
    budget = _budget(document)
    if budget is None:
        return []
    limit, chosen, least = number(budget, "budget_bytes"), budget["chosen"], budget["least"]
    facts = []
    if limit is not None:
        how = (
            "nothing was found that needs as little"
            if chosen is None
            else f"{_way(chosen, budget)}: {known(chosen, 'needed_bytes')}"
        )
        facts.append(Fact("budget of a run", size(budget, "budget_bytes"), how))
    if chosen is None:  # else nobody looked for less than that
        facts.append(
            Fact("least found for a run", size(least, "needed_bytes"), f"{_way(least, budget)}, with its outputs")
        )
    return facts


def budget_actions(document: Document) -> list[Action]:
    """How to get what was chosen, or what is least if nothing fits."""
    budget = _budget(document)
    step = None if budget is None else budget["chosen"] or budget["least"]
    if budget is None or step is None or step["kind"] == "as it is":
        return []
    limit = number(budget, "budget_bytes") if budget["chosen"] else None
    # What is given is a limit, what is needed has to fit.
    asked = typed_exactly(int(limit)) if limit else typed_bytes(int(step["needed_bytes"]))
    return [
        Action(
            "Make a package that keeps to it" if budget["chosen"] else "Make a package that needs that little",
            command=command(document, "pack", "-o", "small.pack", "--budget", asked),
        )
    ]


def budget_tables(document: Document) -> tuple[Table, ...]:
    """What each step towards the least costs."""
    budget = _budget(document)
    if budget is None:
        return ()
    rows = tuple(
        (
            Cell(_way(step, budget)),
            size(step, "needed_bytes"),
            Cell(f"{step['needed_bytes'] / budget['steps'][0]['needed_bytes']:.2f}×"),
            percent(step, "extra_work") if step["kind"] == "tiles" else Cell("none"),
            count(step, "nodes") if step["kind"] == "tiles" else Cell("none"),
        )
        for step in budget["steps"]
    )
    return (Table("What it costs to need less", ("how", "a run needs", "", "more work", "more nodes"), rows),)


def budget_notes(document: Document) -> list[str]:
    """Why there is no answer, or no rows."""
    reasons, budget = document.get("unknown"), _budget(document)
    if budget is None:
        why = reasons.get("budget") if isinstance(reasons, Mapping) else None
        return [f"What a budget takes is not known: {words(why, 200)}."] if why else []
    why = words(budget["unsplit"], 200)
    return [f"The batch is not split: {why}."] if why and len(budget["steps"]) > 1 else []


def _budget(document: Document) -> Document | None:
    budget = document.get("budget")
    return budget or None


def _way(step: Document, budget: Document) -> str:
    if step["kind"] == "rows":
        return f"{step['rows_at_once']:,} of {budget['rows']:,} rows at a time"
    return "in stripes and blocks" if step["kind"] == "tiles" else "as it is, in the best of places"
