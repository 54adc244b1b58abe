"""The memory map: time across, offset up, one rectangle per buffer, and how far the plan is from the best possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.placement.shares import named
from onnxmem.report.charts import buffers, live_map
from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.layout import Frame, Label, Profile, label, spread
from onnxmem.report.charts.live_map import Live
from onnxmem.report.charts.theme import LIGHT, SIZES, text_on
from onnxmem.report.names import LINE, printable, shorten
from onnxmem.units import format_bytes, format_count

WIDTH, HEIGHT = 840, 420
STRIP = 64
LABELS = 48
_WINDOWS = (64, 48, 32, 24, 16, 12)
"""So many steps around the peak may be enlarged."""

_BESIDE = 400
"""A live map that is narrower has no margin for notes: the page says what its lines are."""

_MIDDLE = {"baseline": "middle", "tooltip": None}


def memory_map(
    plan: Plan,
    *,
    title: str = "",
    placement: Sequence[Document] | None = None,
    width: int = WIDTH,
    limit: str = "capacity",
    live: Live | None = None,
) -> Picture:
    """Where does each buffer lie, and when? `title` names what was planned: "U-Net, depth-first order".

    The buffers that make the peak stand out, the others are shaded by size. `placement`: a document's rows, for shapes,
    producers and readers. Where the peak is too brief for the names of its tensors, it is drawn once more, enlarged.
    `limit` is how the capacity is called. `live`: for a page, where one zooms, clicks and searches instead.
    """
    canvas = Canvas.of(width, plan.problem.capacity, limit)
    parts = _Map(canvas, plan, buffers.details_of(plan, placement), live) if plan.peak else None
    views = parts.views() if parts else [_message(canvas, buffers.nothing_to_draw(plan))]
    chart = canvas.alt.vconcat(*views, spacing=10)
    drawn = canvas.finish(chart, title or "Memory map", summary(plan))
    if parts and live:
        known = live.params(canvas.alt, parts.frame.first, parts.frame.last)
        drawn.params = [*drawn.params, *known]  # type: ignore[attr-defined]
    if parts:
        drawn.datasets = parts.datasets  # type: ignore[attr-defined]
    return drawn


def placement_map(document: Document, **more: Any) -> Picture:
    """The map of a plan's JSON document, so that a saved plan is drawn as a fresh one is."""
    return memory_map(plan_of(document), placement=document["placement"], **more)


def plan_of(document: Document) -> Plan:
    """The plan that a document holds."""
    rows = document["placement"]
    placed = (Buffer(row["name"], row["lower"], row["upper"], row["bytes"]) for row in rows)
    pairs = named([row["name"] for row in rows], [row.get("may_share") or () for row in rows])
    capacity = document.get("capacity_bytes")
    problem = Problem.of(placed, alignment=document["alignment"], capacity=capacity, shares=pairs)
    offsets = np.array([row["offset"] for row in rows], dtype=np.int64)
    bound = document["proven_bound_bytes"]
    return Plan(problem, offsets, document["strategy"], seconds=document["seconds"], proven_bound=bound)


def summary(plan: Plan) -> list[str]:
    """The plan in two lines: what it reached, and out of what."""
    problem = plan.problem
    strategy = f"strategy {printable(plan.strategy)}: " if plan.strategy else ""
    verdict = "equal to the lower bound: optimal" if plan.optimal else buffers.distance(plan)
    steps = int(problem.uppers.max()) - int(problem.lowers.min()) if len(problem) else 0
    reuse = f", {format_bytes(problem.total)} without reuse" if len(problem) else ""
    first = f"{strategy}peak {format_bytes(plan.peak)}, {verdict}"
    if problem.capacity is not None:
        first += f"; {'fits' if plan.fits else 'does not fit'} into the capacity {format_bytes(problem.capacity)}"
    return [first, f"{format_count(len(problem), 'buffer')} over {format_count(steps, 'step')}{reuse}"]


def _message(canvas: Canvas, text: str) -> Any:
    alt = canvas.alt
    written = canvas.text([{}], color=LIGHT.muted, fontSize=15).encode(
        x=alt.XValue(canvas.width / 2), y=alt.YValue(HEIGHT / 2), text=alt.TextValue(text)
    )
    return written.properties(width=canvas.width, height=HEIGHT)


