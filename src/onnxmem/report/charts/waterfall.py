"""The waterfall: what a model brought, and what each way of letting go took off it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.layout import printable, shorten
from onnxmem.units import format_bytes, format_percent

if TYPE_CHECKING:
    import altair

WIDTH, ROW = 640, 40
_MIB = 2**20
_COLOURS = {"file-backed": theme.KINDS[4], "anonymous": theme.KINDS[0], "given back by this step": theme.AT_PEAK}
Row = dict[str, Any]
Document = Mapping[str, Any]


def waterfall_chart(document: Document, *, title: str = "", width: int = WIDTH) -> altair.Chart:
    """Which step gave the memory back? One bar for each: what is still resident, and what went.

    It takes the document, so that a saved result is drawn as a fresh one is.
    """
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    lines = summary(document)
    head = theme.heading(alt, shorten(printable(title or document["model"]), 100), lines)
    chart = alt.layer(*_layers(alt, document)).properties(
        width=width,
        height=ROW * (len(document["steps"]) + 2),
        title=head,
        background=theme.PAPER,
        description=" ".join(lines),
    )
    styled: altair.Chart = theme.styled(chart)
    return styled


def summary(document: Document) -> list[str]:
    """The ladder in two lines."""
    brought, remaining, fraction = (document[k] for k in ("brought_bytes", "remaining_bytes", "released_fraction"))
    if brought is None or remaining is None or fraction is None:
        return ["what the model took cannot be told here"]
    back = f"{format_percent(fraction)} of the {format_bytes(brought)} that the model brought came back"
    mode, runtime = document["scenario"]["mode"], document["environment"]["onnxruntime"]
    return [
        f"{back}, {format_bytes(max(remaining, 0))} remain; bars are resident memory (RSS)",
        f"mode {mode}, ONNX Runtime {runtime}",
    ]


def _layers(alt: Any, document: Document) -> list[Any]:
    shown = [("before the model", document["before"], False), ("loaded and run", document["full"], False)]
    shown += [(printable(step["name"]), step, True) for step in document["steps"]]
    names = [name for name, _, _ in shown]
    bars: list[Row] = []
    notes: list[Row] = []
    for name, step, rung in shown:
        bars += _bars(name, step, rung=rung)
        notes += _note(name, step, rung=rung)
    top = max((row["x2"] for row in bars), default=1.0)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, top * 1.22], nice=False), axis=alt.Axis(title="RSS (MiB)", tickCount=8))
    axis = alt.Axis(title=None, ticks=False, domain=False, labelColor=theme.INK, labelFontSize=12, labelPadding=8)
    y = alt.Y("step:N", sort=names, axis=axis)
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", direction="horizontal", labelLimit=300)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())), legend=legend)
    beside = alt.X("x:Q")
    return [
        _chart(alt, bars)
        .mark_bar(height=ROW - 16, aria=False)
        .encode(x=x, x2="x2", y=y, color=colour, tooltip=[alt.Tooltip(f"{key}:N") for key in ("step", "kind", "size")]),
        _chart(alt, notes)
        .mark_text(align="left", dx=7, fontSize=11, color=theme.INK, aria=False)
        .encode(x=beside, y=y, text="text:N"),
    ]


def _bars(name: str, step: Document, *, rung: bool) -> list[Row]:
    sizes = [("file-backed", step["file_bytes"]), ("anonymous", step["anon_bytes"])]
    if rung:
        sizes.append(("given back by this step", step["freed_bytes"]))
    rows, at = [], 0.0
    for kind, size in sizes:
        if size is not None and size > 0:
            end = at + size / _MIB
            rows.append({"step": name, "kind": kind, "x": at, "x2": end, "size": format_bytes(size)})
            at = end
    return rows


def _note(name: str, step: Document, *, rung: bool) -> list[Row]:
    rss = step["rss_bytes"]
    if rss is None or (rung and step["freed_bytes"] is None):
        return []
    freed = step["freed_bytes"] if rung else 0
    text = format_bytes(rss)
    if rung:
        text = (
            f"−{format_bytes(freed)}" if freed >= _MIB // 10 else f"+{format_bytes(-freed)}" if freed < 0 else "nothing"
        )
    return [{"step": name, "x": (rss + max(freed, 0)) / _MIB, "text": text}]


def _chart(alt: Any, rows: list[Row]) -> Any:
    return alt.Chart(alt.InlineData(values=rows))
