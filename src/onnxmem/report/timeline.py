"""The timeline: what a process took while it loaded and ran a model, and at most in each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.measure.measurement import Measurement, thinned
from onnxmem.measure.trial import Phase
from onnxmem.report import theme
from onnxmem.report.layout import CHARACTER, printable, shorten
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT, ROW = 840, 300, 24
_MIB = 2**20
_COLOURS = {"file-backed": theme.KINDS[4], "anonymous": theme.KINDS[0]}
Row = dict[str, Any]


def timeline_chart(measurement: Measurement, *, title: str = "") -> altair.VConcatChart:
    """How did memory go over time, and which phase took how much? Above over time, below phase by phase."""
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    lines = summary(measurement)
    head = alt.TitleParams(
        shorten(printable(title or measurement.scenario.model.name), 100),
        subtitle=lines,
        anchor="start",
        fontSize=16,
        subtitleFontSize=12,
        subtitlePadding=5,
        offset=14,
    )
    parts = _Timeline(alt, measurement)
    views = [parts.over_time(), parts.by_phase()]
    chart = alt.vconcat(*views, spacing=26, title=head, background=theme.PAPER, description=" ".join(lines))
    styled: altair.VConcatChart = theme.styled(chart)
    return styled


def summary(measurement: Measurement) -> list[str]:
    """The measurement in two lines."""

    def size(value: int | Unknown) -> str:
        return "an unknown amount" if isinstance(value, Unknown) else format_bytes(value)

    first = f"mode {measurement.scenario.mode}: loading took {size(measurement.load_growth)}"
    first += f", running {size(measurement.run_growth)} (peak RSS in the phase − RSS before it)"
    second = f"ONNX Runtime {measurement.environment.onnxruntime}"
    if measurement.latency is not None:
        second = f"{measurement.latency * 1000:.1f} ms median latency, {second}"
    if not measurement.verdict.ok:
        second = f"the process ended early: {shorten(printable(str(measurement.verdict)), 90)}"
    return [first, second]


class _Timeline:
    """The two views; they share the colours and the phases."""

    def __init__(self, alt: Any, measurement: Measurement) -> None:
        self.alt, self.phases = alt, measurement.phases
        self.samples = thinned(measurement.trial.timeline, 2 * WIDTH)
        self.start = self.phases[0].began if self.phases else 0.0
        if self.samples:
            self.start = min(self.start or self.samples[0].at, self.samples[0].at)
        ends = [phase.ended for phase in self.phases] + [sample.at for sample in self.samples]
        self.length = max(max(ends, default=1.0) - self.start, 1e-3)
        peaks = [peak for phase in self.phases if isinstance(peak := phase.peak.rss, int)]
        self.top = max([*peaks, *(sample.rss for sample in self.samples), _MIB]) / _MIB * 1.12
        self.colours = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))

    def over_time(self) -> Any:
        alt = self.alt
        x = alt.X(
            "x:Q",
            scale=alt.Scale(domain=[0, self.length], nice=False),
            axis=alt.Axis(title="seconds", grid=False, tickCount=10),
        )
        scale = alt.Scale(domain=[0, self.top], nice=False)
        y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title="RSS (MiB)", tickCount=6), stack="zero")
        legend = alt.Legend(title=None, orient="bottom", symbolType="square", direction="horizontal")
        rows: list[Row] = []
        for sample in self.samples:
            at = sample.at - self.start
            rows.append({"x": at, "y": sample.file / _MIB, "kind": "file-backed", "order": 0})
            rows.append({"x": at, "y": sample.anon / _MIB, "kind": "anonymous", "order": 1})
        area = self.chart(rows).mark_area(interpolate="step-after", opacity=1, aria=False)
        colour = alt.Color("kind:N", scale=self.colours, legend=legend)
        flat = alt.Y("y:Q", scale=scale)
        layers = [area.encode(x=x, y=y, color=colour, order="order:Q"), *self.borders(x), *self.peaks(x, flat)]
        return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)

    def borders(self, x: Any) -> list[Any]:
        """Where phases begin, and the names of those that are wide enough to be named."""
        alt = self.alt
        begins = [{"x": phase.began - self.start} for phase in self.phases[1:]]
        names: list[Row] = []
        for phase in self.phases:
            pixels = (phase.ended - phase.began) / self.length * WIDTH
            if pixels > (len(phase.name) + 2) * CHARACTER:
                names.append({"x": (phase.began + phase.ended) / 2 - self.start, "text": phase.name})
        rule = self.chart(begins).mark_rule(stroke=theme.MUTED, strokeWidth=0.7, strokeDash=[2, 3], aria=False)
        text = self.chart(names).mark_text(baseline="bottom", dy=-5, fontSize=11, color=theme.MUTED, aria=False)
        return [rule.encode(x=x), text.encode(x=x, y=alt.value(0), text="text:N")]

    def peaks(self, x: Any, y: Any) -> list[Any]:
        """Each phase's peak as a line over its time; the highest is named."""
        rows = [
            {
                "x": phase.began - self.start,
                "x2": max(phase.ended - self.start, phase.began - self.start + self.length / WIDTH),
                "y": phase.peak.rss / _MIB,
            }
            for phase in self.phases
            if isinstance(phase.peak.rss, int)
        ]
        if not rows:
            return []
        line = self.chart(rows).mark_rule(stroke=theme.PEAK, strokeWidth=2, aria=False)
        highest = max(rows, key=lambda row: row["y"])
        middle = (highest["x"] + highest["x2"]) / 2
        left = middle < self.length * 0.8
        named = {"x": highest["x"] if left else highest["x2"], "y": highest["y"]}
        text = f"peak {format_bytes(int(highest['y'] * _MIB))}"
        label = self.chart([named]).mark_text(
            align="left" if left else "right",
            baseline="bottom",
            dx=4 if left else -4,
            dy=-4,
            fontSize=11,
            color=theme.PEAK,
            aria=False,
        )
        return [line.encode(x=x, x2="x2", y=y), label.encode(x=x, y=y, text=self.alt.value(text))]

    def by_phase(self) -> Any:
        """A bar for what is resident at the end of each phase, a mark for the most in it, and the numbers."""
        alt = self.alt
        shown = [phase for phase in self.phases if phase.name != "exit" or not phase.completed]
        names = [self.name(phase) for phase in shown]
        x = alt.X(
            "x:Q",
            # Room for the numbers beside the longest bar.
            scale=alt.Scale(domain=[0, self.top * 1.1], nice=False),
            axis=alt.Axis(title="RSS at the end of the phase, and its peak (MiB)", tickCount=8),
            stack="zero",
        )
        y = alt.Y("phase:N", sort=names, axis=alt.Axis(title=None, ticks=False, domain=False, labelColor=theme.INK))
        bars: list[Row] = []
        marks: list[Row] = []
        for phase, name in zip(shown, names, strict=True):
            reading = phase.reading
            for kind, order, size in (("file-backed", 0, reading.file), ("anonymous", 1, reading.anon)):
                if isinstance(size, int):
                    bars.append({"phase": name, "x": size / _MIB, "kind": kind, "order": order})
            if isinstance(phase.peak.rss, int):
                marks.append({"phase": name, "x": phase.peak.rss / _MIB, "text": self.numbers(phase)})
        colour = alt.Color("kind:N", scale=self.colours, legend=None)
        flat = alt.X("x:Q")
        layers = [
            self.chart(bars).mark_bar(height=ROW - 9, aria=False).encode(x=x, y=y, color=colour, order="order:Q"),
            self.chart(marks).mark_tick(thickness=2, size=ROW - 5, color=theme.PEAK, aria=False).encode(x=flat, y=y),
            self.chart(marks)
            .mark_text(align="left", dx=7, fontSize=11, color=theme.INK, aria=False)
            .encode(x=flat, y=y, text="text:N"),
        ]
        return alt.layer(*layers).properties(width=WIDTH, height=ROW * max(len(shown), 1))

    def name(self, phase: Phase) -> str:
        return phase.name if phase.completed else f"{phase.name} (not completed)"

    def numbers(self, phase: Phase) -> str:
        rss, peak = phase.reading.rss, phase.peak.rss
        ends = f"{rss / _MIB:.1f}" if isinstance(rss, int) else "?"
        about = "" if phase.peak.exact else "about "
        return f"{ends}, peak {about}{peak / _MIB:.1f}" if isinstance(peak, int) else ends

    def chart(self, rows: list[Row]) -> Any:
        return self.alt.Chart(self.alt.InlineData(values=rows))
