"""Bars: how they are drawn; strategies, measurements, candidates at one size, and what each step of a release freed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.theme import ANONYMOUS, AT_PEAK, FILE, LIGHT, OPTIMAL, SIZES
from onnxmem.report.names import CHARACTER, printable, shorten
from onnxmem.units import format_bytes, format_percent

WIDTH, ROW = 640, 30
RESIDENT = {"file-backed": FILE, "anonymous": ANONYMOUS}
_WATERFALL = {**RESIDENT, "given back by this step": AT_PEAK}
# Less than this is nothing to a reader.
_NOTHING = 2**20 // 10


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
        axis = alt.Axis(title=None, ticks=False, domain=False, labelColor=LIGHT.ink, labelFontSize=12,
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
        bars = canvas.rows(rows).mark_bar(aria=False, stroke=LIGHT.paper, strokeWidth=0.6, **thickness)
        layers = [
            bars.encode(**place, x2=alt.X2("x2"), color=colour, tooltip=canvas.tooltip("name", "kind", "size")),
            *canvas.limit_line(end, canvas.width, across=True),
        ]
        if self.ticked:
            ticks = canvas.rows(notes).mark_tick(thickness=2, size=self.row - 5, color=LIGHT.peak, aria=False)
            layers.append(ticks.encode(**place))
        # Written twice, first as a broad edge in the colour of the paper: a line behind would strike it out.
        for edge in ({"stroke": LIGHT.paper, "strokeWidth": 4}, {}):
            layers.append(canvas.text(notes, align="left", dx=7, **edge).encode(**place, text=alt.Text("text:N")))
        return alt.layer(*layers, width=canvas.width, height=height)


def bar(name: str, kind: str, begin: float, size: float) -> Row:
    """One row of `Bars`."""
    return {"name": name, "kind": kind, "x": begin, "x2": begin + size, "size": format_bytes(size)}


def plain(sizes: Iterable[tuple[str, str, int, str]]) -> tuple[list[Row], list[Row]]:
    """Rows and notes of `Bars` that all begin at nothing: name, kind, size, and what is written behind it."""
    listed = list(sizes)
    notes = [{"name": name, "kind": kind, "x": size, "text": text} for name, kind, size, text in listed]
    return [bar(name, kind, 0, size) for name, kind, size, _ in listed], notes


def strategies(activations: Document, *, width: int = WIDTH) -> Picture:
    """How near does each strategy come to the lower bound?"""
    canvas = Canvas.of(width, activations["lower_bound_bytes"], "lower bound")
    kinds = {True: ("optimal", ", optimal"), False: ("not proven optimal", "")}
    shown = ((plan, plan["peak_bytes"], *kinds[bool(plan["optimal"])]) for plan in activations["strategies"])
    rows = plain((_name(plan["name"]), kind, size, format_bytes(size) + text) for plan, size, kind, text in shown)
    colours = {"optimal": OPTIMAL, "not proven optimal": SIZES[1]}
    return canvas.finish(Bars(*rows, colours, "peak of the arena").draw(canvas))


def side_by_side(compared: Document, *, width: int = WIDTH) -> Picture:
    """Which of these took how much, in loading and in running?"""
    canvas = Canvas.of(width)
    kinds = {"loading": "load_growth_bytes", "running": "run_growth_bytes"}
    shown = ((_name(each["name"]), kind, each[key]) for each in compared["bars"] for kind, key in kinds.items())
    rows = plain((name, kind, size, f"{format_bytes(size)} {kind}") for name, kind, size in shown if size is not None)
    colours = {"loading": SIZES[1], "running": AT_PEAK}
    return canvas.finish(Bars(*rows, colours, "memory", grouped=True).draw(canvas))


def at_one_size(comparison: Document, canvas: Canvas) -> Any:
    """Which candidate takes how much, at the one size that was measured?"""
    # Names are the reader's only key: two that look alike after shortening would be one bar.
    named = ((f"{k}. {_name(each['name'])}", each) for k, each in enumerate(comparison["candidates"], start=1))
    sizes = ((name, point.get("peak_rss_bytes")) for name, each in named for point in each.get("inputs") or ())
    rows = plain((name, "peak RSS", size, format_bytes(size)) for name, size in sizes if size is not None)
    return Bars(*rows, {"peak RSS": SIZES[1]}, "peak RSS").draw(canvas)


def waterfall_chart(document: Document, *, width: int = WIDTH) -> Picture:
    """Which step gave the memory back? One bar for each: what is still resident, and what went."""
    canvas, rows, notes = Canvas.of(width), [], []
    shown = [("before the model", document["before"], False), ("loaded and run", document["full"], False)]
    for name, step, is_step in (*shown, *((printable(step["name"]), step, True) for step in document["steps"])):
        freed, rss, end = step["freed_bytes"] if is_step else 0, step["rss_bytes"], 0
        for kind, size in zip(_WATERFALL, (step["file_bytes"], step["anon_bytes"], freed), strict=True):
            if size is not None and size > 0:
                rows.append(bar(name, kind, end, size))
                end += size
        if rss is not None and freed is not None:
            text = _freed(freed) if is_step else format_bytes(rss)
            notes.append({"name": name, "x": rss + max(freed, 0), "text": text})
    bars = Bars(rows, notes, _WATERFALL, "RSS", row=40, legend=True).draw(canvas)
    return canvas.finish(bars, document["model"], ladder_summary(document))


def _freed(size: int) -> str:
    if size < _NOTHING:
        return f"+{format_bytes(-size)}" if size < 0 else "nothing"
    return f"−{format_bytes(size)}"


def ladder_summary(document: Document) -> list[str]:
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


def _name(text: object) -> str:
    return shorten(printable(str(text)), 40)
