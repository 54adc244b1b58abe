"""The memory map: time across, offset up, one rectangle per buffer, and how far the plan is from the best possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxmem.errors import UsageError, missing_extra
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.report.charts import buffers, theme
from onnxmem.report.charts.layout import Frame, Profile, label, printable, shorten, spread
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT = 840, 420
STRIP = 64
LABELS = 48

_MIDDLE = {"baseline": "middle", "aria": False, "tooltip": None}


def memory_map(
    plan: Plan,
    *,
    title: str = "",
    kinds: Sequence[str] | None = None,
    step_names: Sequence[str] | None = None,
    dims: Sequence[str] | None = None,
) -> altair.VConcatChart:
    """Where does each buffer lie, and when? `title` names what was planned: "U-Net, depth-first order".

    `kinds` (one per buffer) colours by kind; otherwise the buffers that make the peak stand out and the others are
    shaded by size. `step_names` (one per step) and `dims` (one per buffer) enrich labels and tooltips.
    """
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    if dims is not None and len(dims) != len(plan.problem):
        raise UsageError(f"{len(dims)} dims were given for {len(plan.problem)} buffers")

    head = theme.heading(alt, shorten(printable(title), 100) or "Memory map", summary(plan))
    parts = _Map(alt, plan) if plan.peak else None
    views = parts.views(kinds, step_names, dims) if parts else [_message(alt, plan.problem)]
    chart = alt.vconcat(*views, spacing=10, title=head, background=theme.PAPER, description=" ".join(summary(plan)))
    styled: altair.VConcatChart = theme.styled(chart)
    if parts:
        styled.datasets = parts.datasets
    return styled


def placement_map(document: Mapping[str, Any]) -> altair.VConcatChart:
    """The map of a plan's JSON document, so that a saved plan is drawn as a fresh one is."""
    return memory_map(plan_of(document))


def plan_of(document: Mapping[str, Any]) -> Plan:
    """The plan that a document holds."""
    rows = document["placement"]
    buffers = (Buffer(row["name"], row["lower"], row["upper"], row["bytes"]) for row in rows)
    problem = Problem.of(buffers, alignment=document["alignment"], capacity=document.get("capacity_bytes"))
    offsets = np.array([row["offset"] for row in rows], dtype=np.int64)
    bound = document["proven_bound_bytes"]
    return Plan(problem, offsets, document["strategy"], seconds=document["seconds"], proven_bound=bound)


def summary(plan: Plan) -> list[str]:
    """The plan in two lines: what it reached, and out of what."""
    problem = plan.problem
    strategy = f"strategy {printable(plan.strategy)}: " if plan.strategy else ""
    bound = format_bytes(plan.proven_bound)
    # A gap that rounds to nothing is still not optimal.
    above = f"{plan.gap:.1%}" if plan.gap >= 0.001 else f"{plan.peak - plan.proven_bound:,} bytes"
    verdict = "equal to the lower bound: optimal" if plan.optimal else f"{above} above the lower bound {bound}"
    steps = int(problem.uppers.max()) - int(problem.lowers.min()) if len(problem) else 0
    reuse = f", {format_bytes(problem.total)} without reuse" if len(problem) else ""
    first = f"{strategy}peak {format_bytes(plan.peak)}, {verdict}"
    if problem.capacity is not None:
        first += f"; {'fits' if plan.fits else 'does not fit'} into the capacity {format_bytes(problem.capacity)}"
    return [first, f"{_count(len(problem), 'buffer')} over {_count(steps, 'step')}{reuse}"]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _message(alt: Any, problem: Problem) -> Any:
    text = "all buffers are empty: no memory is needed" if len(problem) else "no buffers: there is nothing to place"
    place = {"x": alt.value(WIDTH / 2), "y": alt.value(HEIGHT / 2), "text": alt.value(text)}
    chart = alt.Chart(alt.InlineData(values=[{}]), width=WIDTH, height=HEIGHT)
    return chart.mark_text(fontSize=15, color=theme.MUTED).encode(**place)


