"""What a memory map can do in a page: zoom to what is marked below it, light up a tensor's relatives, and find names.

All of it happens in the reader's browser. The page hears of what was marked and clicked, and may say what a new map
begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.report.charts.canvas import Canvas, Document, Row
from onnxmem.report.charts.theme import LIGHT, text_on
from onnxmem.report.names import CHARACTER, DIGIT, LINE, printable, shorten

WINDOW, CHOSEN = "marked", "chosen"
"""The selections: {"x": [from, to]} in steps, and [{"id": k}] for the k-th row of the placement."""

SHARED = "share a place"
_SHADED = 0.16
_TOLD = ("name", "shape", "size", "lifetime")
# Pixels of a rectangle that can be seen, and along the text that is written into it.
_WIDE = "((min(datum.x2, last) - max(datum.x, first)) / (last - first) * {width})"
_IN_SIGHT = "datum.x2 > first && datum.x < last"
_FOUND = "indexof(lower(datum.name + ' ' + datum.maker), lower(search)) >= 0"
_RELATED = "(datum.id === at || indexof(datum.sources, at) >= 0 || indexof(datum.results, at) >= 0)"


@dataclass(frozen=True)
class Live:
    """A map for a page: what it begins with, and where its reader types what to look for."""

    window: tuple[float, float] | None = None
    chosen: int | None = None
    search: str = ""
    """A CSS selector of the field. What is typed into it takes effect without asking the server."""

    def params(self, alt: Any, first: int, last: int) -> list[Any]:
        """What the map's expressions know: the steps in sight, the chosen tensor, and what is looked for."""
        bound = {"bind": {"element": self.search, "debounce": 60}} if self.search else {}
        return [
            alt.VariableParameter(name="first", expr=f"isValid({WINDOW}.x) ? {WINDOW}.x[0] : {first}"),
            alt.VariableParameter(name="last", expr=f"isValid({WINDOW}.x) ? {WINDOW}.x[1] : {last}"),
            alt.VariableParameter(name="at", expr=f"isValid({CHOSEN}.id) ? {CHOSEN}.id[0] : -1"),
            alt.VariableParameter(name="search", value="", **bound),
        ]

    def marked(self, alt: Any) -> Any:
        """The selection on the strip of live bytes."""
        drawn = {"fill": LIGHT.ink, "fillOpacity": 0.14, "stroke": LIGHT.ink, "strokeOpacity": 0.7}
        return alt.selection_interval(name=WINDOW, encodings=["x"], mark=drawn, **self.begins_in)

    def clicked(self, alt: Any) -> Any:
        """The selection on the rectangles."""
        return alt.selection_point(name=CHOSEN, fields=["id"], toggle=False, **self.begins_at)

    @property
    def begins_in(self) -> Row:
        """The window, as selections have it."""
        return {"value": {"x": list(self.window)}} if self.window else {}

    @property
    def begins_at(self) -> Row:
        """The chosen one, as selections have it."""
        return {} if self.chosen is None else {"value": [{"id": self.chosen}]}

    def domain(self) -> list[Row]:
        """The steps in sight, for a scale."""
        return [{"expr": "first"}, {"expr": "last"}]

    def only_at(self, alt: Any, step: float) -> Any:
        """For what lies at one step, beside the rectangles: shown while that step is in sight."""
        return alt.condition(f"{step} >= first && {step} <= last", alt.value(1), alt.value(0))


def beginning_with(spec: Document, live: Live) -> dict[str, Any]:
    """The specification of a map that is already drawn, for one that begins with something else."""
    begins = {WINDOW: live.begins_in, CHOSEN: live.begins_at}
    params = [
        {"name": param["name"], "select": param["select"], "views": param["views"], **begins[param["name"]]}
        if param["name"] in begins
        else param
        for param in spec["params"]
    ]
    return {**spec, "params": params}


def relatives(about: Sequence[Document]) -> list[dict[str, list[int]]]:
    """For each buffer, which others its producer reads (`sources`), and which its readers write (`results`)."""
    made: dict[str, list[int]] = {}
    read: dict[str, list[int]] = {}
    for index, row in enumerate(about):
        if row.get("producer"):
            made.setdefault(row["producer"], []).append(index)
        for reader in row.get("consumers") or ():
            read.setdefault(reader, []).append(index)
    found = []
    for index, row in enumerate(about):
        sources = dict.fromkeys(read.get(row.get("producer") or "", ()))
        results = dict.fromkeys(k for reader in row.get("consumers") or () for k in made.get(reader, ()))
        found.append({
            "sources": [k for k in sources if k != index],
            "results": [k for k in results if k != index],
        })  # fmt: skip
    return found


