"""The scaling curve: peak memory against input size, measured, fitted, and beyond what was measured."""

from __future__ import annotations

from onnxmem.report.charts.bars import at_one_size
from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.layout import printable, shorten
from onnxmem.report.charts.theme import LIGHT, LINES, SHAPES, Theme
from onnxmem.units import format_bytes

WIDTH, HEIGHT = 640, 340
_STEPS = 48


def scaling_chart(
    comparison: Document, *, title: str = "", width: int = WIDTH, budget: int | None = None, theme: Theme = LIGHT
) -> Picture:
    """How does peak memory grow with the input? Points are measured, lines fitted; dashed is extrapolated.

    Takes `onnxmem.compare/1`, fresh or from a file. One size makes no curve: then there are bars.
    """
    title = title or "Peak memory against input size"
    canvas = Canvas.of(width, theme, budget, comparison.get("budget_bytes"))
    if not is_curve(comparison):
        return canvas.finish(at_one_size(comparison, canvas), title)
    alt = canvas.alt
    names = [each["name"] for each in comparison["candidates"] if any(_measured(each))]
    # Names are the reader's only key: two that look alike after shortening would be one line.
    shown = {name: f"{k + 1}. {shorten(printable(name), 44)}" for k, name in enumerate(names)}
    spread, points = _points(comparison, shown)
    fitted, beyond = (_lines(comparison, shown, beyond=beyond) for beyond in (False, True))
    highest = canvas.reach(max(row[key] for rows, key in ((spread, "high"), (fitted + beyond, "y")) for row in rows))
    top = highest * 1.06
    factor, unit = unit_of(top)
    for row in (*spread, *points, *fitted, *beyond):
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
        layers.append(line.encode(x=x, y=y, color=colour, detail="name:N"))
    rule = canvas.rows(spread).mark_rule(strokeWidth=2, aria=False)
    layers.append(rule.encode(x=x, y="low:Q", y2="high:Q", color=colour))
    dots = canvas.rows(points).mark_point(filled=True, size=60, opacity=1, aria=False)
    shape = alt.Shape("name:N", scale=shapes, legend=key)
    layers.append(dots.encode(x=x, y=y, color=colour, shape=shape, tooltip=["name:N", "size:N", "text:N"]))
    # Beside its last point, each line's number in the legend.
    last = {row["name"]: row for row in sorted(points, key=lambda row: row["x"])}
    numbers = [{**row, "text": name.partition(".")[0]} for name, row in last.items()]
    layers.append(canvas.text(numbers, align="left", dx=4, dy=-9, fontWeight="bold").encode(x=x, y=y, text="text:N"))
    layers += canvas.budget_line(top, HEIGHT, across=False)
    chart = alt.layer(*layers).properties(width=width, height=HEIGHT)
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
    spread: list[Row] = []
    points: list[Row] = []
    for candidate in comparison["candidates"]:
        for point in _measured(candidate):
            middle = point["peak_rss_bytes"]
            low, high = (point.get("spread") or {}).get("peak_rss_bytes") or (middle, middle)
            same = {"x": point["elements"], "name": shown[candidate["name"]]}
            spread.append({**same, "low": low, "high": max(high, middle)})
            points.append({**same, "y": middle, "size": printable(str(point.get("size", ""))),
                           "text": format_bytes(middle)})  # fmt: skip
    return spread, points
