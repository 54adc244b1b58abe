"""The scaling curve: peak memory against input size, measured, fitted, and beyond what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.bars import by_size
from onnxmem.report.charts.layout import printable, shorten
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT = 640, 340
_MIB = 2**20
_STEPS = 48
Row = dict[str, Any]
Document = Mapping[str, Any]


def scaling_chart(comparison: Document, *, title: str = "", width: int = WIDTH) -> altair.LayerChart:
    """How does peak memory grow with the input? Points are measured, lines fitted; dashed is extrapolated.

    Takes `onnxmem.compare/1`, fresh or from a file. One size makes no curve: then there are bars.
    """
    title = shorten(printable(title or "Peak memory against input size"), 100)
    if not is_curve(comparison):
        return by_size(comparison, width=width).properties(title=title)
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    names = [each["name"] for each in comparison["candidates"] if any(_measured(each))]
    # Names are the reader's only key: two that look alike after shortening would be one line.
    shown = {name: f"{k + 1}. {shorten(printable(name), 44)}" for k, name in enumerate(names)}
    x = alt.X(
        "x:Q",
        axis=alt.Axis(title="elements in the inputs", format="~s", tickCount=max(width // 60, 3)),
        scale=alt.Scale(zero=True, nice=False),
    )
    y = alt.Y("y:Q", axis=alt.Axis(title="peak RSS (MiB)"), scale=alt.Scale(zero=True))
    colours = alt.Scale(
        domain=list(shown.values()), range=[theme.KINDS[k % len(theme.KINDS)] for k in range(len(shown))]
    )
    colour = alt.Color(
        "name:N",
        scale=colours,
        legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=max(width - 40, 240)),
    )
    layers = []
    for beyond, dash in ((False, [1, 0]), (True, [5, 4])):
        line = _chart(alt, _lines(comparison, shown, beyond=beyond)).mark_line(
            strokeDash=dash, strokeWidth=2, aria=False
        )
        layers.append(line.encode(x=x, y=y, color=colour, detail="name:N"))
    spread, points = _points(comparison, shown)
    layers.append(
        _chart(alt, spread).mark_rule(strokeWidth=2, aria=False).encode(x=x, y="low:Q", y2="high:Q", color=colour)
    )
    dots = _chart(alt, points).mark_point(filled=True, size=60, opacity=1, aria=False)
    layers.append(dots.encode(x=x, y=y, color=colour, tooltip=["name:N", "size:N", "text:N"]))
    lines = summary(comparison)
    head = theme.heading(alt, title, lines)
    chart = alt.layer(*layers, title=head, background=theme.PAPER, description=" ".join(lines))
    styled: altair.LayerChart = theme.styled(chart.properties(width=width, height=HEIGHT))
    return styled


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
    """The error at points the fit did not see; without such points it cannot be told."""
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
            rows.append({"x": at, "y": value / _MIB, "name": shown[fit["candidate"]]})
    return rows


def _points(comparison: Document, shown: dict[str, str]) -> tuple[list[Row], list[Row]]:
    spread: list[Row] = []
    points: list[Row] = []
    for candidate in comparison["candidates"]:
        for point in _measured(candidate):
            middle = point["peak_rss_bytes"]
            low, high = (point.get("spread") or {}).get("peak_rss_bytes") or (middle, middle)
            same = {"x": point["elements"], "name": shown[candidate["name"]]}
            spread.append({**same, "low": low / _MIB, "high": high / _MIB})
            size, text = printable(str(point.get("size", ""))), f"{middle / _MIB:.1f} MiB"
            points.append({**same, "y": middle / _MIB, "size": size, "text": text})
    return spread, points


def _chart(alt: Any, rows: list[Row]) -> Any:
    return alt.Chart(alt.InlineData(values=rows))
