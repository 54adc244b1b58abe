"""What several kinds of results say in the same way: inputs, assumptions, the machine, tensors."""

from __future__ import annotations

from collections.abc import Iterable

from onnxmem.report.cells import Document, count, name, shape, size, words
from onnxmem.report.report import Cell, Chart, Table

_NOTES = 12


def model(document: Document) -> str:
    """Which model it was about."""
    return words(document.get("model") or document.get("problem") or "a problem", 80)


def about_inputs(document: Document) -> list[str]:
    """What was fed or assumed, in sentences."""
    inputs = document.get("inputs") or {}
    listed = [f"{words(key, 40)} {shape(each.get('shape'))} {words(each.get('dtype'), 20)}"
              for key, each in list(inputs.items())[:4]]  # fmt: skip
    more = f" and {len(inputs) - 4} more" if len(inputs) > 4 else ""
    lines = [f"Inputs: {', '.join(listed)}{more}."] if listed else []
    assumed = (document.get("dims") or {}).get("assumed") or {}
    if assumed:
        pairs = ", ".join(f"{words(key, 40)} = {words(value, 20)}" for key, value in assumed.items())
        lines.append(f"Assumed, since nothing was said: {pairs}.")
    return lines


def about_machine(document: Document) -> list[str]:
    """Where it was measured."""
    where = document.get("environment") or {}
    if not where:
        return []
    parts = [
        f"ONNX Runtime {words(where.get('onnxruntime', '?'), 20)}",
        f"Python {words(where.get('python', '?'), 20)}",
    ]
    parts += [words(where[key], 80) for key in ("libc", "cpu") if where.get(key)]
    if where.get("cores"):
        parts.append(f"{words(where['cores'], 8)} cores")
    if where.get("kernel"):
        parts.append(f"{words(where.get('system', ''), 10)} {words(where['kernel'], 40)}")
    lines = [f"Measured with {', '.join(parts)}."]
    if where.get("variables"):
        lines.append("Set: " + " ".join(f"{words(k, 40)}={words(v, 60)}" for k, v in where["variables"].items()))
    return lines


def tensors(title: str, rows: Iterable[Document], *, shapes: bool = True, folded: bool = False) -> Table:
    """Tensors or buffers with their sizes and lifetimes, and offsets where there are some."""
    rows = list(rows)
    offsets = any("offset" in row for row in rows)
    columns = ["tensor", "size", *(["shape", "type"] if shapes else []), "from step", "up to step"]
    return Table(
        title,
        (*columns, *(["offset"] if offsets else [])),
        tuple(
            (
                name(row["name"]),
                size(row, "bytes"),
                *((Cell(shape(row.get("shape"))), Cell(words(row.get("dtype"), 20))) if shapes else ()),
                count(row, "lower"),
                count(row, "upper"),
                *((size(row, "offset"),) if offsets else ()),
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
    return (Chart("memory map", "Where every buffer lies, and when", alt, document),)


def few(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes without repetitions, and not more than anyone would read."""
    unique = [note for note in dict.fromkeys(notes) if note]
    if len(unique) <= _NOTES:
        return tuple(unique)
    return (*unique[:_NOTES], f"… and {len(unique) - _NOTES} more; the JSON has them all.")
