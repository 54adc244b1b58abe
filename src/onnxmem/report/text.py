"""Results as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.estimation.estimate import Estimate, PeakFormula, SizedPeak
from onnxmem.estimation.planning import Planning
from onnxmem.estimation.records import BufferRow, ModelFacts, Rated, Shape, UnknownTensor
from onnxmem.placement.plan import Plan
from onnxmem.report.charts.layout import printable, shorten_path
from onnxmem.report.charts.terminal_map import terminal_map
from onnxmem.units import format_bytes

_WIDTH = 80
_NAME = 36
_LONGEST_FORMULA = 300
_SHOWN = 10


def estimate_text(estimate: Estimate) -> RenderableType:
    """What `onnxmem estimate` prints."""
    activations, peak = estimate.activations, estimate.activations.peak
    parts: list[RenderableType] = [*_heading(estimate.about), "", _totals(estimate)]
    if estimate.formula:
        parts += ["", *_formula(estimate.formula, estimate)]
    if estimate.formula_note:
        parts.append(f"note: {estimate.formula_note}")
    if peak.tensors and peak.node is not None:
        where = f"step {peak.step} of {estimate.about.steps}, {printable(peak.node)}"
        parts += ["", Text(f"Alive at the peak, {where}", style="bold"), _spans(peak.tensors)]
        parts += ["", Text("Largest tensors", style="bold"), _spans(activations.largest)]
    parts += _unknown(activations.unknown)
    if estimate.weights.duplicates:
        wasted = estimate.weights.duplicate_bytes
        names = ", ".join(shorten_path(printable(name), 30) for name in estimate.weights.duplicates[0].names[:3])
        parts += ["", f"Stored more than once: {format_bytes(wasted)} of weights, first {names}"]
    return Group(*parts)


def plan_text(result: Planning, plan: Plan) -> RenderableType:
    """What `onnxmem plan` prints."""
    problem, about = plan.problem, result.about
    heading = _heading(about) if about else [Text(printable(result.problem or ""), style="bold")]
    parts: list[RenderableType] = [*heading, ""]
    table = _table()
    table.add_row("buffers", f"{len(problem)}", f"{format_bytes(problem.total)} without any reuse")
    table.add_row("strategy", plan.strategy, f"{plan.seconds:.3f} s")
    table.add_row("peak", format_bytes(plan.peak), f"{plan.peak} bytes, {_verdict(result)}")
    order = _about_order(about) if about else ""
    table.add_row("lower bound", format_bytes(problem.lower_bound), f"{problem.lower_bound} bytes live at once{order}")
    if plan.proven_bound > problem.lower_bound:
        table.add_row("proven bound", format_bytes(plan.proven_bound), f"{plan.proven_bound} bytes, by search")
    if problem.capacity is not None:
        verdict = "fits" if plan.fits else "does NOT fit"
        table.add_row("capacity", format_bytes(problem.capacity), f"{problem.capacity} bytes: {verdict}")
    parts += [table, "", Text(terminal_map(plan, _WIDTH))]
    parts += _unknown(result.unknown)
    return Group(*parts)


def demo_text(
    estimate: Estimate,
    plan: Plan,
    formula: PeakFormula | None,
    found: Sequence[tuple[str, str]],
    saved: str,
    drawn: Sequence[Path],
) -> RenderableType:
    """What `onnxmem demo` prints; `found` are the other sections of its report, heading and summary.

    `saved` is what running inside the plan saves: the last word.
    """
    best, naive = estimate.best, estimate.activations.naive_bytes
    times = naive / max(best.peak_bytes, 1)
    story = Text.assemble(
        "\nA plan that reuses memory takes ",
        (format_bytes(best.peak_bytes), "bold"),
        f" instead of {format_bytes(naive)}: {times:.1f} times less",
        ", and provably no plan takes less in this order." if best.optimal else ".",
    )
    parts: list[RenderableType] = [*_heading(estimate.about), "", _totals(estimate), story]
    if formula:
        parts.append(f"For any size: peak = {formula.text} bytes ({formula.holds_for})")
    parts += ["", Text(terminal_map(plan, _WIDTH))]
    for heading, summary in found:
        parts += ["", Text(printable(heading), style="bold"), Text(printable(summary))]
    if drawn:
        parts += ["", f"The picture: {drawn[0]}", f"The report:  {drawn[1]}"]
    parts.append("Next: onnxmem measure YOUR_MODEL.onnx --mode planned")
    parts += ["", Text(saved, style="bold")] if saved else []
    return Group(*parts)


def _heading(about: ModelFacts) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text.assemble(
            (printable(about.model), "bold"),
            f"  {about.view}, {about.nodes} nodes, file {format_bytes(about.file_bytes)}",
        )
    ]
    for name, given in list(about.inputs.items())[:4]:
        lines.append(f"input {printable(name)}  {_shape(given.shape)}  {given.dtype}")
    if len(about.inputs) > 4:
        lines.append(f"… and {len(about.inputs) - 4} more inputs")
    if about.dims.assumed:
        assumed = ", ".join(f"{printable(name)}={number}" for name, number in about.dims.assumed.items())
        lines.append(Text(f"assumed {assumed}; set with --dim or --shape", style="yellow"))
    lines += [Text(f"note: {printable(note)}", style="yellow") for note in about.notes]
    return lines


def _totals(estimate: Estimate) -> Table:
    about, activations = estimate.about, estimate.activations
    table = _table()
    table.add_row("weights", format_bytes(estimate.weights_bytes), f"{estimate.weights.count} constant tensors")
    table.add_row("", "", "")
    on = [name for name, used in (("views", about.rules.alias), ("in-place", about.rules.in_place)) if used]
    how = f"{about.order} order, {' and '.join(on) or 'nothing'} shared"
    table.add_row("activations", f"{activations.count}", f"buffers, {how}", style="bold")
    table.add_row("all of them", format_bytes(activations.naive_bytes), "if nothing were ever reused")
    table.add_row("lower bound", format_bytes(activations.lower_bound_bytes), f"live at once{_about_order(about)}")
    for plan in activations.strategies:
        table.add_row(plan.name, format_bytes(plan.peak_bytes), _verdict(plan))
    return table


def _about_order(about: ModelFacts) -> str:
    search = about.order_search
    if search is None:
        return ": no plan can take less"
    return "; no order takes less" + ("" if search.optimal else f" than {format_bytes(search.proven_bound_bytes)}")


def _formula(formula: PeakFormula, estimate: Estimate) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("Peak for any size, in bytes before alignment", style="bold")]
    if len(formula.text) <= _LONGEST_FORMULA:
        for piece in formula.pieces:
            where = "" if piece.smallest is None else f"   from {piece.smallest}"
            where += "" if piece.largest is None else f" to {piece.largest}"
            lines.append(f"  {printable(piece.text)}{where}")
        if len(formula.pieces) > 1 and formula.pieces[0].smallest is None:
            lines.append("  whichever is largest")
        lines.append(f"  for {printable(formula.holds_for)}")
    else:
        lines.append(f"  the largest of {len(formula.general)} expressions; --json has them")
    return [*lines, _useful_sizes(estimate.table)]


def _useful_sizes(rows: Sequence[SizedPeak]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 0, 0, 2))
    for name in rows[0].dims:
        table.add_column(shorten_path(printable(name), 20), justify="right", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row.dims.values()), format_bytes(row.peak_bytes))
    return table


def _spans(rows: Sequence[BufferRow]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_NAME)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, style="dim")
    for row in rows[:_SHOWN]:
        name = shorten_path(printable(row.name), _NAME)
        table.add_row(f"  {name}", format_bytes(row.size), _shape(row.shape), f"[{row.lower}, {row.upper})")
    if len(rows) > _SHOWN:
        rest = sum(row.size for row in rows[_SHOWN:])
        table.add_row(f"  … {len(rows) - _SHOWN} more", format_bytes(rest), "", "")
    return table


def _unknown(tensors: Sequence[UnknownTensor]) -> list[RenderableType]:
    if not tensors:
        return []
    lines: list[RenderableType] = ["", Text(f"Not counted: {len(tensors)} tensors of unknown size", style="yellow")]
    reasons: dict[str, list[str]] = {}
    for tensor in tensors:
        reasons.setdefault(tensor.reason, []).append(tensor.name)
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))[:5]:
        shown = ", ".join(shorten_path(printable(name), 24) for name in names[:2])
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        lines.append(f"  {shown}{more}: {printable(reason)}")
    if len(reasons) > 5:
        lines.append(f"  … {len(reasons) - 5} more reasons; --json and --tensors have them all")
    return lines


def _verdict(plan: Rated) -> str:
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


def _shape(shape: Shape) -> str:
    return "?" if shape is None else "×".join("?" if dim is None else str(dim) for dim in shape) or "scalar"
