"""What computing parts of a model in pieces gives and costs, in sections on estimates and plans."""

from __future__ import annotations

from onnxmem.report.cells import Document, count, known, name, percent, size, words
from onnxmem.report.report import Action, Cell, Fact, Table
from onnxmem.report.sections.common import command
from onnxmem.units import format_bytes, format_percent, format_times


def tiling_facts(document: Document) -> list[Fact]:
    """What computing parts of the model in pieces gives, where somebody asked."""
    tiling = document.get("tiling")
    if not tiling:
        return []
    if not tiling["parts"]:
        return [Fact("alive at once, tiled", size(tiling, "after_bytes"), "no part takes less in pieces")]
    before, ratio = known(tiling, "before_bytes"), format_times(tiling["ratio"])
    nodes = f"{tiling['nodes_before']:,} → {tiling['nodes']:,} nodes"
    work = f"{format_percent(tiling['extra_work'])} more work"
    return [Fact("alive at once, tiled", size(tiling, "after_bytes"), f"{ratio} of {before}; {nodes}, {work}")]


def tiling_actions(document: Document) -> list[Action]:
    """How to get it, if it gives something."""
    if not (document.get("tiling") or {}).get("parts"):
        return []
    return [
        Action("Make a package that runs like this", command=command(document, "pack", "-o", "tiled.pack", "--tile"))
    ]


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
