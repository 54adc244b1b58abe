"""What a peak is made of: one bar per measurement, each part named in it or below it."""

from __future__ import annotations

from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row
from onnxmem.report.charts.theme import FINE_PARTS, KINDS, LIGHT, OTHER, PARTS, text_on
from onnxmem.report.names import CHARACTER, printable, shorten
from onnxmem.units import format_bytes

WIDTH = 760
_TITLE, _BAR, _LINE, _GAP = 22, 26, 17, 20


def peak_parts(document: Document, *, width: int = WIDTH) -> Picture:
    """What is the peak made of? `bars`, each of `{"label", "parts": [{"name", "bytes"}], "budget_bytes"}`.

    All bars have one scale, which goes to `reach_bytes` at least. There is no axis, since every part says its size:
    inside where it fits, below the bar otherwise.
    """
    bars = document["bars"]
    budgets = [bar["budget_bytes"] for bar in bars if bar.get("budget_bytes")]
    canvas = Canvas.of(width, min(budgets, default=None), "budget")
    alt = canvas.alt
    totals = [sum(max(part["bytes"], 0) for part in bar["parts"]) for bar in bars]
    # A whole pixel less than the width: the budget's line may be at the very end.
    most = max([*totals, document.get("reach_bytes") or 0, 1])
    pixels = (width - 1) / canvas.reach(most)
    rects: list[Row] = []
    texts: list[Row] = []
    titles: list[Row] = []
    down = 18.0 if canvas.limit is not None else 0.0
    for bar, total in zip(bars, totals, strict=True):
        heading = f"{shorten(printable(str(bar['label'])), 60)}: {format_bytes(total)}"
        titles.append({"x": 0, "y": down + _TITLE / 2, "text": heading})
        below = _segments(bar, down + _TITLE, pixels, rects, texts)
        down = _keys(below, down + _TITLE + _BAR, width, rects, texts) + _GAP
    height = max(down - _GAP, 20)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, width], nice=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[height, 0], nice=False), axis=None)
    fill = alt.Color("colour:N", scale=None, legend=None)
    boxes = canvas.rows(rects).mark_rect(stroke=LIGHT.paper, strokeWidth=1, aria=False)
    words = canvas.text(texts, align="left", baseline="middle")
    layers = [
        boxes.encode(x=x, x2=alt.X2("x2"), y=y, y2=alt.Y2("y2"), color=fill, tooltip=canvas.tooltip("name", "size")),
        words.encode(x=x, y=y, text=alt.Text("text:N"), color=fill),
        canvas.text(titles, align="left", baseline="middle", fontWeight="bold").encode(
            x=x, y=y, text=alt.Text("text:N")
        ),
        *canvas.limit_line(pixels and width / pixels, width, across=True),
    ]
    chart = alt.layer(*layers, width=width, height=height)
    return canvas.finish(chart)


def _segments(bar: Document, top: float, pixels: float, rects: list[Row], texts: list[Row]) -> list[Row]:
    """Draw one bar; the parts that are too narrow to be named inside are returned."""
    at, below = 0.0, []
    for part in (part for part in bar["parts"] if part["bytes"] > 0):
        name, size = shorten(printable(str(part["name"])), 40), format_bytes(part["bytes"])
        colour, along = {**KINDS, **PARTS, **FINE_PARTS}.get(name, OTHER), part["bytes"] * pixels
        row = {"name": name, "size": size, "colour": colour}
        rects.append({**row, "x": at, "x2": at + along, "y": top, "y2": top + _BAR})
        written = next((text for text in (f"{name} {size}", name) if len(text) * CHARACTER + 8 <= along), "")
        if written:
            texts.append({"x": at + 5, "y": top + _BAR / 2, "text": written, "colour": text_on(colour)})
        if written == name or not written:
            below.append({**row, "text": f"{name} {size}"})
        at += along
    return below


def _keys(keys: list[Row], top: float, width: int, rects: list[Row], texts: list[Row]) -> float:
    """What did not fit into the bar, in lines below it; where they end."""
    at, middle = 0.0, top + _LINE * 0.7
    for key in keys:
        along = 14 + len(key["text"]) * CHARACTER + 12
        if at and at + along > width:
            at, middle = 0.0, middle + _LINE
        rects.append({**key, "x": at, "x2": at + 10, "y": middle - 5, "y2": middle + 5})
        texts.append({"x": at + 14, "y": middle, "text": key["text"], "colour": LIGHT.ink})
        at += along
    return middle + _LINE / 2 if keys else top
