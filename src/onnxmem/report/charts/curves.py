"""Curves: peak memory against input size, measured and fitted; and that of each mode against workers or a dimension."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

from onnxmem.report.charts.bars import Bars, at_one_size, plain
from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.layout import spread
from onnxmem.report.charts.theme import DASHES, LIGHT, LINES, OTHER, SHAPES, SIZES
from onnxmem.report.names import printable, shorten
from onnxmem.units import format_bytes, format_count

WIDTH, HEIGHT = 640, 340
_STEPS = 48
_HIGH = 360
FLOOR = "floor"

Lines = dict[str, list[tuple[int, int]]]


def scaling_chart(comparison: Document, *, title: str = "", width: int = WIDTH) -> Picture:
    """How does peak memory grow with the input? Points are measured, lines fitted; dashed is extrapolated.

    Takes `onnxmem.compare/1`, fresh or from a file. One size makes no curve: then there are bars.
    """
    title = title or "Peak memory against input size"
    canvas = Canvas.of(width)
    if not is_curve(comparison):
        return canvas.finish(at_one_size(comparison, canvas), title)
    alt = canvas.alt
    names = [each["name"] for each in comparison["candidates"] if any(_measured(each))]
    # Names are the reader's only key: two that look alike after shortening would be one line.
    shown = {name: f"{k + 1}. {shorten(printable(name), 44)}" for k, name in enumerate(names)}
    spreads, points = _points(comparison, shown)
    fitted, beyond = (_lines(comparison, shown, beyond=beyond) for beyond in (False, True))
    top = 1.06 * max(row[key] for rows, key in ((spreads, "high"), (fitted + beyond, "y")) for row in rows)
    factor, unit = unit_of(top)
    for row in (*spreads, *points, *fitted, *beyond):
        row.update({key: row[key] / factor for key in ("y", "low", "high") if key in row})
    ticks = alt.Axis(title="elements in the inputs", format="~s", tickCount=max(width // 60, 3))
    x = alt.X("x:Q", axis=ticks, scale=alt.Scale(zero=True, nice=False))
    y = canvas.scale("y:Q", top / factor, title=f"peak RSS ({unit})", tickCount=6)
    colours = {name: LINES[k % len(LINES)] for k, name in enumerate(shown.values())}
    shapes = alt.Scale(domain=list(colours), range=[SHAPES[k % len(SHAPES)] for k in range(len(colours))])
    key = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=max(width - 40, 240))
    colour = alt.Color("name:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=key)
    layers = []
    for rows, dash in ((fitted, [1, 0]), (beyond, [5, 4])):
        line = canvas.rows(rows).mark_line(strokeDash=dash, strokeWidth=2, aria=False)
        layers.append(line.encode(x=x, y=y, color=colour, detail=alt.Detail("name:N")))
    rule = canvas.rows(spreads).mark_rule(strokeWidth=2, aria=False)
    layers.append(rule.encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high"), color=colour))
    dots = canvas.rows(points).mark_point(filled=True, size=60, opacity=1)
    shape = alt.Shape("name:N", scale=shapes, legend=key)
    layers.append(dots.encode(x=x, y=y, color=colour, shape=shape, description=alt.Description("hover:N")))
    # Beside its last point, each line's number in the legend.
    last = {row["name"]: row for row in sorted(points, key=lambda row: row["x"])}
    numbers = [{**row, "text": name.partition(".")[0]} for name, row in last.items()]
    layers.append(
        canvas.text(numbers, align="left", dx=4, dy=-9, fontWeight="bold").encode(x=x, y=y, text=alt.Text("text:N"))
    )
    chart = alt.layer(*layers, width=width, height=HEIGHT)
    return canvas.finish(chart, title, summary(comparison))


def is_curve(comparison: Document) -> bool:
    """Was there more than one size?"""
    return len({point["elements"] for each in comparison["candidates"] for point in _measured(each)}) > 1


def summary(comparison: Document) -> list[str]:
    """The fits in words."""
    lines = []
    for fit in comparison.get("fits") or ():
        error = error_text(fit)
        known = "error unknown, too few sizes" if error == "?" else f"error {error}"
        lines.append(f"{shorten(printable(fit['candidate']), 44)}: {fit_text(fit)} ({known})")
    return [*lines, "points measured, lines fitted, dashed extrapolated" if lines else "points measured"]


def fit_text(fit: Document) -> str:
    """The formula, as people write it."""
    linear, quadratic = fit["linear_bytes"], fit["quadratic_bytes"]
    parts = [format_bytes(fit["constant_bytes"])]
    if linear:
        parts.append(f"{format_bytes(linear) if linear >= 1024 else f'{linear:.3g} B'} · n")
    if quadratic:
        parts.append(f"{quadratic:.3g} B · n²")
    return " + ".join(parts)


def error_text(fit: Document) -> str:
    """The error at points the fit did not see; unknown without such points."""
    error = fit["left_out_relative_error"]
    return "?" if error is None else f"{error:.1%}"


def _measured(candidate: Document) -> list[Document]:
    """The sizes at which there is a peak to draw."""
    return [
        point
        for point in candidate.get("inputs") or ()
        if point.get("peak_rss_bytes") is not None and point.get("elements") is not None
    ]


def _lines(comparison: Document, shown: dict[str, str], *, beyond: bool) -> list[Row]:
    rows: list[Row] = []
    for fit in comparison.get("fits") or ():
        low, high = fit["range"]
        if beyond:
            # As far again as the first prediction: a line to the last would leave the measured points in a corner.
            low, high = high, min((each["elements"] for each in fit["predictions"]), default=high)
        for step in range(_STEPS + 1):
            at = low + (high - low) * step / _STEPS
            value = fit["constant_bytes"] + fit["linear_bytes"] * at + fit["quadratic_bytes"] * at**2
            rows.append({"x": at, "y": value, "name": shown[fit["candidate"]]})
    return rows


def _points(comparison: Document, shown: dict[str, str]) -> tuple[list[Row], list[Row]]:
    spreads: list[Row] = []
    points: list[Row] = []
    for candidate in comparison["candidates"]:
        for point in _measured(candidate):
            middle = point["peak_rss_bytes"]
            low, high = (point.get("spread") or {}).get("peak_rss_bytes") or (middle, middle)
            same = {"x": point["elements"], "name": shown[candidate["name"]]}
            spreads.append({**same, "low": low, "high": max(high, middle)})
            at = printable(str(point.get("size", "")))
            points.append({**same, "y": middle, "hover": f"{same['name']} at {at}: {format_bytes(middle)}"})
    return spreads, points


def share_chart(document: Document, *, width: int = 620) -> Picture:
    """How does memory grow with the number of workers? One line for each mode, named at its end."""
    canvas = Canvas.of(width)
    head = f"{shorten(printable(document['model']), 60)}: memory of N workers"
    lines = _modes(document)
    counts = sorted({count for points in lines.values() for count, _ in points})
    if len(counts) == 1:
        return canvas.finish(_at_one_count(canvas, lines, counts[0]), head, sharing_summary(document))
    chart = _by_mode(canvas, lines, ("workers", "total PSS"), lambda n: format_count(n, "worker"), values=counts)
    return canvas.finish(chart, head, sharing_summary(document))


def fit_chart(document: Document, *, width: int = 620, at: int | None = None) -> Picture:
    """How does each mode's memory grow with a dimension, and where does it meet the budget?

    `at`: the size that is looked at.
    """
    canvas = Canvas.of(width, document["budget_bytes"], "budget")
    answer, what = document["answer"], "peak RSS" if document["workers"] == 1 else "total PSS"
    lines = {mode["mode"]: [(p["size"], p["bytes"]) for p in mode["points"]] for mode in answer["modes"]}
    unsure = {(m["mode"], p["size"]) for m in answer["modes"] for p in m["points"] if not p.get("exact", True)}
    across = shorten(printable(" = ".join(answer["axis"]["names"])), 60)
    head = f"{shorten(printable(document['model']), 60)}: {what} against {across}"
    chart = _by_mode(canvas, lines, (across, f"predicted {what}"), lambda n: f"{across} {n:,}", unsure=unsure, at=at)
    note = "by prediction" + ("" if document["budget_bytes"] is None else ", without the margin")
    return canvas.finish(chart, head, [f"{note}; thin where it is not exact" if unsure else note])


def _by_mode(
    canvas: Canvas,
    lines: Lines,
    axes: tuple[str, str],
    called: Callable[[int], str],
    values: list[int] | None = None,
    unsure: Collection[tuple[str, int]] = (),
    at: int | None = None,
) -> Any:
    """One line for each mode, named at its end, and the limit if there is one.

    `axes` are their titles, `called` is how a place across is called, and `values` are the ticks below. A line is thin
    and dotted next to modes' places that are `unsure`. There is an upright line `at` a place.
    """
    alt, width = canvas.alt, canvas.width
    top = canvas.reach(max((value for points in lines.values() for _, value in points), default=1) * 1.05)
    end = max((at for points in lines.values() for at, _ in points), default=1)
    factor, unit = unit_of(top)
    ticks = {"tickCount": max(width // 80, 3)} if values is None else {"values": values}
    x = canvas.scale("x:Q", end, title=axes[0], format="d", grid=False, **ticks)
    y = canvas.scale("y:Q", top / factor, title=f"{axes[1]} ({unit})", tickCount=6)
    rows = [
        {"mode": mode, "x": at, "y": value / factor, "hover": f"{mode}, {called(at)}: {format_bytes(value)}"}
        for mode, points in lines.items()
        for at, value in points
    ]
    drawn, sure = _stretches(rows, unsure), [row for row in rows if (row["mode"], row["x"]) not in unsure]
    modes = [mode for mode in lines if mode != FLOOR]
    # The baseline is what everybody has, and the one to get away from.
    colours = {mode: LIGHT.peak if mode in ("stock", "ort") else LINES[k % 6] for k, mode in enumerate(modes)}
    colours[FLOOR] = LIGHT.muted
    domain = list(colours)
    dashes = alt.Scale(domain=domain, range=[[*DASHES[k % 6]] for k in range(len(modes))] + [[2, 4]])
    shapes = alt.Scale(domain=domain, range=[SHAPES[k % 6] for k in range(len(modes))] + ["triangle-right"])
    place = {"x": x, "y": y, "color": canvas.colour("mode", colours, legend=False)}
    dots = {"filled": True, "size": 65, "opacity": 1}
    layers = [
        canvas.rows([row for row in drawn if row["exact"]])
        .mark_line(strokeWidth=2.2, aria=False)
        .encode(**place, detail="stretch:N", strokeDash=alt.StrokeDash("mode:N", scale=dashes, legend=None)),
        canvas.rows(sure)
        .mark_point(**dots)
        .encode(**place, shape=alt.Shape("mode:N", scale=shapes, legend=None), description=alt.Description("hover:N")),
        *canvas.limit_line(top, _HIGH, across=False),
    ]
    if at is not None:
        layers.insert(0, canvas.rule([{"x": at}], LIGHT.muted, (3, 3), 1).encode(x=x))
    if unsure:
        thin = canvas.rows([row for row in drawn if not row["exact"]]).mark_line(strokeWidth=1.2, strokeDash=[2, 3])
        layers.append(thin.encode(**place, detail="stretch:N"))
    # Each line's name and last value in the right margin, moved apart where lines end together, behind its marker.
    ends = sorted(((points[-1][1], mode) for mode, points in lines.items()), reverse=True)
    for (value, mode), height in zip(ends, spread([v / top * _HIGH for v, _ in ends], 16, _HIGH), strict=True):
        beside, shape = alt.YValue(_HIGH - height), "triangle-right" if mode == FLOOR else SHAPES[modes.index(mode) % 6]
        key = canvas.rows([{}]).mark_point(shape=shape, color=colours[mode], aria=False, **dots)
        text = canvas.text([{}], align="left", baseline="middle", dx=24, fontSize=12)
        layers.append(key.encode(x=alt.XValue(width + 16), y=beside))
        layers.append(text.encode(x=alt.XValue(width), y=beside, text=alt.TextValue(f"{mode}  {format_bytes(value)}")))
    return alt.layer(*layers, width=width, height=_HIGH)


def _stretches(rows: list[Row], unsure: Collection[tuple[str, int]]) -> list[Row]:
    """The same rows in stretches that are exact throughout or not; where two meet, a row is in both."""
    found: list[Row] = []
    stretch = 0
    for before, row in pairwise(rows):
        if before["mode"] != row["mode"]:
            continue
        exact = not {(each["mode"], each["x"]) for each in (before, row)} & set(unsure)
        if found and (found[-1]["x"], found[-1]["mode"], found[-1]["exact"]) == (before["x"], row["mode"], exact):
            found.append({**row, "exact": exact, "stretch": stretch})
        else:
            stretch += 1
            found += [{**each, "exact": exact, "stretch": stretch} for each in (before, row)]
    return found


def _at_one_count(canvas: Canvas, lines: Lines, count: int) -> Any:
    """One number of workers makes no line: then there are bars."""
    totals = sorted(((mode, points[0][1]) for mode, points in lines.items()), key=lambda each: each[0] == FLOOR)
    rows = plain((mode, FLOOR if mode == FLOOR else "mode", size, format_bytes(size)) for mode, size in totals)
    what = f"total PSS of {format_count(count, 'worker')}"
    return Bars(*rows, {"mode": SIZES[1], FLOOR: OTHER}, what).draw(canvas)


def sharing_summary(document: Document) -> list[str]:
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


def _modes(document: Document) -> Lines:
    lines: Lines = {}
    for group in sorted(document["modes"], key=lambda group: int(group["workers"])):
        count, total, floor = group["workers"], group["total_pss_bytes"], group.get("floor_bytes")
        if total is not None:
            lines.setdefault(shorten(printable(group["mode"]), 30), []).append((count, total))
        if floor is not None and (count, floor) not in lines.setdefault(FLOOR, []):
            lines[FLOOR].append((count, floor))
    return {mode: points for mode, points in lines.items() if points}
