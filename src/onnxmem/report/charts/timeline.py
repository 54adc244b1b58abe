"""The timeline: what a process took while it loaded and ran a model, and at most in each phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.layout import CHARACTER, printable, shorten
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT, ROW = 840, 300, 24
_MIB = 2**20
_COLOURS = {"file-backed": theme.KINDS[4], "anonymous": theme.KINDS[0]}
SCALE = "scale_bytes"
"""In a document: how far the scale is to reach at least, so that several can be compared by eye."""
Row = dict[str, Any]
Document = Mapping[str, Any]


def timeline_chart(document: Document, *, title: str = "", width: int = WIDTH) -> altair.VConcatChart:
    """How did memory go over time, and which phase took how much? Above over time, below phase by phase.

    It takes a measurement's document, so that a saved result is drawn as a fresh one is.
    """
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    lines = summary(document)
    head = theme.heading(alt, shorten(printable(title or document["model"]), 100), lines)
    parts = _Timeline(alt, document, width)
    views = [parts.over_time(), parts.by_phase()]
    chart = alt.vconcat(*views, spacing=26, title=head, background=theme.PAPER, description=" ".join(lines))
    styled: altair.VConcatChart = theme.styled(chart)
    return styled


def summary(document: Document) -> list[str]:
    """The measurement in two lines."""

    def size(value: int | None) -> str:
        return "an unknown amount" if value is None else format_bytes(value)

    first = f"mode {document['scenario']['mode']}: loading took {size(document['load_growth_bytes'])}"
    first += f", running {size(document['run_growth_bytes'])} (peak RSS in the phase − RSS before it)"
    second = f"ONNX Runtime {document['environment']['onnxruntime']}"
    if document["latency_seconds"] is not None:
        second = f"{document['latency_seconds'] * 1000:.1f} ms median latency, {second}"
    verdict = document["verdict"]
    if verdict["kind"] != "ok":
        where = f" in phase '{verdict['phase']}'" if verdict["phase"] else ""
        how = f"{verdict['kind']}{where}: {verdict['message']}"
        second = f"the process ended early: {shorten(printable(how), 90)}"
    return [first, second]


class _Timeline:
    """The two views; they share the colours and the phases."""

    def __init__(self, alt: Any, document: Document, width: int) -> None:
        self.alt, self.phases, self.samples, self.width = alt, document["phases"], document["timeline"], width
        ends = [_end(phase) for phase in self.phases] + [sample["seconds"] for sample in self.samples]
        self.length = max(max(ends, default=1.0), 1e-3)
        peaks = [phase["peak_rss_bytes"] for phase in self.phases if phase["peak_rss_bytes"] is not None]
        most = max([*peaks, *(sample["rss_bytes"] for sample in self.samples), _MIB, document.get(SCALE, 0)])
        self.top = most / _MIB * 1.12
        self.colours = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))

    def over_time(self) -> Any:
        alt = self.alt
        x = alt.X(
            "x:Q",
            scale=alt.Scale(domain=[0, self.length], nice=False),
            axis=alt.Axis(title="seconds", grid=False, tickCount=max(self.width // 80, 3)),
        )
        scale = alt.Scale(domain=[0, self.top], nice=False)
        y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title="RSS (MiB)", tickCount=6), stack="zero")
        legend = alt.Legend(title=None, orient="bottom", symbolType="square", direction="horizontal")
        rows: list[Row] = []
        for sample in self.samples:
            at, file, rss = sample["seconds"], sample["file_bytes"], sample["rss_bytes"]
            rows.append({"x": at, "y": file / _MIB, "kind": "file-backed", "order": 0})
            rows.append({"x": at, "y": (rss - file) / _MIB, "kind": "anonymous", "order": 1})
        area = self.chart(rows).mark_area(interpolate="step-after", opacity=1, aria=False)
        colour = alt.Color("kind:N", scale=self.colours, legend=legend)
        flat = alt.Y("y:Q", scale=scale)
        layers = [area.encode(x=x, y=y, color=colour, order="order:Q"), *self.borders(x), *self.peaks(x, flat)]
        return alt.layer(*layers).properties(width=self.width, height=HEIGHT)

    def borders(self, x: Any) -> list[Any]:
        """Where phases begin, and the names of those that are wide enough to be named."""
        alt = self.alt
        begins = [{"x": phase["began_seconds"]} for phase in self.phases[1:]]
        names: list[Row] = []
        for phase in self.phases:
            pixels = phase["seconds"] / self.length * self.width
            if pixels > (len(phase["name"]) + 2) * CHARACTER:
                names.append({"x": phase["began_seconds"] + phase["seconds"] / 2, "text": printable(phase["name"])})
        rule = self.chart(begins).mark_rule(stroke=theme.MUTED, strokeWidth=0.7, strokeDash=[2, 3], aria=False)
        text = self.chart(names).mark_text(baseline="bottom", dy=-5, fontSize=11, color=theme.MUTED, aria=False)
        return [rule.encode(x=x), text.encode(x=x, y=alt.value(0), text="text:N")]

    def peaks(self, x: Any, y: Any) -> list[Any]:
        """Each phase's peak as a line over its time; the highest is named."""
        rows = [
            {
                "x": phase["began_seconds"],
                "x2": max(_end(phase), phase["began_seconds"] + self.length / self.width),
                "y": phase["peak_rss_bytes"] / _MIB,
            }
            for phase in self.phases
            if phase["peak_rss_bytes"] is not None
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
        shown = [phase for phase in self.phases if phase["name"] != "exit" or not phase["completed"]]
        names = [self.name(phase) for phase in shown]
        x = alt.X(
            "x:Q",
            # Room for the numbers beside the longest bar.
            scale=alt.Scale(domain=[0, self.top * 1.1], nice=False),
            axis=alt.Axis(title="RSS at the end of the phase, and its peak (MiB)", tickCount=max(self.width // 100, 3)),
            stack="zero",
        )
        y = alt.Y("phase:N", sort=names, axis=alt.Axis(title=None, ticks=False, domain=False, labelColor=theme.INK))
        bars: list[Row] = []
        marks: list[Row] = []
        for phase, name in zip(shown, names, strict=True):
            for kind, order, size in (("file-backed", 0, phase["file_bytes"]), ("anonymous", 1, phase["anon_bytes"])):
                if size is not None:
                    bars.append({"phase": name, "x": size / _MIB, "kind": kind, "order": order})
            if phase["peak_rss_bytes"] is not None:
                marks.append({"phase": name, "x": phase["peak_rss_bytes"] / _MIB, "text": self.numbers(phase)})
        colour = alt.Color("kind:N", scale=self.colours, legend=None)
        flat = alt.X("x:Q")
        layers = [
            self.chart(bars).mark_bar(height=ROW - 9, aria=False).encode(x=x, y=y, color=colour, order="order:Q"),
            self.chart(marks).mark_tick(thickness=2, size=ROW - 5, color=theme.PEAK, aria=False).encode(x=flat, y=y),
            self.chart(marks)
            .mark_text(align="left", dx=7, fontSize=11, color=theme.INK, aria=False)
            .encode(x=flat, y=y, text="text:N"),
        ]
        return alt.layer(*layers).properties(width=self.width, height=ROW * max(len(shown), 1))

    def name(self, phase: Document) -> str:
        return printable(phase["name"]) + ("" if phase["completed"] else " (not completed)")

    def numbers(self, phase: Document) -> str:
        rss, peak = phase["rss_bytes"], phase["peak_rss_bytes"]
        ends = "?" if rss is None else f"{rss / _MIB:.1f}"
        about = "" if phase["peak_exact"] else "about "
        return f"{ends}, peak {about}{peak / _MIB:.1f}" if peak is not None else ends

    def chart(self, rows: list[Row]) -> Any:
        return self.alt.Chart(self.alt.InlineData(values=rows))


def _end(phase: Document) -> float:
    end: float = phase["began_seconds"] + phase["seconds"]
    return end
