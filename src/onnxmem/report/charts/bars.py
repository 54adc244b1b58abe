"""Bars: strategies against the bound, measurements side by side, candidates by input size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.layout import printable, shorten
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

WIDTH, ROW = 640, 30
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
Row = dict[str, Any]
Document = Mapping[str, Any]


def strategies(activations: Document, *, width: int = WIDTH) -> altair.LayerChart:
    """How near does each strategy come to the lower bound?"""
    alt, bound = _altair(), activations["lower_bound_bytes"]
    plans = activations["strategies"]
    rows = [
        {
            "name": _name(plan["name"]),
            "bytes": plan["peak_bytes"],
            "group": "optimal" if plan["optimal"] else "not proven optimal",
        }
        for plan in plans
    ]
    colours = {"optimal": theme.KINDS[2], "not proven optimal": theme.SIZES[1]}
    bars = _Bars(alt, rows, colours, "peak of the arena")
    rule = alt.Chart(alt.InlineData(values=[{"x": bound / bars.factor}]))
    line = rule.mark_rule(stroke=theme.PEAK, strokeWidth=1.5, strokeDash=[5, 4], aria=False).encode(x="x:Q")
    label = rule.mark_text(align="left", baseline="bottom", dx=3, dy=-4, fontSize=11, color=theme.PEAK, aria=False)
    text = alt.value(f"lower bound {format_bytes(bound)}")
    return bars.finish(line, label.encode(x="x:Q", y=alt.value(0), text=text), width=width)


def side_by_side(compared: Document, *, width: int = WIDTH) -> altair.LayerChart:
    """Which of these took how much, in loading and in running?"""
    rows: list[Row] = []
    for bar in compared["bars"]:
        for group, key in (("loading", "load_growth_bytes"), ("running", "run_growth_bytes")):
            if bar[key] is not None:
                rows.append({"name": _name(bar["name"]), "bytes": bar[key], "group": group})
    colours = {"loading": theme.KINDS[0], "running": theme.KINDS[1]}
    return _Bars(_altair(), rows, colours, "memory", grouped=True).finish(width=width)


def by_size(comparison: Document, *, width: int = WIDTH) -> altair.LayerChart:
    """Which candidate takes how much at which input size?"""
    rows: list[Row] = []
    candidates = [_name(candidate["name"]) for candidate in comparison["candidates"]]
    for candidate, document in zip(candidates, comparison["candidates"], strict=True):
        for point in document.get("inputs") or ():
            if point.get("peak_rss_bytes") is not None:
                value, shape = point["peak_rss_bytes"], point.get("shape")
                name = "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)
                rows.append({"name": _name(name), "bytes": value, "group": candidate})
    colours = {name: theme.KINDS[k % len(theme.KINDS)] for k, name in enumerate(dict.fromkeys(candidates))}
    return _Bars(_altair(), rows, colours, "peak RSS", grouped=True).finish(width=width)


class _Bars:
    """Horizontal bars with their numbers at the end; grouped ones lie below each other."""

    def __init__(self, alt: Any, rows: list[Row], colours: dict[str, str], what: str, *, grouped: bool = False) -> None:
        self.alt = alt
        top = max((row["bytes"] for row in rows), default=1) or 1
        self.factor, unit = next(pair for pair in _UNITS if top >= pair[0])
        rows = [{**row, "x": row["bytes"] / self.factor, "text": format_bytes(row["bytes"])} for row in rows]
        names = list(dict.fromkeys(row["name"] for row in rows))
        shown = {group: colour for group, colour in colours.items() if any(row["group"] == group for row in rows)}
        legend = alt.Legend(title=None, orient="bottom", symbolType="square", direction="horizontal", labelLimit=300)
        scale = alt.Scale(domain=[0, top * 1.18 / self.factor], nice=False)
        axis = alt.Axis(title=None, ticks=False, domain=False, labelColor=theme.INK, labelFontSize=12, labelPadding=8,
                        labelLimit=240)  # fmt: skip
        place: Row = {
            "x": alt.X("x:Q", scale=scale, axis=alt.Axis(title=f"{what} ({unit})", tickCount=8)),
            "y": alt.Y("name:N", sort=names, axis=axis),
        }
        lanes = 1
        if grouped:
            lanes = len(shown)
            place["yOffset"] = alt.YOffset("group:N", sort=list(shown))
        self.height = max(len(names), 1) * (ROW if lanes == 1 else 12 + 20 * lanes)
        base = alt.Chart(alt.InlineData(values=rows))
        colour = alt.Color("group:N", scale=alt.Scale(domain=list(shown), range=list(shown.values())), legend=legend)
        mark = {"height": ROW - 11} if lanes == 1 else {}
        self.layers = [
            base.mark_bar(aria=False, **mark).encode(**place, color=colour),
            base.mark_text(align="left", dx=6, fontSize=11, color=theme.INK, aria=False).encode(**place, text="text:N"),
        ]

    def finish(self, *more: Any, width: int = WIDTH) -> altair.LayerChart:
        chart = self.alt.layer(*self.layers, *more).properties(width=width, height=self.height, background=theme.PAPER)
        styled: altair.LayerChart = theme.styled(chart)
        return styled


def _altair() -> Any:
    try:
        import altair  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    return altair


def _name(text: object) -> str:
    return shorten(printable(str(text)), 40)
