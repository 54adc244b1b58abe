"""The waterfall: what a model brought, and what each way of releasing it took off."""

from __future__ import annotations

from onnxmem.report.charts.bars import Bars, bar
from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row
from onnxmem.report.charts.layout import printable
from onnxmem.report.charts.theme import ANONYMOUS, AT_PEAK, FILE, LIGHT, Theme
from onnxmem.units import format_bytes, format_percent

WIDTH, ROW = 640, 40
_COLOURS = {"file-backed": FILE, "anonymous": ANONYMOUS, "given back by this step": AT_PEAK}
_NOTHING = 2**20 // 10


def waterfall_chart(
    document: Document, *, title: str = "", width: int = WIDTH, budget: int | None = None, theme: Theme = LIGHT
) -> Picture:
    """Which step gave the memory back? One bar for each: what is still resident, and what went.

    It takes the document, so that a saved result is drawn as a fresh one is.
    """
    canvas = Canvas.of(width, theme, budget)
    shown = [("before the model", document["before"], False), ("loaded and run", document["full"], False)]
    shown += [(printable(step["name"]), step, True) for step in document["steps"]]
    rows: list[Row] = []
    notes: list[Row] = []
    for name, step, is_step in shown:
        rows += _rows(name, step, is_step=is_step)
        notes += _note(name, step, is_step=is_step)
    bars = Bars(rows, notes, _COLOURS, "RSS", row=ROW, legend=True).draw(canvas)
    return canvas.finish(bars, title or document["model"], summary(document))


def summary(document: Document) -> list[str]:
    """The ladder in two lines."""
    brought, remaining, fraction = (document[k] for k in ("brought_bytes", "remaining_bytes", "released_fraction"))
    if brought is None or remaining is None or fraction is None:
        return ["what the model took cannot be measured here"]
    back = f"{format_percent(fraction)} of the {format_bytes(brought)} that the model brought came back"
    mode, runtime = document["scenario"]["mode"], document["environment"]["onnxruntime"]
    return [
        f"{back}, {format_bytes(max(remaining, 0))} remain; bars are resident memory (RSS)",
        f"mode {mode}, ONNX Runtime {runtime}",
    ]


def _rows(name: str, step: Document, *, is_step: bool) -> list[Row]:
    sizes = [("file-backed", step["file_bytes"]), ("anonymous", step["anon_bytes"])]
    if is_step:
        sizes.append(("given back by this step", step["freed_bytes"]))
    rows: list[Row] = []
    for kind, size in sizes:
        if size is not None and size > 0:
            rows.append(bar(name, kind, rows[-1]["x2"] if rows else 0, size))
    return rows


def _note(name: str, step: Document, *, is_step: bool) -> list[Row]:
    rss = step["rss_bytes"]
    if rss is None or (is_step and step["freed_bytes"] is None):
        return []
    freed = step["freed_bytes"] if is_step else 0
    text = format_bytes(rss)
    if is_step and freed < _NOTHING:
        text = f"+{format_bytes(-freed)}" if freed < 0 else "nothing"
    elif is_step:
        text = f"−{format_bytes(freed)}"
    return [{"name": name, "x": rss + max(freed, 0), "text": text}]
