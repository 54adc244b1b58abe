"""Results as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.estimation.estimate import Estimate
from onnxmem.model.dims import Dim
from onnxmem.model.graph import Tensor
from onnxmem.placement.plan import Plan
from onnxmem.report.charts.layout import printable, shorten_path
from onnxmem.report.charts.terminal_map import terminal_map
from onnxmem.schedule.formula import Formula
from onnxmem.schedule.scheduled import Scheduled
from onnxmem.schedule.timeline import Span
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown

_WIDTH = 80
_NAME = 36
_LONGEST_FORMULA = 300
_SHOWN = 10


def estimate_text(estimate: Estimate) -> RenderableType:
    """What `onnxmem estimate` prints."""
    scheduled = estimate.scheduled
    step, alive = estimate.at_peak
    parts: list[RenderableType] = [*_heading(scheduled), "", _totals(estimate)]
    if estimate.formula:
        parts += ["", *_formula(estimate.formula, estimate)]
    if estimate.formula_note:
        parts.append(f"note: {estimate.formula_note}")
    if alive and scheduled.timeline.steps:
        where = f"step {step} of {len(scheduled.timeline.steps)}, {printable(scheduled.timeline.steps[step].label)}"
        parts += ["", Text(f"Alive at the peak, {where}", style="bold"), _spans(alive)]
        parts += ["", Text("Largest tensors", style="bold"), _spans(estimate.largest)]
    parts += _unknown(estimate.unknown)
    if estimate.duplicates:
        wasted = sum(group.wasted for group in estimate.duplicates)
        names = ", ".join(shorten_path(printable(name), 30) for name in estimate.duplicates[0].names[:3])
        parts += ["", f"Stored more than once: {format_bytes(wasted)} of weights, first {names}"]
    return Group(*parts)


def plan_text(plan: Plan, scheduled: Scheduled | None, name: str) -> RenderableType:
    """What `onnxmem plan` prints."""
    problem = plan.problem
    parts: list[RenderableType] = [*(_heading(scheduled) if scheduled else [Text(printable(name), style="bold")]), ""]
    table = _table()
    table.add_row("buffers", f"{len(problem)}", f"{format_bytes(problem.total)} without any reuse")
    table.add_row("strategy", plan.strategy, f"{plan.seconds:.3f} s")
    table.add_row("peak", format_bytes(plan.peak), f"{plan.peak} bytes, {_verdict(plan)}")
    order = _about_order(scheduled) if scheduled else ""
    table.add_row("lower bound", format_bytes(problem.lower_bound), f"{problem.lower_bound} bytes live at once{order}")
    if plan.proven_bound > problem.lower_bound:
        table.add_row("proven bound", format_bytes(plan.proven_bound), f"{plan.proven_bound} bytes, by search")
    if problem.capacity is not None:
        verdict = "fits" if plan.fits else "does NOT fit"
        table.add_row("capacity", format_bytes(problem.capacity), f"{problem.capacity} bytes: {verdict}")
    parts += [table, "", Text(terminal_map(plan, _WIDTH))]
    if scheduled:
        parts += _unknown(scheduled.timeline.unknown)
    return Group(*parts)


def demo_text(
    estimate: Estimate,
    formula: Formula | None,
    found: Sequence[tuple[str, str]],
    saved: str,
    drawn: Sequence[Path],
) -> RenderableType:
    """What `onnxmem demo` prints; `found` are the other sections of its report, heading and summary.

    `saved` is what running inside the plan saves: the last word.
    """
    best, problem = estimate.best, estimate.scheduled.problem
    times = problem.total / max(best.peak, 1)
    story = Text.assemble(
        "\nA plan that reuses memory takes ",
        (format_bytes(best.peak), "bold"),
        f" instead of {format_bytes(problem.total)}: {times:.1f} times less",
        ", and provably no plan takes less in this order." if best.optimal else ".",
    )
    parts: list[RenderableType] = [*_heading(estimate.scheduled), "", _totals(estimate), story]
    if formula:
        parts.append(f"For any size: peak = {formula.text} bytes ({formula.condition})")
    parts += ["", Text(terminal_map(best, _WIDTH))]
    for heading, summary in found:
        parts += ["", Text(printable(heading), style="bold"), Text(printable(summary))]
    if drawn:
        parts += ["", f"The picture: {drawn[0]}", f"The report:  {drawn[1]}"]
    parts.append("Next: onnxmem measure YOUR_MODEL.onnx --mode planned")
    parts += ["", Text(saved, style="bold")] if saved else []
    return Group(*parts)


def _heading(scheduled: Scheduled) -> list[RenderableType]:
    graph = scheduled.graph
    lines: list[RenderableType] = [
        Text.assemble(
            (printable(scheduled.model.name), "bold"),
            f"  {graph.view}, {len(graph.nodes)} nodes, file {format_bytes(scheduled.model.file_size)}",
        )
    ]
    for name in graph.inputs[:4]:
        tensor = graph.tensors.get(name)
        if tensor is not None:
            lines.append(f"input {printable(name)}  {_shape(tensor.shape)}  {tensor.dtype}")
    if len(graph.inputs) > 4:
        lines.append(f"… and {len(graph.inputs) - 4} more inputs")
    if scheduled.assumed:
        assumed = ", ".join(f"{printable(name)}={number}" for name, number in scheduled.assumed.items())
        lines.append(Text(f"assumed {assumed}; set with --dim or --shape", style="yellow"))
    lines += [Text(f"note: {printable(note)}", style="yellow") for note in graph.notes]
    return lines


def _totals(estimate: Estimate) -> Table:
    scheduled, problem = estimate.scheduled, estimate.scheduled.problem
    weights = list(scheduled.graph.all_weights())
    table = _table()
    table.add_row("weights", format_bytes(estimate.weights_bytes), f"{len(weights)} constant tensors")
    table.add_row("", "", "")
    rules = scheduled.timeline.rules
    on = [name for name, used in (("views", rules.alias), ("in-place", rules.in_place)) if used]
    how = f"{scheduled.timeline.order} order, {' and '.join(on) or 'nothing'} shared"
    table.add_row("activations", f"{len(problem)}", f"buffers, {how}", style="bold")
    table.add_row("all of them", format_bytes(problem.total), "if nothing were ever reused")
    table.add_row("lower bound", format_bytes(problem.lower_bound), f"live at once{_about_order(scheduled)}")
    for plan in estimate.plans:
        table.add_row(plan.strategy, format_bytes(plan.peak), _verdict(plan))
    return table


def _about_order(scheduled: Scheduled) -> str:
    search = scheduled.timeline.search
    if search.optimal:
        return "; no order takes less"
    if search.proven_bound:
        return f"; no order takes less than {format_bytes(search.proven_bound)}"
    return ": no plan can take less"


def _formula(formula: Formula, estimate: Estimate) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("Peak for any size, in bytes before alignment", style="bold")]
    if len(formula.text) <= _LONGEST_FORMULA:
        for piece in formula.pieces:
            where = "" if piece.smallest is None else f"   from {piece.smallest}"
            where += "" if piece.largest is None else f" to {piece.largest}"
            lines.append(f"  {printable(piece.text)}{where}")
        if len(formula.pieces) > 1 and formula.pieces[0].smallest is None:
            lines.append("  whichever is largest")
        lines.append(f"  for {printable(formula.condition)}")
    else:
        lines.append(f"  the largest of {len(formula.general)} expressions; --json has them")
    return [*lines, _useful_sizes(estimate.table)]


def _useful_sizes(rows: Sequence[tuple[Mapping[str, int], int]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 0, 0, 2))
    for name in rows[0][0]:
        table.add_column(shorten_path(printable(name), 20), justify="right", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    for dims, peak in rows:
        table.add_row(*map(str, dims.values()), format_bytes(peak))
    return table


def _spans(spans: Sequence[Span]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_NAME)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, style="dim")
    for span in spans[:_SHOWN]:
        tensor = span.tensors[0]
        size = format_bytes(span.size) if isinstance(span.size, int) else str(span.size)
        name = shorten_path(printable(span.id), _NAME)
        table.add_row(f"  {name}", size, _shape(tensor.shape), f"[{span.lower}, {span.upper})")
    if len(spans) > _SHOWN:
        rest = sum(span.size for span in spans[_SHOWN:] if isinstance(span.size, int))
        table.add_row(f"  … {len(spans) - _SHOWN} more", format_bytes(rest), "", "")
    return table


def _unknown(tensors: Sequence[Tensor]) -> list[RenderableType]:
    if not tensors:
        return []
    lines: list[RenderableType] = ["", Text(f"Not counted: {len(tensors)} tensors of unknown size", style="yellow")]
    reasons: dict[str, list[str]] = {}
    for tensor in tensors:
        reason = tensor.size.reason if isinstance(tensor.size, Unknown) else ""
        reasons.setdefault(reason, []).append(tensor.name)
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))[:5]:
        shown = ", ".join(shorten_path(printable(name), 24) for name in names[:2])
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        lines.append(f"  {shown}{more}: {printable(reason)}")
    if len(reasons) > 5:
        lines.append(f"  … {len(reasons) - 5} more reasons; --json and --tensors have them all")
    return lines


def _verdict(plan: Plan) -> str:
    if plan.optimal:
        return "optimal"
    above = f"{plan.gap:.1%} above the bound" if plan.gap < 10 else f"{plan.gap + 1:.0f} × the bound"
    return f"{above}; the search was interrupted" if plan.interrupted else above


def _table() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=18)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _shape(shape: Iterable[Dim] | None) -> str:
    if shape is None:
        return "?"
    return "×".join("?" if "?" in str(dim) else str(dim) for dim in shape) or "scalar"
