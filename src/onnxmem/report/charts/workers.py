"""The picture of sharing: workers against the total PSS of each mode, with the floor below them."""

from __future__ import annotations

from typing import Any

from onnxmem.report.charts.bars import Bars, bar
from onnxmem.report.charts.canvas import Canvas, Document, Picture, unit_of
from onnxmem.report.charts.layout import printable, shorten, spread
from onnxmem.report.charts.theme import DASHES, LIGHT, LINES, OTHER, SHAPES, SIZES, Theme
from onnxmem.units import format_bytes

WIDTH, HEIGHT = 620, 360
FLOOR = "floor"

Lines = dict[str, list[tuple[int, int]]]


def share_chart(
    document: Document, *, title: str = "", width: int = WIDTH, budget: int | None = None, theme: Theme = LIGHT
) -> Picture:
    """How does memory grow with the number of workers? One line for each mode, named at its end.

    It takes the document, so that a saved result is drawn as a fresh one is.
    """
    canvas = Canvas.of(width, theme, budget, document.get("budget_bytes"))
    head = title or f"{shorten(printable(document['model']), 60)}: memory of N workers"
    alt, lines = canvas.alt, _lines(document)
    counts = sorted({count for points in lines.values() for count, _ in points})
    if len(counts) == 1:
        return canvas.finish(_at_one_count(canvas, lines, counts[0]), head, summary(document))
    top = canvas.reach(max((value for points in lines.values() for _, value in points), default=1)) * 1.05
    factor, unit = unit_of(top)
    x = canvas.scale("x:Q", max(counts, default=1), title="workers", values=counts, format="d", grid=False)
    y = canvas.scale("y:Q", top / factor, title=f"total PSS ({unit})", tickCount=6)
    rows = [
        {"mode": mode, "x": count, "y": value / factor, "total": format_bytes(value)}
        for mode, points in lines.items()
        for count, value in points
    ]
    modes = [mode for mode in lines if mode != FLOOR]
    # The baseline is what everybody has, and the one to get away from.
    colours = {mode: theme.peak if mode in ("stock", "ort") else LINES[k % 6] for k, mode in enumerate(modes)}
    colours[FLOOR] = theme.muted
    domain = list(colours)
    dashes = alt.Scale(domain=domain, range=[[*DASHES[k % 6]] for k in range(len(modes))] + [[2, 4]])
    shapes = alt.Scale(domain=domain, range=[SHAPES[k % 6] for k in range(len(modes))] + ["triangle-right"])
    place = {"x": x, "y": y, "color": canvas.colour("mode", colours, legend=False)}
    dots = {"filled": True, "size": 65, "opacity": 1, "aria": False}
    layers = [
        canvas.rows(rows)
        .mark_line(strokeWidth=2.2, aria=False)
        .encode(**place, strokeDash=alt.StrokeDash("mode:N", scale=dashes, legend=None)),
        canvas.rows(rows)
        .mark_point(**dots)
        .encode(**place, shape=alt.Shape("mode:N", scale=shapes, legend=None), tooltip=["mode:N", "x:Q", "total:N"]),
    ]
    # Each line's name and last value in the right margin, moved apart where lines end together, behind its marker.
    ends = sorted(((points[-1][1], mode) for mode, points in lines.items()), reverse=True)
    for (value, mode), height in zip(ends, spread([v / top * HEIGHT for v, _ in ends], 16, HEIGHT), strict=True):
        at, shape = alt.value(HEIGHT - height), "triangle-right" if mode == FLOOR else SHAPES[modes.index(mode) % 6]
        key = canvas.rows([{}]).mark_point(shape=shape, color=colours[mode], **dots)
        text = canvas.text([{}], align="left", baseline="middle", dx=24, fontSize=12)
        layers.append(key.encode(x=alt.value(width + 16), y=at))
        layers.append(text.encode(x=alt.value(width), y=at, text=alt.value(f"{mode}  {format_bytes(value)}")))
    layers += canvas.budget_line(top, HEIGHT, across=False)
    return canvas.finish(alt.layer(*layers).properties(width=width, height=HEIGHT), head, summary(document))


def _at_one_count(canvas: Canvas, lines: Lines, count: int) -> Any:
    """One number of workers makes no line: then there are bars."""
    totals = sorted(((mode, points[0][1]) for mode, points in lines.items()), key=lambda each: each[0] == FLOOR)
    rows = [bar(mode, FLOOR if mode == FLOOR else "mode", 0, size) for mode, size in totals]
    notes = [{"name": mode, "x": size, "text": format_bytes(size)} for mode, size in totals]
    what = f"total PSS of {count} worker{'' if count == 1 else 's'}"
    return Bars(rows, notes, {"mode": SIZES[1], FLOOR: OTHER}, what).draw(canvas)


def summary(document: Document) -> list[str]:
    """What sharing saves, in a line."""
    groups = document["modes"]
    largest = max((group["workers"] for group in groups), default=0)
    last = {group["mode"]: group for group in groups if group["workers"] == largest}
    baseline = document.get("baseline")
    parts = [f"weights {format_bytes(document['weights_bytes'])}"]
    for mode in ("prepacked", "ort-mapped"):
        if mode in last and (ratio := last[mode].get("of_baseline")):
            parts.append(f"{largest} workers {mode}: {ratio:.2f}× {baseline}")
    return ["; ".join([*parts, "floor: one copy of the weights + the smallest workers"])]


def _lines(document: Document) -> Lines:
    lines: Lines = {}
    for group in sorted(document["modes"], key=lambda group: int(group["workers"])):
        count, total, floor = group["workers"], group["total_pss_bytes"], group.get("floor_bytes")
        if total is not None:
            lines.setdefault(shorten(printable(group["mode"]), 30), []).append((count, total))
        if floor is not None and (count, floor) not in lines.setdefault(FLOOR, []):
            lines[FLOOR].append((count, floor))
    return {mode: points for mode, points in lines.items() if points}
