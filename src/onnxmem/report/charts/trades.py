"""Memory against latency: every measured cell of a sweep as a point, and which of them are worth having."""

from __future__ import annotations

from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.theme import LINES, SHAPES
from onnxmem.report.names import printable, shorten
from onnxmem.units import format_bytes, format_seconds

WIDTH, HEIGHT = 600, 340


def trades_chart(document: Document, *, width: int = WIDTH) -> Picture:
    """Which mode gives most for its memory? Filled where no other mode of that model and size has less of both.

    Takes `{"trades": [{"model", "mode", "size", "bytes", "latency_seconds", "best"}]}`.
    """
    canvas = Canvas.of(width)
    alt, trades = canvas.alt, document["trades"]
    modes = list(dict.fromkeys(shorten(printable(each["mode"]), 30) for each in trades))
    factor, unit = unit_of(max(each["bytes"] for each in trades))
    rows: list[Row] = [
        {
            "mode": shorten(printable(each["mode"]), 30),
            "model": f"{each['model']} {each['size']} {each.get('processor', '')}",
            "x": max(each["latency_seconds"] * 1000, 1e-4),
            "y": each["bytes"] / factor,
            "best": each["best"],
            "hover": f"{shorten(printable(each['model']), 40)} {printable(each['mode'])}, {printable(each['size'])}: "
            f"{format_bytes(each['bytes'])}, {format_seconds(each['latency_seconds'])}",
        }
        for each in trades
    ]
    log, plain = alt.Scale(type="log", nice=False, padding=14), {"format": "~g", "labelOverlap": True}
    x = alt.X("x:Q", scale=log, axis=alt.Axis(title="latency (ms)", tickCount=max(width // 90, 3), **plain))
    y = alt.Y("y:Q", scale=log, axis=alt.Axis(title=f"peak ({unit})", tickCount=6, **plain))
    colours = [LINES[k % len(LINES)] for k in range(len(modes))]
    shapes = [SHAPES[k % len(SHAPES)] for k in range(len(modes))]
    key = alt.Legend(title=None, orient="bottom", columns=max(width // 150, 1), symbolLimit=0)
    colour = alt.Color("mode:N", scale=alt.Scale(domain=modes, range=colours), legend=key)
    shape = alt.Shape("mode:N", scale=alt.Scale(domain=modes, range=shapes), legend=key)
    # A thin line joins the modes of one model at one size: along it lies what one gives for the other.
    joined = canvas.rows(rows).mark_line(strokeWidth=1, stroke="#b4bac1", aria=False)
    layers = [joined.encode(x=x, y=y, detail=alt.Detail("model:N"), order=alt.Order("x:Q"))]
    for best in (False, True):
        dots = canvas.rows([row for row in rows if row["best"] is best]).mark_point(filled=best, size=60, opacity=1)
        layers.append(dots.encode(x=x, y=y, color=colour, shape=shape, description=alt.Description("hover:N")))
    chart = alt.layer(*layers, width=width, height=HEIGHT)
    return canvas.finish(chart, "Memory against latency")
