"""The picture of a history: what each model took over time, and where it grew."""

from __future__ import annotations

from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.theme import LIGHT, LINES, SHAPES
from onnxmem.report.names import printable, shorten
from onnxmem.units import format_bytes

WIDTH, HEIGHT = 640, 320


def history_chart(document: Document, *, width: int = WIDTH) -> Picture:
    """What did it take over time? One line for each series; a ring and a figure where it grew.

    Takes `{"figure", "series": [{"name", "points": [{"date", "bytes", "grew", "commit", "change"}]}]}`.
    """
    canvas = Canvas.of(width)
    alt, series = canvas.alt, document["series"]
    # Names are the reader's only key: two that look alike after shortening would be one line.
    shown = [f"{k + 1}. {shorten(printable(each['name']), 60)}" for k, each in enumerate(series)]
    top = 1.12 * max((point["bytes"] for each in series for point in each["points"]), default=1)
    factor, unit = unit_of(top)
    rows: list[Row] = [
        {
            "name": name,
            "x": point["date"],
            "y": point["bytes"] / factor,
            "hover": f"{name}, {point['date']}: {format_bytes(point['bytes'])} {printable(point['commit'])}".strip(),
            "grew": f"+{format_bytes(point['change'])}" if point["grew"] else "",
        }
        for name, each in zip(shown, series, strict=True)
        for point in each["points"]
    ]
    colours = {name: LINES[k % len(LINES)] for k, name in enumerate(shown)}
    shapes = alt.Scale(domain=shown, range=[SHAPES[k % len(SHAPES)] for k in range(len(shown))])
    key = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=max(width - 40, 240), symbolLimit=0)
    # In UTC, as the table has them, wherever the picture is drawn.
    axis = alt.Axis(title="date (UTC)", tickCount=max(width // 90, 3), labelOverlap=True)
    x = alt.X("x:T", scale=alt.Scale(type="utc", padding=12), axis=axis)
    y = canvas.scale("y:Q", top / factor, title=f"{document['figure']} ({unit})", tickCount=6)
    colour = alt.Color("name:N", scale=alt.Scale(domain=shown, range=list(colours.values())), legend=key)
    shape = alt.Shape("name:N", scale=shapes, legend=key)
    dots = canvas.rows(rows).mark_point(filled=True, size=45, opacity=1)
    grown = [row for row in rows if row["grew"]]
    ring = canvas.rows(grown).mark_point(size=170, strokeWidth=2, stroke=LIGHT.peak, filled=False, aria=False)
    text = canvas.text(grown, color=LIGHT.peak, dy=-14, fontWeight="bold")
    layers = [
        canvas.rows(rows)
        .mark_line(strokeWidth=2, aria=False)
        .encode(x=x, y=y, color=colour, detail=alt.Detail("name:N")),
        dots.encode(x=x, y=y, color=colour, shape=shape, description=alt.Description("hover:N")),
        ring.encode(x=x, y=y),
        text.encode(x=x, y=y, text=alt.Text("grew:N")),
    ]
    chart = alt.layer(*layers, width=width, height=HEIGHT)
    return canvas.finish(chart, f"{document['figure']} over time")
