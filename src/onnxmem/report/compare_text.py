"""A comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.comparison.comparison import Comparison
from onnxmem.comparison.decide import SAME, WINNER
from onnxmem.comparison.figure import Figure, Known
from onnxmem.comparison.rows import BYTES, SECONDS, Row
from onnxmem.report.charts.layout import printable
from onnxmem.report.charts.scaling import error_text, fit_text
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown

_FEW, _BESIDE = 3, 4
# Longer names do not fit beside each other in 80 columns.
_SHORT = 14


def compare_text(comparison: Comparison) -> RenderableType:
    """What `onnxmem compare` prints: do they agree, who wins what, why, how it grows, and what to do."""
    names = _names(comparison)
    parts: list[RenderableType] = [*headline(comparison), "", *_legend(names), *_tables(comparison, names)]
    parts += _failures(comparison)
    parts += _breakdown(comparison, names)
    parts += _fits(comparison, names)
    if comparison.advice:
        parts += ["", Text("Advice", style="bold"), *(Text(f"• {printable(each.text)}") for each in comparison.advice)]
    return Group(*parts, "", *_circumstances(comparison))


def headline(comparison: Comparison) -> list[RenderableType]:
    """Parity comes first: who is wrong has won nothing."""
    parity = comparison.parity
    if not comparison.finished:
        return [Text("No candidate ran to the end.", style="bold red")]
    if not parity.same:
        worst: dict[str, str] = {}
        for each in parity.mismatches:
            worst.setdefault(each.candidate, str(each))
        lines = [Text("The answers differ: who differs wins nothing.", style="bold red")]
        lines += [Text(f"  {printable(text)}", style="red") for text in worst.values()]
        return [*lines, Text(f"  reference {printable(parity.reference or '')}, tolerance {parity.tolerance:g}")]
    document = parity.document()
    if document["max_abs"] is None:
        return [Text("There was nothing to compare the answers with.", style="yellow")]
    figures = f"largest difference {document['max_abs']:.2g}, relative {document['max_rel']:.2g}"
    return [Text(f"The answers are the same: {figures}, tolerance {parity.tolerance:g}.", style="bold green")]


def _names(comparison: Comparison) -> dict[str, str]:
    """How candidates are called in tables: by name while these fit, else by letters that are explained first."""
    shown = [result.name for result in comparison.results if result.failure is None]
    if len(shown) <= _FEW and all(len(printable(name)) <= _SHORT for name in shown):
        return {name: printable(name) for name in shown}
    return {name: _letter(number) for number, name in enumerate(shown)}


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"{_letter(number // 26 - 1)}{_letter(number % 26)}"


def _legend(names: dict[str, str]) -> list[RenderableType]:
    if all(printable(name) == short for name, short in names.items()):
        return []
    return [*(Text(f"{short}  {printable(name)}") for name, short in names.items()), ""]


def _tables(comparison: Comparison, names: dict[str, str]) -> list[RenderableType]:
    """The rows, for as many candidates at a time as fit beside each other. Those that failed are listed below."""
    every, parts = list(names), list[RenderableType]()
    for start in range(0, len(every), _BESIDE):
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("")
        columns = every[start : start + _BESIDE]
        for name in columns:
            table.add_column(names[name], justify="right", no_wrap=True)
        table.add_column("winner", no_wrap=True)
        table.add_column("ratio", justify="right", no_wrap=True)
        for row in comparison.rows:
            values = [value_text(row.values[name], row.unit) for name in columns]
            table.add_row(row.label, *values, winner_text(row, names), ratio_text(row))
        parts += [*([""] if parts else []), table]
    return parts


def value_text(value: Known, unit: str) -> str:
    """The median, and ± half of the spread where it would show."""
    if isinstance(value, Unknown):
        return "?"
    shown = _number(value.median, unit)
    half = (value.high - value.low) / 2
    return f"{shown} ±{half / value.median:.0%}" if value.median and half / value.median >= 0.005 else shown


def winner_text(row: Row, names: Mapping[str, str]) -> str:
    """Who wins, or why nobody does."""
    best = [names.get(name, name) for name in row.decision.best]
    if row.decision.verdict == WINNER:
        return best[0]
    # The same, but less than others; or so it may be.
    some = len(best) < sum(isinstance(value, Figure) for value in row.values.values())
    if row.decision.verdict == SAME:
        return " = ".join(best) if some else "same"
    return "–" if not best else f"undecided: {', '.join(best)}" if some else "undecided"


def ratio_text(row: Row) -> str:
    """How many times the next takes."""
    ratio = row.decision.ratio
    return "" if ratio is None else f"{ratio:.3g}×" if ratio < 100 else f"{ratio:.0f}×"


def _number(number: float, unit: str) -> str:
    if unit == BYTES:
        return format_bytes(number)
    if unit == SECONDS:
        return f"{number * 1000:.1f} ms" if number < 1 else f"{number:.2f} s"
    return f"{number:.2f}×"


def _failures(comparison: Comparison) -> list[RenderableType]:
    failed = [result for result in comparison.results if not result.ok]
    lines = [Text(f"✗ {printable(r.name)}: {printable(r.why_not)}", style="red") for r in failed]
    return ["", *lines] if lines else []


def _breakdown(comparison: Comparison, names: dict[str, str]) -> list[RenderableType]:
    """By how much each step raised the peak, in one process that ran all sizes."""
    shown = [result for result in comparison.results if result.breakdown]
    if not shown:
        return []
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("each raises it by", no_wrap=True)
    for result in shown:
        table.add_column(names[result.name], justify="right", no_wrap=True)
    steps = dict.fromkeys(part.name for result in shown for part in result.breakdown)
    by_name = [{part.name: part.bytes for part in result.breakdown} for result in shown]
    for name in sorted(steps, key=lambda name: name == "peak"):
        sign = "= " if name == "peak" else "" if name == "initial" else "+ "
        cells = [format_bytes(parts[name]) if name in parts else "" for parts in by_name]
        table.add_row(f"{sign}{name}", *cells, style="bold" if name == "peak" else None)
    # Not the table's own title, which would wrap at its width.
    return ["", Text("How the peak RSS comes about, in one process", style="bold"), table]


def _fits(comparison: Comparison, names: dict[str, str]) -> list[RenderableType]:
    if not comparison.fits:
        return []
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("n = input elements", no_wrap=True)
    table.add_column("error", justify="right", no_wrap=True)
    beyond = comparison.beyond()
    for name, _ in beyond:
        table.add_column(f"{name}*", justify="right", no_wrap=True)
    for fit in comparison.fits:
        predicted = [format_bytes(fit(elements)) for _, elements in beyond]
        document = fit.document()
        table.add_row(names[fit.candidate], fit_text(document), error_text(document), *predicted)
    title = Text("Peak RSS as a function of the input", style="bold")
    return ["", title, table, Text("* extrapolated: nothing so large was measured", style="yellow")]


def _circumstances(comparison: Comparison) -> list[RenderableType]:
    given, where = comparison.conditions, comparison.environment
    frameworks = ", ".join(dict.fromkeys(r.framework for r in comparison.results if r.framework))
    if not has_figures(comparison):
        return [Text(f"Python {where.python}, {where.cpu} ({where.cores} cores)", style="dim")]
    lines: list[RenderableType] = [
        Text(
            f"Medians of {_rounds(comparison)} fresh processes per size, in turns, 1 + {given.runs} runs in each. "
            f"± is half the spread. Memory is RSS.",
            style="dim",
        ),
        Text(
            f"{frameworks or 'no framework was reached'}, Python {where.python}, {where.cpu} ({where.cores} cores)",
            style="dim",
        ),
    ]
    if given.repeat_limit < 3:
        lines.append(Text("With fewer than 3 repetitions hardly anything is decided: see --repeat", style="yellow"))
    assumed = {name: n for size in comparison.sizes[:1] for name, n in size.assumed.items()}
    if assumed:
        said = ", ".join(f"{printable(name)}={number}" for name, number in assumed.items())
        lines.append(Text(f"assumed {said}; set with --dim or --shape", style="yellow"))
    return lines


def _rounds(comparison: Comparison) -> str:
    peaks = [at.peak for result in comparison.results for at in result.at]
    counts = sorted({len(peak.samples) for peak in peaks if isinstance(peak, Figure)})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"


def has_figures(comparison: Comparison) -> bool:
    """Whether there is anything to draw."""
    return any(isinstance(at.peak, Figure) for result in comparison.results for at in result.at)
