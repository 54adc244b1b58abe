"""A measurement as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.documents import encode
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.nodes import RuntimeMemory
from onnxmem.measurement.smaps import KINDS, Kind
from onnxmem.measurement.trial import Phase
from onnxmem.report.charts.layout import printable, shorten_path
from onnxmem.report.sections.measure import how_planned
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown

_MIB = 2**20
_NAME = 32
# The borders at which it is worth asking what the memory is: before the model, with it, in use, and after it.
_SHOWN_KINDS = ("import", "load", "steady runs", "release", "trim")


def measure_text(measurement: Measurement) -> RenderableType:
    """What `onnxmem measure` prints."""
    parts: list[RenderableType] = [*_heading(measurement), "", _phases(measurement), *_footnotes(measurement.phases)]
    summary = _summary(measurement)
    if summary.rows:
        parts += ["", summary]
    kinds = _kinds(measurement.phases)
    if kinds:
        parts += ["", kinds]
    parts += _nodes(measurement.runtime)
    parts += ["", *_circumstances(measurement)]
    return Group(*parts)


def _heading(measurement: Measurement) -> list[RenderableType]:
    scenario, fed = measurement.scenario, measurement.fed
    runs = f"1 + {scenario.runs} runs" + (f", {len(measurement.trials)} times" if len(measurement.trials) > 1 else "")
    lines: list[RenderableType] = [
        Text.assemble(
            (printable(scenario.model.name), "bold"),
            f"  mode {scenario.mode}, {runs}, files {format_bytes(measurement.file_bytes)}",
        )
    ]
    for name, (dtype, shape) in list(fed.inputs.items())[:4]:
        size = "×".join(map(str, shape)) or "scalar"
        what = fed.generated.get(name, "as given")
        lines.append(Text(f"input {printable(name)}  {size}  {dtype}, {what}"))
    if len(fed.inputs) > 4:
        lines.append(f"… and {len(fed.inputs) - 4} more inputs")
    if fed.dims.assumed:
        assumed = ", ".join(f"{printable(name)}={number}" for name, number in fed.dims.assumed.items())
        lines.append(Text(f"assumed {assumed}; set with --dim or --shape", style="yellow"))
    if measurement.planned and measurement.planned.reason:
        lines.append(Text(printable(how_planned(encode(measurement.planned))), style="yellow"))
    if not measurement.verdict.ok:
        lines += ["", Text(f"The process {ending(measurement)}", style="bold red")]
    return lines


def ending(measurement: Measurement) -> str:
    """How and where it ended, and why, in one line."""
    verdict = measurement.verdict
    words = {"out of memory": "ran out of memory", "killed": "was killed"}
    where = f" in phase '{verdict.phase}'" if verdict.phase else ""
    return f"{words.get(verdict.kind, verdict.kind)}{where}: {printable(verdict.message)}"


def _phases(measurement: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("MiB", no_wrap=True, min_width=12)
    for name in ("RSS", "peak RSS", "anonymous", "file", "PSS", "USS", "virtual", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for phase in measurement.phases:
        reading = phase.reading
        figures = (reading.anon, reading.file, reading.pss, reading.uss, reading.virtual)
        table.add_row(
            phase.name if phase.completed else f"{phase.name} ✗",
            _mib(reading.rss),
            f"{'' if phase.peak.exact or isinstance(phase.peak.rss, Unknown) else '~'}{_mib(phase.peak.rss)}",
            *(_mib(figure) for figure in figures),
            f"{phase.seconds:.3f}",
            style=None if phase.completed else "red",
        )
    return table


def _footnotes(phases: Sequence[Phase]) -> list[RenderableType]:
    """Why a figure is missing or only sampled; each reason once."""
    reasons: dict[str, None] = {}
    for phase in phases:
        if phase.name == "exit" and phase.completed:
            continue
        if not phase.peak.exact and isinstance(phase.peak.rss, int):
            reasons[f"~ {phase.peak.method}"] = None
        fields = (phase.peak.rss, phase.reading.rss, phase.reading.pss, phase.reading.virtual)
        reasons |= dict.fromkeys(f"? {value.reason}" for value in fields if isinstance(value, Unknown))
    return [Text(reason, style="yellow") for reason in reasons]


def _summary(measurement: Measurement) -> Table:
    table = _table()
    for name, took, what in (
        ("loading took", measurement.load_growth, "peak RSS while loading − RSS before"),
        ("running took", measurement.run_growth, "peak RSS in all runs − RSS before the first"),
    ):
        if measurement.verdict.ok or isinstance(took, int):
            table.add_row(name, _size(took), what)
    planned = measurement.planned
    if planned and planned.plan_bytes is not None:
        table.add_row("its plan takes", format_bytes(planned.plan_bytes), how_planned(encode(planned)))
    if measurement.latency is not None:
        low, high = min(measurement.latencies), max(measurement.latencies)
        middle = f"median of {len(measurement.latencies)} runs, from {_ms(low)} to {_ms(high)}"
        table.add_row("latency", _ms(measurement.latency), middle)
    if len(measurement.trials) > 1:
        for name in ("load", "steady runs"):
            spread = measurement.spread(name, "peak")
            if spread:
                what = f"between the {len(measurement.trials)} repetitions, peak RSS in phase '{name}'"
                table.add_row("spread", format_bytes(spread[1] - spread[0]), what)
    group = max((peak for phase in measurement.phases if isinstance(peak := phase.cgroup_peak, int)), default=None)
    if group is not None:
        table.add_row("control group", format_bytes(group), "its memory.peak: all its processes ever, and page cache")
    outputs = measurement.outputs_sha256
    if isinstance(outputs, str):
        table.add_row("outputs", outputs[:12], "the beginning of their SHA-256, the same in all runs")
    elif measurement.verdict.ok:
        table.add_row("outputs", "?", outputs.reason)
    return table


def _kinds(phases: Sequence[Phase]) -> Table | None:
    """What the memory is, at the borders that matter."""
    columns: dict[str, dict[str, Kind]] = {}
    for phase in phases:
        if phase.name in _SHOWN_KINDS and not isinstance(phase.made_of, Unknown):
            columns[phase.name] = {kind.name: kind for kind in phase.made_of}
    if not columns:
        return None
    table = Table(box=None, pad_edge=False, header_style="dim", title="What is resident", title_justify="left")
    table.title_style = "bold"
    table.add_column("MiB of RSS at the end of", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for name in KINDS:
        sizes = [column[name].rss for column in columns.values()]
        if max(sizes) >= _MIB / 20:
            table.add_row(name, *(_mib(size) for size in sizes))
    return table


def _nodes(runtime: RuntimeMemory) -> list[RenderableType]:
    if isinstance(runtime.nodes, Unknown):
        return ["", Text(f"By node: unknown, {printable(runtime.nodes.reason)}", style="yellow")]
    figures = _table()
    for name, value, words in (
        ("weights", runtime.weights, "that kernels read as they are"),
        ("packed weights", runtime.packed, "in the arena before the first node, with small constants"),
        ("arena held", runtime.arena_held, "taken from the system"),
        ("arena in use", runtime.arena_peak, "at most since the session began, packed weights included"),
    ):
        figures.add_row(name, _size(value), value.reason if isinstance(value, Unknown) else words)
    table = Table(box=None, pad_edge=False, header_style="dim", title="Nodes to blame", title_justify="left")
    table.title_style = "bold"
    table.add_column("", no_wrap=True, max_width=_NAME)
    table.add_column("", no_wrap=True, style="dim", max_width=16, overflow="ellipsis")
    for name in ("outputs", "scratch", "in use after"):
        table.add_column(name, justify="right", no_wrap=True)
    for node in runtime.largest:
        name = shorten_path(printable(node.name), _NAME)
        table.add_row(name, printable(node.op), _size(node.dynamic), _size(node.temporary), _size(node.in_use))
    title = Text("ONNX Runtime's own figures, from a separate run without memory pattern", style="bold")
    parts: list[RenderableType] = ["", title, figures]
    return [*parts, "", table] if runtime.largest else parts


def _circumstances(measurement: Measurement) -> list[RenderableType]:
    where, trial = measurement.environment, measurement.trial
    overhead = trial.overhead
    own = _size(overhead.child_bytes)
    watched = trial.timeline[-1].at - trial.timeline[0].at if trial.timeline else 0.0
    share = overhead.sampler_seconds / watched if watched else 0.0
    lines: list[RenderableType] = [
        Text(
            f"Measured with ONNX Runtime {where.onnxruntime}, Python {where.python}, {where.libc}, "
            f"{where.cpu} ({where.cores} cores), Linux {where.kernel}"
            if where.system == "linux"
            else f"Measured with ONNX Runtime {where.onnxruntime}, Python {where.python}, {where.system}",
            style="dim",
        ),
        Text(
            f"The instrument: {own} of the process is its own; {overhead.readings} readings took "
            f"{overhead.reading_seconds * 1000:.0f} ms between phases; sampling {share:.1%} of one core",
            style="dim",
        ),
    ]
    if where.variables:
        lines.append(
            Text("set: " + " ".join(f"{name}={printable(v)}" for name, v in where.variables.items()), style="dim")
        )
    if trial.limited_by:
        lines.append(f"limit {format_bytes(measurement.scenario.memory_limit or 0)}, enforced by {trial.limited_by}")
    return lines


def _mib(value: Bytes) -> str:
    return "?" if isinstance(value, Unknown) else f"{value / _MIB:.1f}"


def _size(value: Bytes) -> str:
    return "?" if isinstance(value, Unknown) else format_bytes(value)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _table() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=16)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    return table
