"""Bars: how they are drawn; strategies against the bound, measurements side by side, candidates at one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.layout import CHARACTER, printable, shorten
from onnxmem.report.charts.theme import AT_PEAK, LIGHT, OPTIMAL, SIZES, Theme
from onnxmem.units import format_bytes

WIDTH, ROW = 640, 30


@dataclass(frozen=True)
class Bars:
    """Horizontal bars in bytes, from `x` to `x2`, each with a `name` and a `kind`, and what is written behind them."""

    rows: list[Row]
    notes: list[Row]
    """At `x`, for the bar of this `name`, the `text`."""
    colours: Mapping[str, str]
    """Of the kinds."""
    what: str
    """The title of the axis, without its unit."""
    row: int = ROW
    grouped: bool = False
    """Bars of one name lie below each other, not behind each other."""
    legend: bool = False
    """Needed only where the notes do not name the kinds."""
    reach: float = 0
    """How far the scale goes at least."""
    ticked: bool = False
    """The notes' places are marked."""

    def draw(self, canvas: Canvas) -> Any:
        """The bars on a canvas, and what is written behind them."""
        alt, notes = canvas.alt, self.notes
        top = max([*(row["x2"] for row in self.rows), *(note["x"] for note in notes), self.reach, 1])
        # Room for what is written behind the longest bars, which are not always those with the longest notes.
        rooms = ((note["x"], max(canvas.width - 12 - len(note["text"]) * CHARACTER, 40)) for note in notes)
        end = canvas.reach(max([top * 1.02, *(x * canvas.width / room for x, room in rooms)]))
        factor, unit = unit_of(top)
        names = list(dict.fromkeys(row["name"] for row in (*self.rows, *notes)))
        kinds = [kind for kind in self.colours if any(row["kind"] == kind for row in self.rows)]
        axis = alt.Axis(title=None, ticks=False, domain=False, labelColor=canvas.theme.ink, labelFontSize=12,
                        labelPadding=8, labelLimit=240 if canvas.width > 400 else 110)  # fmt: skip
        place: Row = {
            "x": canvas.scale("x:Q", end / factor, title=f"{self.what} ({unit})", tickCount=max(canvas.width // 80, 3)),
            "y": alt.Y("name:N", sort=names, axis=axis),
        }
        if self.grouped:
            place["yOffset"] = alt.YOffset("kind:N", sort=kinds)
        height = max(len(names), 1) * (12 + 20 * len(kinds) if self.grouped else self.row)
        thickness = {} if self.grouped else {"height": round(self.row * 0.63)}
        colour = canvas.colour("kind", {kind: self.colours[kind] for kind in kinds}, legend=self.legend)
        rows, notes = ([{**row, **{k: row[k] / factor for k in ("x", "x2") if k in row}} for row in each]
                       for each in (self.rows, notes))  # fmt: skip
        bars = canvas.rows(rows).mark_bar(aria=False, stroke=canvas.theme.paper, strokeWidth=0.6, **thickness)
        layers = [
            bars.encode(**place, x2="x2", color=colour, tooltip=[f"{key}:N" for key in ("name", "kind", "size")]),
            *canvas.budget_line(end, canvas.width, across=True),
        ]
        if self.ticked:
            ticks = canvas.rows(notes).mark_tick(thickness=2, size=self.row - 5, color=canvas.theme.peak, aria=False)
            layers.append(ticks.encode(**place))
        # Written twice, first as a broad edge in the colour of the paper: a line behind would strike it out.
        for edge in ({"stroke": canvas.theme.paper, "strokeWidth": 4}, {}):
            layers.append(canvas.text(notes, align="left", dx=7, **edge).encode(**place, text="text:N"))
        return alt.layer(*layers).properties(width=canvas.width, height=height)


def bar(name: str, kind: str, begin: float, size: float) -> Row:
    """One row of `Bars`."""
    return {"name": name, "kind": kind, "x": begin, "x2": begin + size, "size": format_bytes(size)}


def strategies(
    activations: Document, *, width: int = WIDTH, budget: int | None = None, theme: Theme = LIGHT
) -> Picture:
    """How near does each strategy come to the lower bound?"""
    canvas = Canvas.of(width, theme, budget, activations["lower_bound_bytes"], "lower bound")
    rows, notes = [], []
    for plan in activations["strategies"]:
        kind, size = "optimal" if plan["optimal"] else "not proven optimal", plan["peak_bytes"]
        rows.append(bar(_name(plan["name"]), kind, 0, size))
        text = f"{format_bytes(size)}{', optimal' if plan['optimal'] else ''}"
        notes.append({"name": _name(plan["name"]), "x": size, "text": text})
    colours = {"optimal": OPTIMAL, "not proven optimal": SIZES[1]}
    return canvas.finish(Bars(rows, notes, colours, "peak of the arena").draw(canvas))


def side_by_side(compared: Document, *, width: int = WIDTH, budget: int | None = None, theme: Theme = LIGHT) -> Picture:
    """Which of these took how much, in loading and in running?"""
    canvas = Canvas.of(width, theme, budget, compared.get("budget_bytes"))
    rows, notes = [], []
    for each in compared["bars"]:
        for kind, key in (("loading", "load_growth_bytes"), ("running", "run_growth_bytes")):
            if (size := each[key]) is not None:
                rows.append(bar(_name(each["name"]), kind, 0, size))
                notes.append({"name": _name(each["name"]), "kind": kind, "x": size,
                              "text": f"{format_bytes(size)} {kind}"})  # fmt: skip
    colours = {"loading": SIZES[1], "running": AT_PEAK}
    return canvas.finish(Bars(rows, notes, colours, "memory", grouped=True).draw(canvas))


def at_one_size(comparison: Document, canvas: Canvas) -> Any:
    """Which candidate takes how much, at the one size that was measured?"""
    rows, notes = [], []
    for number, candidate in enumerate(comparison["candidates"], start=1):
        for point in candidate.get("inputs") or ():
            if (size := point.get("peak_rss_bytes")) is not None:
                # Names are the reader's only key: two that look alike after shortening would be one bar.
                name = f"{number}. {_name(candidate['name'])}"
                rows.append(bar(name, "peak RSS", 0, size))
                notes.append({"name": name, "x": size, "text": format_bytes(size)})
    return Bars(rows, notes, {"peak RSS": SIZES[1]}, "peak RSS").draw(canvas)


def _name(text: object) -> str:
    return shorten(printable(str(text)), 40)
