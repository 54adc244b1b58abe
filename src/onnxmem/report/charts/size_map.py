"""The heat map of a sweep: models and modes by sizes, darker for more memory."""

from __future__ import annotations

import math

from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row
from onnxmem.report.charts.theme import SIZES, text_on
from onnxmem.report.names import printable, shorten
from onnxmem.units import format_bytes

WIDTH = 560
_ROW = 24
# A name may take half of a narrow picture.
_LABEL = 42


def size_map(document: Document, *, width: int = WIDTH) -> Picture:
    """Which models take much, at which sizes? A cell for each, with its figure where there is room.

    Takes `{"label", "sizes": [...], "rows": [{"model", "mode", "processor", "bytes": [...]}]}`.
    """
    canvas = Canvas.of(width)
    alt, sizes = canvas.alt, [shorten(printable(each), 30) for each in document["sizes"]]
    # Numbered where they would look alike: one row must not hide another.
    room = _LABEL if width >= WIDTH else 20
    names: list[str] = []
    for row in document["rows"]:
        text = shorten(", ".join(printable(row[key]) for key in ("model", "mode", "processor") if row.get(key)), room)
        names.append(text if text not in names else f"{text} ({len(names) + 1})")
    known = [value for row in document["rows"] for value in row["bytes"] if value is not None]
    low, high = math.log(min(known)), math.log(max(known))
    fits = width / len(sizes) >= 62
    rows: list[Row] = []
    for label, row in zip(names, document["rows"], strict=True):
        for at, value in zip(sizes, row["bytes"], strict=True):
            if value is None:
                continue
            # By the logarithm: models differ by powers of ten, and one giant would leave all others pale.
            part = (math.log(value) - low) / (high - low) if high > low else 0.0
            fill = SIZES[min(int(part * len(SIZES)), len(SIZES) - 1)]
            said = format_bytes(value)
            rows.append({"name": label, "size": at, "fill": fill, "ink": text_on(fill),
                         "text": said if fits else "", "hover": f"{label}, {at}: {said}"})  # fmt: skip
    x = alt.X(
        "size:N", sort=sizes, axis=alt.Axis(title=None, orient="top", labelAngle=0 if fits else -40, labelLimit=160)
    )
    y = alt.Y("name:N", sort=names, axis=alt.Axis(title=None, labelLimit=300))
    colour = alt.Color("fill:N", scale=None)
    cells = canvas.rows(rows).mark_rect(stroke="#ffffff", strokeWidth=1.5)
    text = canvas.rows(rows).mark_text(fontSize=11, aria=False)
    layers = [
        cells.encode(x=x, y=y, color=colour, description=alt.Description("hover:N")),
        text.encode(x=x, y=y, text=alt.Text("text:N"), color=alt.Color("ink:N", scale=None)),
    ]
    chart = alt.layer(*layers, width=width, height=_ROW * len(names))
    return canvas.finish(chart, f"{printable(document['label'])} by model and size")
