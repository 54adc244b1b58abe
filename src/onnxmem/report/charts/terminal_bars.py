"""Bars in characters: names, bars of one scale to an eighth of a character, and what is written behind them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from onnxmem.report.names import printable, shorten

_EIGHTHS = " ▏▎▍▌▋▊▉"
_NAME = 20
_LONGEST = 60


def terminal_bars(rows: Sequence[tuple[str, float, str]], width: int) -> list[str]:
    """A line for each name, size and note; no line is longer than `width`."""
    names = [shorten(printable(name), _NAME) for name, _, _ in rows]
    first = max(map(cell_len, names), default=0)
    room = min(max(width - first - 2 - max((cell_len(note) for _, _, note in rows), default=0), 1), _LONGEST)
    most = max((size for _, size, _ in rows), default=0)
    lines = []
    for name, (_, size, note) in zip(names, rows, strict=True):
        eighths = round(size / most * room * 8) if most > 0 else 0
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        lines.append(f"{name}{' ' * (first - cell_len(name))} {bar}{' ' * bool(bar)}{note}")
    return lines
