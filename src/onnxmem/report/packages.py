"""A package as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.report.charts.layout import printable
from onnxmem.session.package import Package, PackedOrder, PackedPlan
from onnxmem.units import format_bytes


def package_text(package: Package, what: str) -> RenderableType:
    """What `onnxmem pack` prints; `what` was done to it."""
    made, weights = package.manifest, package.manifest.weights
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("mode", made.mode, package.mode.about)
    table.add_row("files", format_bytes(package.size), ", ".join(file.name for file in made.files))
    table.add_row("weights", format_bytes(weights.raw), "mapped: one copy for all processes")
    if weights.packed:
        table.add_row("packed", format_bytes(weights.packed), "mapped, and used in place of their unpacked forms")
    if weights.inline:
        table.add_row("in the graph", format_bytes(weights.inline), "small weights, a copy in each process")
    if made.order:
        table.add_row("order", format_bytes(made.order.bound), _order_text(made.order))
    for plan in made.plans:
        table.add_row("plan", format_bytes(plan.peak_bytes), _plan_text(plan))
    table.add_row("for", "", f"ONNX Runtime {made.onnxruntime}, {made.cpu.machine} CPUs with the features of this one")
    shapes = _shapes_text({name: fed.shape for name, fed in made.verified.inputs.items()})
    table.add_row("outputs", "equal", f"bit for bit to {made.verified.reference}, on {shapes}")
    table.add_row("costs", "", package.mode.costs)
    lines: list[RenderableType] = [Text.assemble((str(package.folder), "bold"), f"  {what}"), table]
    lines += [Text(f"note: {note}", style="yellow") for note in made.notes]
    lines.append(f'Load it: onnxmem.InferenceSession("{package.folder}")')
    return Group(*lines)


def _order_text(order: PackedOrder) -> str:
    before = format_bytes(order.default_bound)
    return f"is the least a run needs in the order '{order.name}'; the model as it was needs {before}"


def _plan_text(plan: PackedPlan) -> str:
    above = plan.peak_bytes - plan.lower_bound_bytes
    proof = f"{format_bytes(above)} above the least that is proven" if above > 0 else "proven to be the least"
    return f"is what a run with {_shapes_text(plan.inputs)} is planned to take; {proof}"


def _shapes_text(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{printable(n)} {'×'.join(map(str, dims))}".strip() for n, dims in shapes.items()) or "no inputs"
