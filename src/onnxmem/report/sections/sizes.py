"""What an estimate says of other sizes, by formulas, and of tensors whose size nobody can tell before a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxmem.report.cells import Document, count, name, size, text, words
from onnxmem.report.report import Cell, Table
from onnxmem.units import format_count

LONGEST_FORMULA = 300
_SHOWN = 10


def in_dimensions(largest: Iterable[Document]) -> Table:
    """Shapes and sizes in the model's own dimensions, where some were left open."""
    rows = tuple(
        (name(row["name"]), Cell(words(f"[{', '.join(map(str, row['symbolic_shape']))}]")), text(row, "symbolic_bytes"))
        for row in largest
        if row.get("symbolic_shape") is not None
    )
    return Table("Largest tensors for any size", ("tensor", "shape", "bytes"), rows[:_SHOWN])


def formula_tables(document: Document) -> list[Table]:
    """The peak as a function of free dimensions, and what it says about useful sizes."""
    formula, found = document.get("formula"), []
    if formula and formula.get("pieces") and len(formula["peak_bytes"]) <= LONGEST_FORMULA:
        rows = tuple((Cell(words(p["bytes"])), count(p, "from"), count(p, "to")) for p in formula["pieces"])
        title = f"Peak for any size, in bytes before alignment ({words(formula['holds_for'])})"
        bytes_title = "whichever is largest" if len(rows) > 1 else "bytes"
        found.append(Table(title, (bytes_title, "from", "to"), rows).without_empty_columns())
    if document.get("table"):
        sizes = tuple((_sizes(row["dims"]), size(row, "peak_bytes")) for row in document["table"])
        dims = ", ".join(words(dim, 30) for dim in document["table"][0]["dims"])
        found.append(Table("At other sizes", (dims, "peak of activations"), sizes))
    return found


def _sizes(dims: Document) -> Cell:
    """In one cell, which names the row: where a terminal is narrow, columns stand below each other."""
    return count(dims, next(iter(dims))) if len(dims) == 1 else Cell(", ".join(str(dims[dim]) for dim in dims))


def unknown_tensors(tensors: Iterable[Document]) -> tuple[Table, ...]:
    """Tensors of unknown size by reason, the most frequent reason first."""
    reasons: dict[str, list[str]] = {}
    for tensor in tensors:
        reasons.setdefault(words(tensor.get("reason") or "?"), []).append(tensor["name"])
    if not reasons:
        return ()
    rows = [
        (Cell(reason), count({"n": len(names)}, "n"), Cell(", ".join(name(each, 30).text for each in names[:2])))
        for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    total = format_count(sum(map(len, reasons.values())), "tensor")
    return (Table(f"Not counted: {total} of unknown size", ("why", "tensors", "for example"), tuple(rows), True),)


def not_counted(tensors: Sequence[Document]) -> str:
    """The end of a sentence whose figures leave out tensors of unknown size; nothing if there are none."""
    if not tensors:
        return ""
    return f", without {format_count(len(tensors), 'tensor')} of unknown size"
