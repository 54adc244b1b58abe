"""How every chart begins and ends: Altair, or one error that says what to install; a width, a limit.

Charts name their channels (`alt.X2("x2")`, not `"x2"`): Altair finds the class of a word, too, but takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from onnxmem.errors import missing_extra
from onnxmem.report.charts.theme import FONT, LIGHT
from onnxmem.report.names import CHARACTER, printable, shorten
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

Row = dict[str, Any]
Document = Mapping[str, Any]
Picture: TypeAlias = "altair.TopLevelMixin"
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
_DWARFS = 1.6
"""A limit this many times what was taken is named but not drawn to scale: it would flatten everything else."""


@dataclass(frozen=True)
class Canvas:
    """What a chart is drawn with: Altair, so many pixels between the axes, and perhaps a limit to keep."""

    alt: Any
    width: int
    limit: int | None
    called: str
    """The limit's name."""

    @classmethod
    def of(cls, width: int, limit: int | None = None, called: str = "limit") -> Canvas:
        """A canvas; an error that says what to install if there is no Altair."""
        try:
            import altair  # noqa: PLC0415
        except ImportError as error:
            raise missing_extra("altair", "report") from error
        return cls(altair, width, limit, called)

    def rows(self, values: list[Row]) -> Any:
        """A chart of rows, without any mark."""
        # A tuple, because Altair copies lists, and often.
        return self.alt.Chart(self.alt.InlineData(values=tuple(values)))

    def text(self, values: list[Row], **mark: Any) -> Any:
        """A chart that writes, in ink unless told otherwise."""
        return self.rows(values).mark_text(**{"fontSize": 11, "color": LIGHT.ink, "aria": False, **mark})

    def rule(self, values: list[Row], stroke: str, dash: Sequence[int] = (1, 0), width: float = 1.5) -> Any:
        """A chart of straight lines."""
        return self.rows(values).mark_rule(stroke=stroke, strokeWidth=width, strokeDash=list(dash), aria=False)

    def scale(self, field: str, end: float, **axis: Any) -> Any:
        """The field of that name from nothing to `end`: across if it is called `x`, upwards otherwise."""
        channel = self.alt.X if field.startswith("x") else self.alt.Y
        return channel(field, scale=self.alt.Scale(domain=[0, end], nice=False), axis=self.alt.Axis(**axis))

    def colour(self, field: str, colours: Mapping[str, str], *, legend: bool = True, **more: Any) -> Any:
        """A colour for each value of a field; the legend, if any, lies below and wraps."""
        columns = max(self.width // 170, 1)
        key = self.alt.Legend(title=None, orient="bottom", columns=columns, labelLimit=300, **more) if legend else None
        scale = self.alt.Scale(domain=list(colours), range=list(colours.values()))
        return self.alt.Color(f"{field}:N", scale=scale, legend=key)

    def tooltip(self, *fields: str) -> list[Any]:
        """What is told of a mark under the mouse."""
        return [self.alt.Tooltip(f"{field}:N") for field in fields]

    def reach(self, top: float) -> float:
        """How far a scale of bytes goes: to the highest value, and to the limit if that is near."""
        return max(top, self.limit) if self.limit is not None and self.limit <= _DWARFS * top else top

    def limit_line(self, reach: float, length: float, *, across: bool) -> list[Any]:
        """The limit on a scale of so many bytes over so many pixels: `across` the bars, or over time as a height."""
        if self.limit is None:
            return []
        label, at = f"{self.called} {format_bytes(self.limit)}", self.limit / reach * length
        alt, inside = self.alt, self.limit <= reach
        if not inside:
            label, at = f"{label}, beyond this scale", length
        # In the upper right corner, or above the bars: beside its line, on the side where there is room.
        left = across and at + 4 + len(label) * CHARACTER <= self.width
        align, dx = ("left", 4) if left else ("right", -4)
        x, y = (at, -6) if across else (self.width, length - at - 9)
        written = self.text([{}], color=LIGHT.peak, align=align, dx=dx, baseline="bottom" if across else "middle")
        layers = [written.encode(x=alt.XValue(x), y=alt.YValue(y), text=alt.TextValue(label))]
        if inside:
            where = {"x": alt.XValue(at)} if across else {"y": alt.YValue(length - at)}
            layers.append(self.rule([{}], LIGHT.peak, (6, 4)).encode(**where))
        return layers

    def finish(self, chart: Any, title: str = "", lines: Sequence[str] = ()) -> Picture:
        """The chart under its title, with what it shows in a line or two."""
        named: dict[str, Any] = {}
        if title:
            heading = shorten(printable(title), 100)
            sizes = {"fontSize": 16, "subtitleFontSize": 12, "subtitlePadding": 5}
            named["description"] = " ".join(lines) or heading
            named["title"] = self.alt.TitleParams(heading, subtitle=list(lines), anchor="start", offset=14, **sizes)
        axis = {"labelColor": LIGHT.muted, "titleColor": LIGHT.ink, "titleFontWeight": "normal", "titlePadding": 8}
        rules = {"domainColor": LIGHT.muted, "tickColor": LIGHT.muted, "gridColor": LIGHT.grid}
        config = self.alt.Config(
            font=FONT,
            padding=14,
            view=self.alt.ViewConfig(stroke=None),
            title=self.alt.TitleConfig(color=LIGHT.ink, subtitleColor=LIGHT.muted),
            axis=self.alt.AxisConfig(**axis, **rules),
            legend=self.alt.LegendConfig(labelColor=LIGHT.ink, titleColor=LIGHT.ink, titleFontWeight="normal"),
        )
        # All at once: each step makes a copy of the whole chart.
        drawn: Picture = chart.properties(background=LIGHT.paper, config=config, **named)
        return drawn


def unit_of(size: float) -> tuple[int, str]:
    """The unit in which so many bytes are read most easily, and how many bytes it is."""
    return next((pair for pair in _UNITS if size >= pair[0]), _UNITS[-1])
