"""Sharing as text for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.report.charts.layout import printable
from onnxmem.report.sections.share import PAIRED
from onnxmem.session.modes import find_mode
from onnxmem.sharing.sharing import Group as Workers
from onnxmem.sharing.sharing import Sharing
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown


def share_text(sharing: Sharing) -> RenderableType:
    """What `onnxmem share` prints."""
    shapes = ", ".join(
        f"{printable(name)} {'×'.join(map(str, array.shape))}" for name, array in sharing.feeds.arrays.items()
    )
    parts: list[RenderableType] = [
        Text.assemble(
            (printable(sharing.model), "bold"),
            f"  file {format_bytes(sharing.file_bytes)}, weights {format_bytes(sharing.weights_bytes)}, {shapes}",
        )
    ]
    for count in dict.fromkeys(group.count for group in sharing.groups):
        groups = [group for group in sharing.groups if group.count == count]
        parts += ["", _memory(sharing, count, groups)]
    parts += ["", _loading(sharing)]
    if len({g.mode for g in sharing.groups if sharing.latency_of_stock(g.mode) is not None}) > 1:
        parts.append(Text(PAIRED, style="dim"))
    failures = [f"{group.mode}: {failure}" for group in sharing.groups for failure in group.failures]
    parts += [Text(failure, style="red") for failure in failures]
    parts += ["", *_advice(sharing)]
    return Group(*parts)


def _memory(sharing: Sharing, count: int, groups: list[Workers]) -> Table:
    title = f"{count} worker{'s' if count > 1 else ''}"
    floor = sharing.floor(count)
    if isinstance(floor, int):
        title += f"; floor {format_bytes(floor)}: one copy of the weights + the smallest workers"
    table = _table(title, "mode", "total PSS", "of stock", "of floor", "each USS", "each anon", "files", "outputs")
    for group in groups:
        same = sharing.same_outputs(group)
        table.add_row(
            group.mode,
            _size(group.total_pss),
            _ratio(sharing.of_stock(group)),
            _ratio(sharing.of_floor(group)),
            _size(group.worker_uss),
            _size(group.worker_anon),
            _size(group.model_pss),
            "–" if same is None else "equal" if same else "last bits",
        )
    return table


def _loading(sharing: Sharing) -> Table:
    title = "One worker: loading, and running in turns with the other modes"
    table = _table(
        title, "mode", "load", "cold", "load peak", "of file", "private", "first run", "cold", "latency", "of stock"
    )
    for mode, group in _first(sharing).items():
        peak = group.load_peak
        table.add_row(
            mode,
            _seconds(group.load_seconds),
            _seconds(group.cold.load_seconds),
            _size(peak),
            _ratio(peak / sharing.file_bytes) if isinstance(peak, int) else "–",
            _size(group.load_peak_anon),
            _seconds(group.first_run),
            _seconds(group.cold.first_run),
            _seconds(sharing.latency(mode)),
            _ratio(sharing.latency_of_stock(mode)),
        )
    return table


def _first(sharing: Sharing) -> dict[str, Workers]:
    """Each mode's smallest group: the fewer there are, the less one's loading is another's."""
    found: dict[str, Workers] = {}
    for group in sorted(sharing.groups, key=lambda group: group.count):
        found.setdefault(group.mode, group)
    return {group.mode: found[group.mode] for group in sharing.groups}


def _advice(sharing: Sharing) -> list[RenderableType]:
    """Which of the measured modes to take: the least memory with stock's outputs, and the least of all."""
    largest = max(group.count for group in sharing.groups)
    known = [
        (total, group.mode)
        for group in sharing.groups
        if group.count == largest and isinstance(total := group.total_pss, int)
    ]
    exact = [(total, mode) for total, mode in known if find_mode(mode).exact]
    lines: list[RenderableType] = []
    if exact:
        total, mode = min(exact)
        lines.append(Text.assemble("Take ", (mode, "bold"), f": the least memory with stock's outputs. {_why(mode)}"))
    if known and (not exact or min(known) < min(exact)):
        total, mode = min(known)
        lines.append(Text.assemble((mode, "bold"), f" takes the least of all. {_why(mode)}"))
    return lines


def _why(name: str) -> str:
    mode = find_mode(name)
    return f"Its price: {mode.costs}. Not if {mode.avoid}."


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _size(value: Bytes) -> str:
    return "–" if isinstance(value, Unknown) else format_bytes(value)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _seconds(value: float | Unknown | None) -> str:
    if value is None or isinstance(value, Unknown):
        return "–"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