class _Map:
    """The parts of one map; they share the scale of memory and its unit."""

    def __init__(self, canvas: Canvas, plan: Plan, about: Sequence[Document], live: Live | None) -> None:
        self.canvas, self.alt, self.plan, self.about, self.live = canvas, canvas.alt, plan, about, live
        # Named, because Altair copies and checks inline data again with every layer and configuration.
        self.datasets: dict[str, list[Row]] = {}
        self.frame = Frame.around(plan, canvas.width, HEIGHT, top=canvas.reach(plan.peak))
        self.factor, self.unit = unit_of(self.frame.top)
        self.memory = self.alt.Scale(domain=[0, self.frame.top / self.factor], nice=False)

    def views(self) -> list[Any]:
        """The map, below it the strip of live bytes, and below that the peak enlarged if that is needed."""
        grouping = buffers.grouped(self.plan, self.about)
        whole = _View(self, self.frame, grouping)
        enlarged = None if self.live or whole.names_peak else self.enlarged(grouping)
        views = [whole.draw(), self.strip(enlarged.frame if enlarged else None)]
        return [*views, enlarged.draw()] if enlarged else views

    def enlarged(self, grouping: buffers.Grouping) -> _View | None:
        """The steps around the peak, as many as leave room for the most of its names."""
        at, views = self.plan.problem.peak_step[0], []
        for steps in (steps for steps in _WINDOWS if steps < (self.frame.last - self.frame.first) * 0.8):
            first = min(max(at - steps // 2, self.frame.first), self.frame.last - steps)
            views.append(_View(self, self.frame.window(first, first + steps, HEIGHT * 0.8), grouping))
        return max(views, key=lambda view: view.whole_names, default=None)

    def chart(self, values: list[Row]) -> Any:
        """A chart of rows whose heights are in bytes."""
        return self.alt.Chart(self.data(values))

    def data(self, values: list[Row]) -> Any:
        """Rows whose heights are in bytes, by a name."""
        name = f"rows-{len(self.datasets)}"
        self.datasets[name] = [
            row | {key: row[key] / self.factor for key in ("y", "y2") if key in row} for row in values
        ]
        return self.alt.NamedData(name)

    def time(self, frame: Frame, axis: Any, *, zooms: bool = False) -> Any:
        domain = self.live.domain() if self.live and zooms else [frame.first, frame.last]
        return self.alt.X("x:Q", scale=self.alt.Scale(domain=domain, nice=False, zero=False), axis=axis)

    def strip(self, enlarged: Frame | None) -> Any:
        """The sum of live sizes over time, and which part of it is drawn once more below."""
        title = "step (drag over the curve to zoom)" if self.live else "step"
        steps = self.alt.Axis(title=title, tickMinStep=1, format=",d", grid=False, tickCount=self.canvas.width // 80)
        x, profile = self.time(self.frame, steps), Profile.of(self.plan)
        # Not stacked: two levels at one step are a step of the line, not a sum.
        axis = self.alt.Axis(title=f"live ({self.unit})", tickCount=2)
        y = self.alt.Y("y:Q", scale=self.memory, axis=axis, stack=None)
        points = zip(profile.at.tolist(), profile.live.tolist(), strict=True)
        area = self.chart([{"x": at, "y": level} for at, level in points])
        layers = [area.mark_area(interpolate="step-after", color=SIZES[2], opacity=1, aria=False).encode(x=x, y=y)]
        if self.live:
            layers[0] = layers[0].add_params(self.live.marked(self.alt))
        if enlarged:
            muted = LIGHT.muted
            edges = self.canvas.rule([{"x": enlarged.first}, {"x": enlarged.last}], muted, (2, 2))
            layers.append(edges.encode(x=x))
            text = self.canvas.text([{}], color=muted, align="left", dx=8, baseline="middle")
            place = {"x": self.alt.XValue(self.canvas.width), "y": self.alt.YValue(STRIP / 2)}
            layers.append(text.encode(**place, text=self.alt.TextValue("between the dashes:")))
            layers.append(
                text.encode(x=place["x"], y=self.alt.YValue(STRIP / 2 + 14), text=self.alt.TextValue("enlarged below"))
            )
        return self.alt.layer(*layers, width=self.canvas.width, height=STRIP)


class _View:
    """The map within one frame: the whole of it, or the steps around the peak."""

    def __init__(self, whole: _Map, frame: Frame, grouping: buffers.Grouping) -> None:
        self.map, self.alt, self.plan, self.frame, self.grouping = whole, whole.alt, whole.plan, frame, grouping
        self.rows = buffers.rows(self.plan, frame, grouping, whole.about)
        # The peak's tensors first: it is their names that readers look for.
        single = [row for row in self.rows if "pixels" in row]
        single.sort(key=lambda row: row["group"] != buffers.AT_PEAK)
        fitting = ((row, label(row["name"], format_bytes(row["bytes"]), *row["pixels"])) for row in single)
        self.labels: list[tuple[Row, Label]] = [(row, fits) for row, fits in fitting if fits][:LABELS]
        named = [fits for row, fits in self.labels if fits.named and row["group"] == buffers.AT_PEAK]
        high = [row for row in single if row["group"] == buffers.AT_PEAK and row["pixels"][1] >= LINE]
        self.names_peak = len(named) >= len(high)
        self.whole_names = sum(1 + ("…" not in fits.lines[0]) for fits in named)
        is_whole = frame.last - frame.first == whole.frame.last - whole.frame.first
        title = None if whole.live else f"step, around the peak ({frame.first:,} to {frame.last:,})"
        steps = self.alt.Axis(title=title, tickMinStep=1, format=",d", grid=False, tickCount=whole.canvas.width // 80)
        self.x = whole.time(frame, None if is_whole and not whole.live else steps, zooms=True)
        axis = self.alt.Axis(title=f"offset in the arena ({whole.unit})", tickCount=8)
        self.y = self.alt.Y("y:Q", scale=whole.memory, axis=axis)
        self.place = {"x": self.x, "x2": self.alt.X2("x2"), "y": self.y, "y2": self.alt.Y2("y2")}

    def draw(self) -> Any:
        if live := self.map.live:
            drawn = live_map.rectangles(self.map.canvas, live, self.place, self.colour())
            if any(row.get("shared") for row in self.rows):
                chart = self.alt.Chart().transform_filter("datum.shared")
                drawn.append(live_map.shared(self.alt, chart, self.place))
            rows = live_map.live_rows(self.rows, self.map.about, self.grouping.colours)
            layers = [*self.peak_step(), self.alt.layer(*drawn, data=self.map.data(rows)), *self.limits()]
        else:
            layers = [*self.peak_step(), self.rectangles(), *self.shared(), *self.limits(), *self.names()]
        return self.alt.layer(*layers, width=self.frame.width, height=self.frame.height)

    def colour(self) -> Any:
        """Of the rectangles, by group, with the legend."""
        alt, of = self.alt, self.grouping.colours
        colours = alt.Scale(domain=list(of), range=list(of.values()))
        legend = alt.Legend(title="buffers", orient="bottom", titleOrient="left", symbolType="square",
                            columns=max(self.map.canvas.width // 150, 1))  # fmt: skip
        return alt.Color("group:N", scale=colours, legend=legend)

    def rectangles(self) -> Any:
        alt, unseen = self.alt, ("pixels", "bytes", "index", "shared")
        tooltip = [key for key in buffers.TOLD if any(key in row for row in self.rows)]
        return (
            self.map.chart([{k: v for k, v in row.items() if k not in unseen} for row in self.rows])
            .mark_rect(stroke=LIGHT.paper)
            .encode(
                **self.place,
                color=self.colour(),
                strokeWidth=alt.StrokeWidth("edge:Q", scale=None),
                # What SVG shows as a title, and the page's script reads.
                description=self.alt.Description("hover:N"),
                tooltip=self.map.canvas.tooltip(*tooltip),
            )
        )

    def shared(self) -> list[Any]:
        """Outlines of the buffers that lie at one place, one written over the other."""
        rows = [{key: row[key] for key in ("x", "x2", "y", "y2")} for row in self.rows if row.get("shared")]
        return [live_map.shared(self.alt, self.map.chart(rows), self.place)] if rows else []

    def names(self) -> list[Any]:
        """The largest buffers' names, as many as fit."""
        written: dict[bool, list[Row]] = {False: [], True: []}
        for row, fits in self.labels:
            # Vega centres the first line; the block should be centred.
            shift = 6 * (len(fits.lines) - 1)
            x = (row["x"] + row["x2"]) / 2 - (shift / self.frame.step if fits.upright else 0)
            y = (row["y"] + row["y2"]) / 2
            if not fits.upright:
                y = self.beside_bound(y, row["pixels"][1], shift) + shift / self.frame.byte
            colour = text_on(self.grouping.colours[row["group"]])
            written[fits.upright].append({"x": x, "y": y, "text": "\n".join(fits.lines), "colour": colour})
        return [
            self.map.chart(labels)
            .mark_text(fontSize=10, angle=270 if upright else 0, lineBreak="\n", lineHeight=12, aria=False, **_MIDDLE)
            .encode(x=self.x, y=self.y, text=self.alt.Text("text:N"), color=self.alt.Color("colour:N", scale=None))
            for upright, labels in written.items()
        ]

    def beside_bound(self, y: float, height: float, shift: float) -> float:
        """The middle of a label, moved below the lower bound's line if that would strike it out and there is room."""
        above, half = (y - self.plan.proven_bound) * self.frame.byte, shift + 9
        room = height / 2 - half + above
        return self.plan.proven_bound - half / self.frame.byte if abs(above) < half and room >= half else y

    def limits(self) -> list[Any]:
        """Peak, lower bound and capacity as lines, named in the right margin; equal ones are one line."""
        plan, canvas = self.plan, self.map.canvas
        values: dict[int, list[str]] = {plan.peak: ["peak"]}
        if canvas.limit is not None and canvas.limit <= self.frame.top:
            values.setdefault(canvas.limit, []).append(canvas.called)
        values.setdefault(plan.proven_bound, []).append("lower bound")
        heights = spread([value * self.frame.byte for value in values], 30, self.frame.height)
        rules, rows = [], []
        for (value, names), height in zip(values.items(), heights, strict=True):
            colour = LIGHT.peak if "peak" in names else LIGHT.ink
            dash = (1, 0) if "peak" in names else (2, 3) if canvas.called in names else (6, 4)
            rules.append(canvas.rule([{"y": value / self.map.factor}], colour, dash).encode(y=self.y))
            verdict = ": optimal" if plan.optimal and "peak" in names else ""
            text = f"{' = '.join(names)}\n{format_bytes(value)}{verdict}"
            rows.append({"y": (height + 6.5) / self.frame.byte, "text": text, "colour": colour})
        if self.map.live and canvas.width < _BESIDE:
            return rules
        beside = self.map.chart(rows).mark_text(align="left", lineBreak="\n", lineHeight=13, dx=8, fontSize=11,
                                                aria=False, **_MIDDLE)  # fmt: skip
        colours = self.alt.Color("colour:N", scale=None)
        return [
            *rules,
            beside.encode(x=self.alt.XValue(self.frame.width), y=self.y, text=self.alt.Text("text:N"), color=colours),
        ]

    def peak_step(self) -> list[Any]:
        """The step with the most live bytes; the line is drawn first, so that it shows only where nothing lies."""
        at, live = self.plan.problem.peak_step
        pixels, width, peak = (at + 0.5 - self.frame.first) * self.frame.step, self.frame.width, LIGHT.peak
        align = "left" if pixels < width / 4 else "right" if pixels > width * 3 / 4 else "center"
        # Whatever begins at a step is made by the node that runs there.
        node = next((row["producer"] for row in self.map.about if row["lower"] == at and row.get("producer")), "")
        step = f"{at:,} ({shorten(printable(node), 40)})" if node else f"{at:,}"
        canvas, middle, top = self.map.canvas, [{"x": at + 0.5}], self.alt.YValue(0)
        mark = canvas.rows(middle).mark_point(shape="triangle-down", filled=True, size=45, color=peak, yOffset=-4,
                                              opacity=1, aria=False)  # fmt: skip
        text = canvas.text(middle, align=align, baseline="bottom", dy=-10, color=peak)
        says = self.alt.TextValue(f"peak at step {step}: {format_bytes(live)} live")
        rule = canvas.rule(middle, peak, (3, 3), 1).encode(x=self.x)
        layers = [rule, mark.encode(x=self.x, y=top), text.encode(x=self.x, y=top, text=says)]
        if self.map.live:
            layers = [each.encode(opacity=self.map.live.only_at(self.alt, at + 0.5)) for each in layers]
        return layers