class _Map:
    """The parts of one map; they share the frame, the unit of its axis and the two scales."""

    def __init__(self, alt: Any, plan: Plan) -> None:
        self.alt, self.plan = alt, plan
        self.frame = Frame.around(plan, WIDTH, HEIGHT)
        self.profile = Profile.of(plan)
        # Named, because Altair copies and checks inline data again with every layer and configuration.
        self.datasets: dict[str, list[buffers.Row]] = {}
        units = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
        self.factor, unit = next(pair for pair in units if self.frame.top >= pair[0])
        time = alt.Scale(domain=[self.frame.first, self.frame.last], nice=False, zero=False)
        memory = alt.Scale(domain=[0, self.frame.top / self.factor], nice=False)
        self.x = alt.X("x:Q", scale=time, axis=None)
        self.y = alt.Y("y:Q", title=f"offset in the arena ({unit})", scale=memory, axis=alt.Axis(tickCount=8))
        steps = alt.Axis(title="step", tickMinStep=1, format=",d", grid=False, tickCount=10)
        self.strip_x = alt.X("x:Q", scale=time, axis=steps)
        # Not stacked: two levels at one step are a step of the line, not a sum.
        self.strip_y = alt.Y("y:Q", title=unit, scale=memory, axis=alt.Axis(tickCount=2), stack=None)

    def views(
        self, kinds: Sequence[str] | None, step_names: Sequence[str] | None, dims: Sequence[str] | None
    ) -> list[Any]:
        """The map, and below it the strip of live bytes."""
        grouping = buffers.by_size(self.plan) if kinds is None else buffers.by_kind(self.plan, kinds)
        rows = buffers.rows(self.plan, self.frame, grouping, kinds=kinds, step_names=step_names, dims=dims)
        upper = [*self.peak_step(step_names), self.rectangles(rows, grouping), *self.limits()]
        upper += self.names(rows, grouping)
        return [
            self.alt.layer(*upper).properties(width=WIDTH, height=HEIGHT),
            self.alt.layer(*self.live_bytes()).properties(width=WIDTH, height=STRIP),
        ]

    def chart(self, values: list[buffers.Row]) -> Any:
        """A chart of rows whose heights are in bytes."""
        name = f"rows-{len(self.datasets)}"
        self.datasets[name] = [
            row | {key: row[key] / self.factor for key in ("y", "y2") if key in row} for row in values
        ]
        return self.alt.Chart(self.alt.NamedData(name))

    def rectangles(self, rows: list[buffers.Row], grouping: buffers.Grouping) -> Any:
        alt = self.alt
        colours = alt.Scale(domain=list(grouping.colours), range=list(grouping.colours.values()))
        legend = alt.Legend(title=grouping.title, orient="bottom", titleOrient="left", symbolType="square")
        tooltip = [key for key in ("name", "kind", "dims", "size", "lifetime", "offset") if key in rows[-1]]
        return (
            self.chart([{key: value for key, value in row.items() if key not in ("pixels", "bytes")} for row in rows])
            # Without aria: a label per rectangle would triple the file, and the description says what matters.
            .mark_rect(stroke=theme.PAPER, aria=False)
            .encode(
                x=self.x,
                x2="x2",
                y=self.y,
                y2="y2",
                color=alt.Color("group:N", scale=colours, legend=legend),
                strokeWidth=alt.StrokeWidth("edge:Q", scale=None),
                tooltip=[alt.Tooltip(f"{key}:N") for key in tooltip],
            )
        )

    def names(self, rows: list[buffers.Row], grouping: buffers.Grouping) -> list[Any]:
        """The largest buffers' names, as many as fit."""
        written: dict[bool, list[buffers.Row]] = {False: [], True: []}
        for row in (row for row in rows if "pixels" in row):
            found = label(row["name"], format_bytes(row["bytes"]), *row["pixels"])
            if found is None:
                continue
            # Vega centres the first line; the block should be centred.
            shift = 6 * (len(found.lines) - 1)
            x = (row["x"] + row["x2"]) / 2 - (shift / self.frame.step if found.upright else 0)
            y = (row["y"] + row["y2"]) / 2
            if not found.upright:
                y = self.beside_bound(y, row["pixels"][1], shift) + shift / self.frame.byte
            colour = theme.text_on(grouping.colours[row["group"]])
            written[found.upright].append({"x": x, "y": y, "text": "\n".join(found.lines), "colour": colour})
            if sum(map(len, written.values())) == LABELS:
                break
        return [
            self.chart(labels)
            .mark_text(fontSize=10, angle=270 if upright else 0, lineBreak="\n", lineHeight=12, **_MIDDLE)
            .encode(x=self.x, y=self.y, text="text:N", color=self.alt.Color("colour:N", scale=None))
            for upright, labels in written.items()
        ]

    def beside_bound(self, y: float, height: float, shift: float) -> float:
        """The middle of a label, moved below the lower bound's line if that would strike it out and there is room."""
        above, half = (y - self.plan.proven_bound) * self.frame.byte, shift + 9
        room = height / 2 - half + above
        return self.plan.proven_bound - half / self.frame.byte if abs(above) < half and room >= half else y

    def limits(self) -> list[Any]:
        """Peak, lower bound and capacity as lines, named in the right margin; equal ones are one line."""
        plan, capacity = self.plan, self.plan.problem.capacity
        values: dict[int, list[str]] = {plan.peak: ["peak"]}
        if capacity is not None and capacity <= self.frame.top:
            values.setdefault(capacity, []).append("capacity")
        values.setdefault(plan.proven_bound, []).append("lower bound")
        heights = spread([value * self.frame.byte for value in values], 30, HEIGHT)
        rules, rows = [], []
        for (value, names), height in zip(values.items(), heights, strict=True):
            colour = theme.PEAK if "peak" in names else theme.INK
            dash = [1, 0] if "peak" in names else [2, 3] if "capacity" in names else [6, 4]
            rule = self.chart([{"y": value}]).mark_rule(stroke=colour, strokeWidth=1.5, strokeDash=dash, aria=False)
            rules.append(rule.encode(y=self.y))
            verdict = ": optimal" if plan.optimal and "peak" in names else ""
            text = f"{' = '.join(names)}\n{format_bytes(value)}{verdict}"
            rows.append({"y": (height + 6.5) / self.frame.byte, "text": text, "colour": colour})
        beside = self.chart(rows).mark_text(align="left", lineBreak="\n", lineHeight=13, dx=8, fontSize=11, **_MIDDLE)
        colours = self.alt.Color("colour:N", scale=None)
        return [*rules, beside.encode(x=self.alt.value(WIDTH), y=self.y, text="text:N", color=colours)]

    def peak_step(self, step_names: Sequence[str] | None) -> list[Any]:
        """The step with the most live bytes; the line is drawn first, so that it shows only where nothing lies."""
        at, live = self.plan.problem.peak_step
        pixels = (at + 0.5 - self.frame.first) * self.frame.step
        align = "left" if pixels < WIDTH / 4 else "right" if pixels > WIDTH * 3 / 4 else "center"
        text = f"peak at step {buffers.step(at, step_names)}: {format_bytes(live)} live"
        middle, top = self.chart([{"x": at + 0.5}]), self.alt.value(0)
        return [
            middle.mark_rule(stroke=theme.PEAK, strokeWidth=1, strokeDash=[3, 3], aria=False).encode(x=self.x),
            middle.mark_point(shape="triangle-down", filled=True, size=45, color=theme.PEAK, yOffset=-4, opacity=1,
                              aria=False).encode(x=self.x, y=top),
            middle.mark_text(align=align, baseline="bottom", dy=-10, fontSize=11, color=theme.PEAK, aria=False)
            .encode(x=self.x, y=top, text=self.alt.value(text)),
        ]  # fmt: skip

    def live_bytes(self) -> list[Any]:
        """The sum of live sizes under the top of what is in use: between the two are the holes."""
        layers = []
        beside = {"holes": (theme.TOGETHER, STRIP * 0.3), "live bytes": (theme.SIZES[2], STRIP * 0.7)}
        levels = {"holes": self.profile.top, "live bytes": self.profile.live}
        for name, (colour, height) in beside.items():
            points = zip(self.profile.at.tolist(), levels[name].tolist(), strict=True)
            area = self.chart([{"x": x, "y": y} for x, y in points])
            area = area.mark_area(interpolate="step-after", color=colour, opacity=1, aria=False)
            layers.append(area.encode(x=self.strip_x, y=self.strip_y))
            at = {"x": self.alt.value(WIDTH + 13), "y": self.alt.value(height)}
            key = self.chart([{}])
            layers.append(key.mark_square(size=90, color=colour, opacity=1, aria=False).encode(**at))
            text = key.mark_text(align="left", dx=10, fontSize=11, color=theme.INK, **_MIDDLE)
            layers.append(text.encode(**at, text=self.alt.value(name)))
        return layers
