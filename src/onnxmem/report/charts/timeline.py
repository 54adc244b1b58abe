"""The timeline: what a process took while it loaded and ran a model, and at most in each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxmem.report.charts.bars import RESIDENT, Bars, bar
from onnxmem.report.charts.canvas import Canvas, Document, Picture, Row, unit_of
from onnxmem.report.charts.theme import LIGHT, text_on
from onnxmem.report.names import CHARACTER, LINE, printable, shorten
from onnxmem.units import format_bytes

WIDTH, HEIGHT, ROW = 840, 300, 24
SCALE, LENGTH = "scale_bytes", "scale_seconds"
"""In a document: how far the scales are to reach at least, so that several can be compared by eye."""


def timeline_chart(document: Document, *, title: str = "", width: int = WIDTH) -> Picture:
    """How did memory go over time, and which phase took how much? Above over time, below phase by phase.

    It takes a measurement's document, so that a saved result is drawn as a fresh one is.
    """
    limit = (document.get("memory_limit") or {}).get("bytes")
    canvas = Canvas.of(width, limit, "memory limit")
    parts = _Timeline(canvas, document)
    chart = canvas.alt.vconcat(parts.over_time(), parts.by_phase(), spacing=30)
    return canvas.finish(chart, title or document["model"], summary(document))


def live_chart(document: Document, *, title: str = "", width: int = WIDTH) -> Picture:
    """How does memory go just now? The upper half of a timeline: `phases` is what was done when."""
    canvas = Canvas.of(width)
    return canvas.finish(_Timeline(canvas, document).over_time(), title)


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


def aligned(documents: Sequence[Document]) -> list[Document]:
    """The same measurements with each phase beginning at the same place, and lasting as long as the longest of them.

    What is compared by eye must lie side by side: a load that is faster would otherwise shift all that follows.
    """
    names = list(dict.fromkeys(phase["name"] for document in documents for phase in document["phases"]))
    begins, at = {}, 0.0
    for name in names:
        begins[name] = at
        spans = [p["seconds"] for document in documents for p in document["phases"] if p["name"] == name]
        at += max(spans)
    return [{**document, **_moved(document, begins), LENGTH: at} for document in documents]


def _moved(document: Document, begins: Mapping[str, float]) -> dict[str, list[Row]]:
    phases = [{**phase, "began_seconds": begins[phase["name"]]} for phase in document["phases"]]
    samples: list[Row] = []
    for sample in document["timeline"]:
        inside = [p for p in document["phases"] if p["began_seconds"] <= sample["seconds"]]
        if inside:
            phase = inside[-1]
            within = min(sample["seconds"] - phase["began_seconds"], phase["seconds"])
            samples.append({**sample, "seconds": begins[phase["name"]] + within})
    return {"phases": phases, "timeline": samples}


class _Timeline:
    """The two views; they share the unit and the phases."""

    def __init__(self, canvas: Canvas, document: Document) -> None:
        self.canvas, self.alt, self.width = canvas, canvas.alt, canvas.width
        self.phases, self.samples = document["phases"], document["timeline"]
        ends = [_end(phase) for phase in self.phases] + [sample["seconds"] for sample in self.samples]
        self.length = max(max(ends, default=1.0), document.get(LENGTH, 0.0), 1e-3)
        peaks = [phase["peak_rss_bytes"] for phase in self.phases if phase["peak_rss_bytes"] is not None]
        most = max([*peaks, *(sample["rss_bytes"] for sample in self.samples), 2**20, document.get(SCALE, 0)])
        self.most, self.top = most, canvas.reach(most) * 1.12
        self.factor, self.unit = unit_of(most)
        self.x = canvas.scale("x:Q", self.length, title="seconds", grid=False, tickCount=max(self.width // 80, 3))

    def over_time(self) -> Any:
        y = self.canvas.scale("y:Q", self.top / self.factor, title=f"RSS ({self.unit})", tickCount=6)
        rows: list[Row] = []
        for sample in self.samples:
            at, file, rss = sample["seconds"], sample["file_bytes"] / self.factor, sample["rss_bytes"] / self.factor
            rows.append({"x": at, "y": 0, "y2": file, "kind": "file-backed"})
            rows.append({"x": at, "y": file, "y2": rss, "kind": "anonymous"})
        area = self.canvas.rows(rows).mark_area(interpolate="step-after", opacity=1, aria=False)
        colour = self.canvas.colour("kind", RESIDENT, symbolType="square")
        layers = [area.encode(x=self.x, y=y, y2=self.alt.Y2("y2"), color=colour), *self.kinds(rows, y), *self.borders()]
        layers += [*self.peaks(y), *self.canvas.limit_line(self.top, HEIGHT, across=False)]
        return self.alt.layer(*layers, width=self.width, height=HEIGHT)

    def kinds(self, rows: list[Row], y: Any) -> list[Any]:
        """The name of each area, written into it in the longest phase, if it is high and wide enough there."""
        longest = max(self.phases, key=lambda phase: phase["seconds"], default=None)
        if longest is None or longest["seconds"] / self.length * self.width < 12 * CHARACTER:
            return []
        middle, layers = longest["began_seconds"] + longest["seconds"] / 2, []
        for kind, colour in RESIDENT.items():
            of_kind = [row for row in rows if row["kind"] == kind]
            nearest = min(of_kind, key=lambda row: abs(row["x"] - middle), default=None)
            if nearest and (nearest["y2"] - nearest["y"]) * self.factor / self.top * HEIGHT > LINE + 6:
                at = {"x": middle, "y": (nearest["y"] + nearest["y2"]) / 2, "text": kind}
                text = self.canvas.text([at], color=text_on(colour), baseline="middle")
                layers.append(text.encode(x=self.x, y=y, text=self.alt.Text("text:N")))
        return layers

    def borders(self) -> list[Any]:
        """Where phases begin, and the names of those that are wide enough to be named."""
        begins = [{"x": phase["began_seconds"]} for phase in self.phases[1:]]
        names: list[Row] = []
        for phase in self.phases:
            pixels = phase["seconds"] / self.length * self.width
            if pixels > (len(phase["name"]) + 2) * CHARACTER:
                names.append({"x": phase["began_seconds"] + phase["seconds"] / 2, "text": printable(phase["name"])})
        muted = LIGHT.muted
        rule = self.canvas.rule(begins, muted, (2, 3), 0.7)
        text = self.canvas.text(names, color=muted, baseline="bottom", dy=-5)
        return [rule.encode(x=self.x), text.encode(x=self.x, y=self.alt.YValue(0), text=self.alt.Text("text:N"))]

    def peaks(self, y: Any) -> list[Any]:
        """Each phase's peak as a line over its time; the highest is named."""
        pixel = self.length / self.width
        spans = [(phase["began_seconds"], _end(phase), phase["peak_rss_bytes"]) for phase in self.phases]
        rows = [{"x": x, "x2": max(end, x + pixel), "y": y / self.factor} for x, end, y in spans if y is not None]
        if not rows:
            return []
        line = self.canvas.rule(rows, LIGHT.peak, width=2)
        highest = max(rows, key=lambda row: row["y"])
        left = (highest["x"] + highest["x2"]) / 2 < self.length * 0.8
        named = {"x": highest["x"] if left else highest["x2"], "y": highest["y"]}
        align, dx = ("left", 4) if left else ("right", -4)
        label = self.canvas.text([named], color=LIGHT.peak, align=align, dx=dx, baseline="bottom", dy=-4)
        text = self.alt.TextValue(f"peak {format_bytes(int(highest['y'] * self.factor))}")
        return [line.encode(x=self.x, x2=self.alt.X2("x2"), y=y), label.encode(x=self.x, y=y, text=text)]

    def by_phase(self) -> Any:
        """A bar for what is resident at the end of each phase, a mark for the most in it, and the numbers."""
        rows, notes = [], []
        for phase in (p for p in self.phases if p["name"] != "exit" or not p["completed"]):
            name = printable(phase["name"]) + ("" if phase["completed"] else " (not completed)")
            begin = 0
            for kind, size in (("file-backed", phase["file_bytes"]), ("anonymous", phase["anon_bytes"])):
                if size is not None:
                    rows.append(bar(name, kind, begin, size))
                    begin += size
            if phase["peak_rss_bytes"] is not None:
                notes.append({"name": name, "x": phase["peak_rss_bytes"], "text": self.numbers(phase)})
        what = "RSS at the end of the phase, and its peak" if self.width > 400 else "RSS at the end, and peak"
        return Bars(rows, notes, RESIDENT, what, row=ROW, reach=self.most, ticked=True).draw(self.canvas)

    def numbers(self, phase: Document) -> str:
        rss, peak = phase["rss_bytes"], phase["peak_rss_bytes"]
        ends = "?" if rss is None else f"{rss / self.factor:.1f}"
        return f"{ends}, peak {'' if phase['peak_exact'] else 'about '}{peak / self.factor:.1f}"


def _end(phase: Document) -> float:
    end: float = phase["began_seconds"] + phase["seconds"]
    return end
