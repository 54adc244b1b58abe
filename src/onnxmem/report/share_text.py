"""Sharing as text for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.report.charts.layout import printable
from onnxmem.report.sections.share import PAIRED
from onnxmem.sharing.sharing import ModeFigures, Sharing
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown


def share_text(sharing: Sharing) -> RenderableType:
    """What `onnxmem share` prints."""
    shapes = ", ".join(
        f"{printable(name)} {'×'.join(map(str, given.shape))}" for name, given in sharing.fed.inputs.items()
    )
    parts: list[RenderableType] = [
        Text.assemble(
            (printable(sharing.model), "bold"),
            f"  file {format_bytes(sharing.file_bytes)}, weights {format_bytes(sharing.weights_bytes)}, {shapes}",
        )
    ]
    for count in dict.fromkeys(each.workers for each in sharing.modes):
        parts += ["", _memory(sharing, count, [each for each in sharing.modes if each.workers == count])]
    parts += ["", _loading(sharing)]
    if sum(each.of_baseline is not None for each in sharing.latencies) > 1:
        parts.append(Text(f"Latency of {sharing.baseline}'s: {PAIRED}", style="dim"))
    failures = [f"{group.mode}: {failure}" for group in sharing.groups for failure in group.failures]
    parts += [Text(failure, style="red") for failure in failures]
    parts += ["", *_advice(sharing)]
    return Group(*parts)


def _memory(sharing: Sharing, count: int, modes: list[ModeFigures]) -> Table:
    title = f"{count} worker{'s' if count > 1 else ''}"
    floor = sharing.floor(count)
    if isinstance(floor, int):
        title += f"; floor {format_bytes(floor)}: one copy of the weights + the smallest workers"
    base = f"of {sharing.baseline or 'stock'}"
    table = _table(title, "mode", "total PSS", base, "of floor", "each USS", "each anon", "files", "outputs")
    for each in modes:
        same = each.same_outputs
        table.add_row(
            each.mode,
            _size(each.total_pss),
            _ratio(each.of_baseline),
            _ratio(each.of_floor),
            _size(each.worker_uss),
            _size(each.worker_anon),
            _size(each.model_pss),
            "–" if isinstance(same, Unknown) else "equal" if same else "differ",
        )
    return table


def _loading(sharing: Sharing) -> Table:
    title = "One worker: loading, and running in turns with the other modes"
    base = f"of {sharing.baseline or 'stock'}"
    table = _table(
        title, "mode", "load", "cold", "load peak", "of file", "private", "first run", "cold", "latency", base
    )
    for latency in sharing.latencies:
        # The fewer there are, the less one's loading is another's.
        each = min((each for each in sharing.modes if each.mode == latency.mode), key=lambda each: each.workers)
        peak = each.load_peak
        table.add_row(
            each.mode,
            _seconds(each.load_seconds),
            _seconds(each.load_cold_seconds),
            _size(peak),
            _ratio(peak / sharing.file_bytes) if isinstance(peak, int) else "–",
            _size(each.load_peak_anon),
            _seconds(each.first_run),
            _seconds(each.first_run_cold),
            _seconds(latency.median),
            _ratio(latency.of_baseline),
        )
    return table


def _advice(sharing: Sharing) -> list[RenderableType]:
    return [
        Text(f"{each.text} Trade-off: {each.trade_off}. Avoid if {each.avoid_if}.") for each in sharing.recommendations
    ]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _size(value: Bytes) -> str:
    return "–" if isinstance(value, Unknown) else format_bytes(value)


def _ratio(value: float | Unknown | None) -> str:
    return f"{value:.2f}×" if isinstance(value, float) else "–"


def _seconds(value: float | Unknown | None) -> str:
    if value is None or isinstance(value, Unknown):
        return "–"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
