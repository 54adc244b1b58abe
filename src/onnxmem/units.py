"""How figures are read and written, everywhere in the same way: "512MiB" in; "512.0 MiB", "12.3%", "2.50×" out."""

from __future__ import annotations

import re

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
    from fractions import Fraction  # noqa: PLC0415  sessions only write figures, and have no use for its weight

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


def typed_bytes(count: int) -> str:
    """A size as people type it, rounded up: "12.5MiB", or "300KiB" below a MiB."""
    unit, factor = ("KiB", 2**10) if count < 2**20 else ("MiB", 2**20)
    tenths = -(-10 * count // factor)
    return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{unit}"


def typed_exactly(count: int) -> str:
    """A size as people type it that is neither more nor less: "12MiB", or in plain bytes."""
    return f"{count // 2**20}MiB" if count % 2**20 == 0 else str(count)


def format_apart(one: int, other: int) -> tuple[str, str]:
    """Two sizes of which one is larger: in plain bytes, if they would read the same."""
    first, second = format_bytes(one), format_bytes(other)
    return (f"{one:,} bytes", f"{other:,} bytes") if first == second else (first, second)


def format_seconds(value: float) -> str:
    """A duration as people read it: "40 µs", "85.3 ms", "2.41 s"."""
    if abs(value) < 0.0995e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1000:.1f} ms" if abs(value) < 1 else f"{value:.2f} s"


def format_duration(seconds: float) -> str:
    """How long one has to wait: "45 s", "12 min", "2 h 5 min"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"


def format_percent(value: float) -> str:
    """0.123 as "12.3%"; what rounds to nothing or to all but is neither says so."""
    if 0 < value < 0.0005:
        return "< 0.1%"
    return "> 99.9%" if 0.9995 <= value < 1 else f"{value * 100:.1f}%"


def format_times(value: float) -> str:
    """2.5 as "2.50×"."""
    return f"{value:.2f}×" if value < 99.995 else f"{value:,.0f}×"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """ "1 buffer", "1,200 buffers"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
