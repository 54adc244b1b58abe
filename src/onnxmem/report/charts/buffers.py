"""What the memory map says about each buffer: its rectangle, its group and colour, its tooltip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxmem.errors import UsageError
from onnxmem.placement.plan import Plan
from onnxmem.report.charts import theme
from onnxmem.report.charts.layout import Boxes, Frame, clumps, printable, shorten
from onnxmem.units import format_bytes

SINGLE = 2500  # where there are more buffers, the smallest of them are drawn together

Row = dict[str, Any]


@dataclass(frozen=True)
class Grouping:
    """A group for every buffer, the colours of the groups in legend order, and what the legend is about."""

    of: list[str]
    colours: dict[str, str]
    title: str


def by_size(plan: Plan) -> Grouping:
    """The buffers that are live at the peak stand out; the others are shaded by their share of it."""
    # Powers of two near 1/4, 1/16 and 1/64 of the peak: round numbers in binary units.
    limits = [1 << max(plan.peak.bit_length() - shift, 0) for shift in (7, 5, 3)]
    texts = [format_bytes(limit).replace(".0 ", " ") for limit in limits]
    bands = [f"below {texts[0]}", f"{texts[0]} up to {texts[1]}", f"{texts[1]} up to {texts[2]}", f"{texts[2]} or more"]
    sizes = plan.problem.footprints
    groups = [bands[band] for band in np.searchsorted(limits, sizes, side="right").tolist()]
    at_peak = "live at the peak step"
    for index in plan.problem.live_at(plan.problem.peak_step[0]):
        groups[index] = at_peak
    colours = {at_peak: theme.AT_PEAK} | dict(zip(reversed(bands), reversed(theme.SIZES), strict=True))
    present = set(groups)
    return Grouping(groups, {group: colour for group, colour in colours.items() if group in present}, "buffers")


def by_kind(plan: Plan, kinds: Sequence[str]) -> Grouping:
    """The kinds with the most bytes have a colour each, the rest share one."""
    if len(kinds) != len(plan.problem):
        raise UsageError(f"{len(kinds)} kinds were given for {len(plan.problem)} buffers")
    clean = [shorten(printable(kind), 32) for kind in kinds]
    totals: dict[str, int] = {}
    for kind, size in zip(clean, plan.problem.sizes.tolist(), strict=True):
        totals[kind] = totals.get(kind, 0) + size
    ranked = sorted(totals, key=lambda kind: -totals[kind])
    coloured = dict(zip(ranked, theme.KINDS, strict=False))
    if rest := len(ranked) - len(coloured):
        other = f"{rest} other kinds" if rest > 1 else ranked[-1]
        coloured[other] = theme.OTHER
        clean = [kind if kind in coloured else other for kind in clean]
    return Grouping(clean, coloured, "kind")


def rows(
    plan: Plan,
    frame: Frame,
    grouping: Grouping,
    *,
    kinds: Sequence[str] | None = None,
    step_names: Sequence[str] | None = None,
    dims: Sequence[str] | None = None,
) -> list[Row]:
    """One row per rectangle, in bytes: first the areas that stand for the smallest buffers, then the largest ones."""
    problem, boxes = plan.problem, Boxes.of(plan, frame)
    order = boxes.by_area()
    single, together = order[:SINGLE], order[SINGLE:]
    result: list[Row] = []
    if len(together):
        group = small_ones(len(together))
        grouping.colours[group] = theme.TOGETHER
        for left, right, bottom, top in clumps(boxes, together, frame):
            across = {"x": frame.first + left / frame.step, "x2": frame.first + right / frame.step}
            up = {"y": bottom / frame.byte, "y2": top / frame.byte}
            result.append({**across, **up, "group": group, "edge": 0, "name": group})
    width, height = boxes.right - boxes.left, boxes.top - boxes.bottom
    for index in single.tolist():
        buffer, offset = problem[index], int(plan.offsets[index])
        thin = min(width[index], height[index])
        row: Row = {
            "x": buffer.lower,
            "x2": buffer.upper,
            "y": float(offset),
            "y2": float(offset) + float(problem.footprints[index]),
            "pixels": (float(width[index]), float(height[index])),
            "group": grouping.of[index],
            # An edge as wide as its rectangle would paint it over.
            "edge": 0.8 if thin >= 4 else 0.4 if thin >= 1.5 else 0,
            "name": shorten(printable(buffer.id), 120),
            "bytes": buffer.size,
            "size": f"{format_bytes(buffer.size)} ({buffer.size:,} bytes)",
            "lifetime": f"step {step(buffer.lower, step_names)} up to {step(buffer.upper, step_names)}",
            "offset": f"{format_bytes(offset)} ({offset:,} bytes)",
        }
        if kinds is not None:
            row["kind"] = shorten(printable(kinds[index]), 60)
        if dims is not None:
            row["dims"] = shorten(printable(dims[index]), 60)
        result.append(row)
    return result


def small_ones(count: int) -> str:
    """The group of buffers that are drawn together."""
    return f"the {count:,} smallest, drawn together"


def step(number: int, names: Sequence[str] | None) -> str:
    """A step by number, and by name where it has one."""
    if names is None or not 0 <= number < len(names) or not names[number]:
        return f"{number:,}"
    return f"{number:,} ({shorten(printable(names[number]), 40)})"
