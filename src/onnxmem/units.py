"""Bytes: read "512MiB", write "512.0 MiB"."""

from __future__ import annotations

import re
from fractions import Fraction

from onnxmem.errors import UsageError

# Binary units only. "MB" is read as 10^6 because that is what it means; nothing here ever prints it.
_FACTORS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """How many bytes does "512MiB" mean? A fraction of a byte is rounded down."""
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise UsageError(f"'{text}' is not a size", hint="write a number of bytes, or for example 512MiB, 1.5GiB, 2GB")
    return int(Fraction(match[1]) * factor)


def format_bytes(count: int | float) -> str:
    """A size as people read it: "357.7 MiB"; below one KiB in plain bytes."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    if count < 2**10:
        return f"{sign}{int(count)} B"
    for unit, factor in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        # 1023.96 would print as "1024.0": the next unit says it better.
        if count < factor * 1023.95:
            return f"{sign}{count / factor:.1f} {unit}"
    return f"{sign}{count / 2**40:.1f} TiB"
