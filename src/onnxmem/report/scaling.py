"""The scaling curve: peak memory against input size, measured, fitted, and beyond what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxmem.compare.comparison import Comparison
from onnxmem.compare.figure import Figure
from onnxmem.errors import missing_extra
from onnxmem.report import theme
from onnxmem.report.compare_text import error_text, fit_text
from onnxmem.report.layout import printable, shorten

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT = 760, 380
_MIB = 2**20
_STEPS = 48
Row = dict[str, Any]


def scaling_chart(comparison: Comparison, *, title: str = "") -> altair.LayerChart:
    """How does peak memory grow with the input? Points are measured, lines fitted; dashed is extrapolated."""
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    names = [result.name for result in comparison.results if any(isinstance(at.peak, Figure) for at in result.at)]
    # Names are the reader's only key: two that look alike after shortening would be one line.
    shown = {name: f"{k + 1}. {shorten(printable(name), 44)}" for k, name in enumerate(names)}
    x = alt.X("x:Q", axis=alt.Axis(title="elements in the inputs", format="~s"), scale=alt.Scale(zero=True, nice=False))
    y = alt.Y("y:Q", axis=alt.Axis(title="peak RSS (MiB)"), scale=alt.Scale(zero=True))
    colours = alt.Scale(
        domain=list(shown.values()), range=[theme.KINDS[k % len(theme.KINDS)] for k in range(len(shown))]
    )
    colour = alt.Color(
        "name:N", scale=colours, legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=700)
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
    head = alt.TitleParams(
        shorten(printable(title or "Peak memory against input size"), 100),
        subtitle=lines,
        anchor="start",
        fontSize=16,
        subtitleFontSize=12,
        subtitlePadding=5,
        offset=14,
    )
    chart = alt.layer(*layers, title=head, background=theme.PAPER, description=" ".join(lines))
    styled: altair.LayerChart = theme.styled(chart.properties(width=WIDTH, height=HEIGHT))
    return styled


def summary(comparison: Comparison) -> list[str]:
    """The fits in words."""
    lines = []
    for fit in comparison.fits:
        error = error_text(fit)
        known = "error unknown, too few sizes" if error == "?" else f"error {error}"
        lines.append(f"{shorten(printable(fit.candidate), 44)}: {fit_text(fit)} ({known})")
    return [*lines, "points measured, lines fitted, dashed extrapolated"]


def _lines(comparison: Comparison, shown: dict[str, str], *, beyond: bool) -> list[Row]:
    rows: list[Row] = []
    end = max((elements for _, elements in comparison.beyond()), default=0) / 2
    for fit in comparison.fits:
        low, high = (fit.range[1], end) if beyond else fit.range
        for step in range(_STEPS + 1):
            at = low + (high - low) * step / _STEPS
            rows.append({"x": at, "y": fit(at) / _MIB, "name": shown[fit.candidate]})
    return rows


def _points(comparison: Comparison, shown: dict[str, str]) -> tuple[list[Row], list[Row]]:
    spread: list[Row] = []
    points: list[Row] = []
    for result in comparison.results:
        for at in result.at:
            if not isinstance(at.peak, Figure):
                continue
            middle = at.peak.median / _MIB
            same = {"x": at.size.elements, "name": shown[result.name]}
            spread.append({**same, "low": at.peak.low / _MIB, "high": at.peak.high / _MIB})
            points.append({**same, "y": middle, "size": printable(at.size.label), "text": f"{middle:.1f} MiB"})
    return spread, points


def _chart(alt: Any, rows: list[Row]) -> Any:
    return alt.Chart(alt.InlineData(values=rows))
