"""Numbers and names of a result document as cells: formatted once, the same in every kind of report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onnxmem.report.names import printable, shorten, shorten_path
from onnxmem.report.report import NOT_KNOWN, Cell
from onnxmem.units import format_bytes, format_percent, format_seconds, format_times

_NAME = 60
UNKNOWN = "?"

Document = Mapping[str, Any]


def size(document: Document, key: str) -> Cell:
    """So many bytes."""
    return _number(document, key, "bytes", format_bytes)


def seconds(document: Document, key: str) -> Cell:
    """So much time."""
    return _number(document, key, "seconds", format_seconds)


def count(document: Document, key: str) -> Cell:
    """So many of something."""
    return _number(document, key, "", lambda value: f"{value:,}")


def percent(document: Document, key: str) -> Cell:
    """A part of a whole."""
    return _number(document, key, "fraction", format_percent)


def times(document: Document, key: str) -> Cell:
    """So many times something else."""
    return _number(document, key, "fraction", format_times)


def name(text: object, room: int = _NAME) -> Cell:
    """The name of a tensor, node or file, shortened as a path is."""
    return Cell(shorten_path(printable(str(text)), room))


def words(text: object, room: int = 300) -> str:
    """Text of a document, without what could break a line or the reading direction."""
    return shorten(printable(str(text)), room)


def day(date: object) -> str:
    """The day of a date as ISO 8601 writes it."""
    return words(str(date)[:10])


def text(document: Document, key: str) -> Cell:
    """Words of a document."""
    return Cell(words(document[key] if document.get(key) is not None else UNKNOWN, 120))


def shape(dims: Sequence[object] | None) -> str:
    """1×3×640×640."""
    if dims is None:
        return UNKNOWN
    return words("×".join(UNKNOWN if dim is None else str(dim) for dim in dims), 80) or "scalar"


def number(document: Document, key: str) -> int | float | None:
    """The number under a key; None where it is unknown."""
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"'{key}' is {words(value, 40)!r}, not a number")
    return value


def sentence(text: object, room: int = 300) -> str:
    """Text of a document as a sentence: a capital, and a full stop."""
    said = words(text, room).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), *parts[-1:]] if len(parts) > 1 else parts)


def known(document: Document, key: str, otherwise: str = "an unknown amount") -> str:
    """So many bytes, within a sentence."""
    value = number(document, key)
    return otherwise if value is None else format_bytes(value)


def reasons(document: Document, *keys: str) -> dict[str, None]:
    """Why figures of a document (these, or all) are missing, each reason once."""
    unknown = document.get("unknown")
    found = unknown.items() if isinstance(unknown, Mapping) else ()
    return {words(reason): None for key, reason in found if not keys or key in keys}


def _number(document: Document, key: str, unit: str, formatted: Any) -> Cell:
    value = number(document, key)
    if value is None:
        why = words((document.get("unknown") or {}).get(key, ""))
        return Cell(UNKNOWN, why=why) if why else NOT_KNOWN
    return Cell(formatted(value), value, unit)