def live_rows(rows: Sequence[Row], about: Sequence[Document], colours: Document) -> list[Row]:
    """A map's rectangles with what their browser has to know: exact times, relatives, and what is written on them."""
    related, found = relatives(about), []
    for row in rows:
        index = row.get("index")
        kept = {key: row[key] for key in ("x", "x2", "y", "y2", "group", "shared", *_TOLD) if key in row}
        if index is None:
            found.append({**kept, "id": -2, "maker": "", "sources": [], "results": []})
            continue
        times = {"x": about[index]["lower"], "x2": about[index].get("until", about[index]["upper"])}
        maker = shorten(printable(about[index].get("producer") or ""), 120)
        text = {"ink": text_on(colours[row["group"]]), "high": round(row["pixels"][1], 1)}
        found.append({**kept, **times, **related[index], **text, "id": index, "maker": maker})
    return found


def rectangles(canvas: Canvas, live: Live, place: Document, colour: Any) -> list[Any]:
    """The layers of a live map whose data are `live_rows`: rectangles, outlines of those lit up, and names."""
    alt, wide = canvas.alt, _WIDE.format(width=canvas.width)
    edge = f"{wide} < 3 || datum.high < 3 ? 0 : 0.6"
    dim = f"search ? !({_FOUND}) && datum.id !== at : at >= 0 && !{_RELATED}"
    filled = (
        alt.Chart()
        .mark_rect(clip=True, stroke=LIGHT.paper, strokeWidth={"expr": edge}, cursor="pointer")
        .encode(**place, color=colour, tooltip=canvas.tooltip(*_TOLD), description=alt.Description("name:N"),
                opacity=alt.condition(dim, alt.value(_SHADED), alt.value(1)))
        .add_params(live.clicked(alt))
    )  # fmt: skip
    outlined = []
    for test, dash, thick in (
        ("indexof(datum.results, at) >= 0", [3, 2], 1.5),
        ("indexof(datum.sources, at) >= 0", [1, 0], 1.5),
        ("datum.id === at", [1, 0], 3),
    ):
        drawn = alt.Chart().mark_rect(clip=True, filled=False, stroke=LIGHT.ink, strokeWidth=thick, strokeDash=dash,
                                      aria=False, tooltip=None, cursor="pointer")  # fmt: skip
        outlined.append(drawn.encode(**place).transform_filter(test))
    return [filled, *outlined, _names(alt, place, wide)]


def shared(alt: Any, chart: Any, place: Document) -> Any:
    """Dashed outlines around buffers that lie at one place, one written over the other, and what they mean."""
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", symbolFillColor="transparent",
                        symbolDash=[4, 2])  # fmt: skip
    colour = alt.Scale(domain=[SHARED], range=[LIGHT.ink])
    return (
        chart.transform_calculate(shares=repr(SHARED))
        .mark_rect(clip=True, fillOpacity=0, strokeWidth=1.4, strokeDash=[4, 2], aria=False, tooltip=None)
        .encode(**place, stroke=alt.Stroke("shares:N", scale=colour, legend=legend))
    )


def _names(alt: Any, place: Document, wide: str) -> Any:
    """Names in the rectangles that have room for them: the nearer one looks, the more of them.

    They run upwards where that way is longer, and the end of a name is what stays of it: it tells more than the start.
    """
    both = "datum.title + '  ' + datum.short"
    says = (
        f"datum.across >= {2 * LINE + 4} && datum.room >= 48 ? datum.title + '\\n' + datum.short : "
        f"datum.room >= length({both}) * {CHARACTER} ? {both} : datum.room >= 60 ? datum.title : datum.short"
    )
    return (
        alt.Chart()
        .transform_filter(f"{_IN_SIGHT} && isValid(datum.ink)")
        .transform_calculate(wide=wide, middle="(min(datum.x2, last) + max(datum.x, first)) / 2",
                             title="replace(datum.name, '_output_0', '')", short="split(datum.size, ' (')[0]")
        .transform_calculate(level=f"datum.wide >= min(length(datum.title) * {CHARACTER} + 6, datum.high)")
        .transform_calculate(room="(datum.level ? datum.wide : datum.high) - 6",
                             across="datum.level ? datum.high : datum.wide", up="(datum.y + datum.y2) / 2")
        .transform_filter(f"datum.across >= {LINE} && datum.room >= length(datum.short) * {DIGIT}")
        .transform_calculate(says=says)
        .mark_text(
            clip=True, fontSize=10, lineHeight=12, lineBreak="\n", baseline="middle", dir="rtl", aria=False,
            tooltip=None, cursor="pointer", angle={"expr": "datum.level ? 0 : 270"}, limit={"expr": "datum.room"},
            dy={"expr": "indexof(datum.says, '\\n') < 0 ? 0 : -6"},
        )
        .encode(
            x=alt.X("middle:Q", scale=place["x"]["scale"], axis=place["x"]["axis"]),
            y=alt.Y("up:Q", scale=place["y"]["scale"], axis=place["y"]["axis"]),
            text=alt.Text("says:N"),
            color=alt.Color("ink:N", scale=None),
            opacity=alt.condition(f"search ? {_FOUND} || datum.id === at : at < 0 || {_RELATED}",
                                  alt.value(1), alt.value(0)),
        )
    )  # fmt: skip
