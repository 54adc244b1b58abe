"""The memory map in characters, for a terminal: time across, offset up, and the live bytes below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from onnxmem.placement.plan import Plan
from onnxmem.report.charts.buffers import details_of, distance, nothing_to_draw
from onnxmem.report.charts.canvas import Document
from onnxmem.report.charts.layout import Profile
from onnxmem.report.names import printable, shorten, shorten_path
from onnxmem.units import format_bytes

_SHADES = "█▓▒░"
_BARS = " ▁▂▃▄▅▆▇█"
# Of the 256-colour table: blues, and oranges for what is live at the peak; both readable on black and on white.
_BLUES = (67, 74, 25, 110)
_ORANGES = (208, 214, 172, 179)
_PEAK = 166

_LEFT = 11  # the axis and its labels
_RIGHT = 15  # "◄ peak = bound" and a space
_LETTERS = "abcdefgh"

Cells = npt.NDArray[np.int64]


def terminal_map(
    plan: Plan,
    width: int = 80,
    height: int = 20,
    color: bool = False,
    placement: Sequence[Document] | None = None,
) -> str:
    """Where does each buffer lie, and when, in `width` columns and about `height` lines? No line ends in a newline.

    Each character shows the largest buffer in its part of memory and time; neighbouring buffers differ in shade. With
    `color` (ANSI, 256 colours) the buffers that are live at the peak are orange. The largest of those have letters,
    and lines below that name them and, with a document's `placement`, their last readers.
    """
    if nothing := nothing_to_draw(plan):
        return nothing
    lines = textwrap.wrap(_verdict(plan), width)
    at_peak = sorted(plan.problem.live_at(plan.problem.peak_step[0]), key=lambda k: -int(plan.problem.footprints[k]))
    named = _named(details_of(plan, placement), at_peak, min(max((height - 8) // 2, 0), 6), width)
    columns, rows = max(width - _LEFT - _RIGHT, 24), max(height - 3 - len(lines) - len(named), 4)
    steps, live = _moments(plan, columns)
    cells = _cells(plan, steps, rows)
    shades, letters = _shades(cells), _letters(cells, at_peak[: len(named)])
    marks = _marks(plan, rows)
    for row in reversed(range(rows)):
        body = "".join(
            _paint(letters[row, column], _PEAK, color)
            if (row, column) in letters
            else _cell(int(cell), shades, at_peak, color)
            for column, cell in enumerate(cells[row])
        )
        axis = format_bytes(plan.peak * (row + 1) / rows) if row % 4 == (rows - 1) % 4 else ""
        mark = f" {_paint('◄ ' + marks[row], _PEAK, color)}" if row in marks else ""
        lines.append(f"{axis:>{_LEFT - 2}} {'┤' if axis else '│'}{body}{mark}".rstrip())
    lines.append(f"{'live':>{_LEFT - 2}} │{''.join(_bar(level, plan.peak) for level in live)}".rstrip())
    return "\n".join([*lines, *_steps(plan, columns, color), *named])


def _named(about: Sequence[Document], at_peak: list[int], most: int, width: int) -> list[str]:
    """The largest buffers at the peak by letter, with size, name and last reader; and how many more there are."""
    shown = at_peak[: most if len(at_peak) <= most else max(most - 1, 0)]
    lines = []
    for letter, row in zip(_LETTERS, (about[index] for index in shown), strict=False):
        readers, step = row.get("consumers") or (), f"step {row['upper'] - 1:,}"
        reader = f", last reader {shorten_path(printable(readers[-1]), width // 3)} ({step})" if readers else ""
        end = ", an output" if row.get("kind") == "output" else reader or f", until {step}"
        start = f"{format_bytes(row['bytes']):>{_LEFT - 2}} {letter} "
        name = shorten_path(printable(row["name"]), max(width - len(start) - len(end), 12))
        lines.append(shorten(f"{start}{name}{end}", width))
    rest = len(at_peak) - len(shown)
    more = f"{'':>{_LEFT - 2}} and {rest:,} smaller {'buffer' if rest == 1 else 'buffers'} at the peak"
    return [*lines, more] if lines and rest else lines


def _letters(cells: Cells, at_peak: list[int]) -> dict[tuple[int, int], str]:
    """Where the letter of each buffer stands: in the middle of what can be seen of it."""
    places: dict[tuple[int, int], str] = {}
    for letter, index in zip(_LETTERS, at_peak, strict=False):
        seen = np.argwhere(cells == index)
        if len(seen):
            row, column = seen[np.abs(seen - seen.mean(axis=0)).sum(axis=1).argmin()].tolist()
            places[row, column] = letter
    return places


def _verdict(plan: Plan) -> str:
    peak, capacity = format_bytes(plan.peak), plan.problem.capacity
    limit = "" if capacity is None else f"; capacity {format_bytes(capacity)}{'' if plan.fits else ' exceeded'}"
    return (f"peak = lower bound {peak}: optimal" if plan.optimal else f"peak {peak}, {distance(plan)}") + limit


def _moments(plan: Plan, columns: int) -> tuple[list[int], list[float]]:
    """For each column the step it shows, and the most live bytes in its part of time.

    It shows the step that reaches highest, so that no buffer that makes the peak is too brief to be seen; among equals
    the fullest.
    """
    profile = Profile.of(plan, columns=len(plan.problem) * 2)
    edges = np.linspace(profile.at[0], profile.at[-1], columns + 1)
    starts = np.searchsorted(profile.at, edges[:-1], side="right") - 1
    ends = np.maximum(np.searchsorted(profile.at, edges[1:], side="left"), starts + 1)
    steps, live = [], []
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        steps.append(int(profile.at[a + int(np.lexsort((profile.live[a:b], profile.top[a:b]))[-1])]))
        live.append(float(profile.live[a:b].max()))
    return steps, live


def _cells(plan: Plan, steps: list[int], rows: int) -> Cells:
    """The index of the largest buffer in each cell, -1 where less than half of the cell is in use."""
    up = rows / plan.peak
    cells = np.full((rows, len(steps)), -1, dtype=np.int64)
    levels = np.arange(rows)
    for column, step in enumerate(steps):
        live = np.array(plan.problem.live_at(step), dtype=np.int64)
        if not len(live):
            continue
        bottom = (plan.offsets[live] * up)[:, None]
        top = bottom + (plan.problem.footprints[live] * up)[:, None]
        shares = np.clip(np.minimum(top, levels + 1) - np.maximum(bottom, levels), 0, 1)
        cells[:, column] = np.where(shares.sum(axis=0) >= 0.499, live[shares.argmax(axis=0)], -1)
    return cells


def _shades(cells: Cells) -> dict[int, int]:
    """A shade for every buffer in sight, so that as few neighbours as can be share one."""
    touching: dict[int, dict[int, int]] = {int(index): {} for index in np.unique(cells) if index >= 0}
    for one, other in ((cells[1:], cells[:-1]), (cells[:, 1:], cells[:, :-1])):
        border = (one != other) & (one >= 0) & (other >= 0)
        for a, b in zip(one[border].tolist(), other[border].tolist(), strict=True):
            touching[a][b] = touching[b][a] = touching[a].get(b, 0) + 1
    shades: dict[int, int] = {}
    for index in sorted(touching, key=lambda index: -int((cells == index).sum())):
        taken = [0] * len(_SHADES)
        for neighbour, border_length in touching[index].items():
            if neighbour in shades:
                taken[shades[neighbour]] += border_length
        shades[index] = taken.index(min(taken))
    return shades


def _cell(index: int, shades: dict[int, int], at_peak: Sequence[int], color: bool) -> str:
    if index < 0:
        return " "
    shade = shades[index]
    return _paint("█", (_ORANGES if index in at_peak else _BLUES)[shade], True) if color else _SHADES[shade]


def _paint(text: str, code: int, color: bool) -> str:
    return f"\x1b[38;5;{code}m{text}\x1b[0m" if color else text


def _marks(plan: Plan, rows: int) -> dict[int, str]:
    """What is written beside which row."""
    capacity = plan.problem.capacity
    values = [("peak = bound", plan.peak)] if plan.optimal else [("peak", plan.peak), ("bound", plan.proven_bound)]
    if capacity is not None and capacity < plan.peak:
        values.insert(1, ("capacity", capacity))
    names: dict[int, list[str]] = {}
    for name, value in values:
        names.setdefault(max(-(-value * rows // plan.peak) - 1, 0), []).append(name)
    # Two share a row's margin at most; the line above the map names them all.
    return {row: ", ".join(shared[:1] if "capacity" in shared else shared) for row, shared in names.items()}


def _bar(level: float, peak: int) -> str:
    # Rounded up: something live is never drawn as nothing.
    return _BARS[min(int(np.ceil(level / peak * 8)), 8)]


def _steps(plan: Plan, columns: int, color: bool) -> list[str]:
    """The time axis: first and last step, and an arrow under the peak step."""
    problem = plan.problem
    first, last = int(problem.lowers.min()), int(problem.uppers.max())
    peak = problem.peak_step[0]
    column = min(int((peak - first) * columns / (last - first)), columns - 1)
    axis = " " * (_LEFT - 1) + "└" + "─" * column + _paint("▲", _PEAK, color) + "─" * (columns - column - 1)
    text, left, right = f"peak at step {peak:,}"[:columns], f"{first:,}", f"{last:,}"
    place = min(max(column - len(text) // 2, 0), columns - len(text))
    # The ends of the axis are named only where the peak's label leaves them room.
    line = list(" " * columns)
    line[place : place + len(text)] = text
    if place > len(left):
        line[: len(left)] = left
    if place + len(text) < columns - len(right):
        line[columns - len(right) :] = right
    return [axis, f"{'step':>{_LEFT - 2}}  {''.join(line)}".rstrip()]
