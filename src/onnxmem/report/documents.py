"""Results as JSON documents: a `schema`, integers in bytes, seconds as floats. What is not known is null, with why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxmem.estimation.estimate import Estimate
from onnxmem.model.dims import Dim
from onnxmem.model.graph import Tensor
from onnxmem.placement.plan import Plan
from onnxmem.schedule.formula import Formula
from onnxmem.schedule.scheduled import Scheduled
from onnxmem.schedule.timeline import Span, Timeline
from onnxmem.unknown import Unknown

MOST_PLACED = 20_000


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """`onnxmem.estimate/1`."""
    scheduled = estimate.scheduled
    problem, weights = scheduled.problem, list(scheduled.graph.all_weights())
    step, alive = estimate.at_peak
    return {
        "schema": "onnxmem.estimate/1",
        **_about(scheduled),
        "weights_bytes": estimate.weights_bytes,
        "weights": {
            "count": len(weights),
            "bytes_by_source": {
                source: sum(weight.size or 0 for weight in weights if weight.source == source)
                for source in sorted({weight.source for weight in weights})
            },
            "without_fixed_size": [weight.name for weight in weights if weight.size is None],
            "duplicate_bytes": sum(group.wasted for group in estimate.duplicates),
            "duplicates": [{"names": list(g.names), "bytes": g.size} for g in estimate.duplicates],
        },
        "activations": {
            "count": len(problem),
            "naive_bytes": problem.total,
            "lower_bound_bytes": problem.lower_bound,
            "strategies": [_plan(plan) for plan in estimate.plans],
            **_placement(estimate.best, scheduled),
            "peak": {
                "step": step,
                "node": scheduled.timeline.steps[step].label if scheduled.timeline.steps else None,
                "tensors": [_span(span) for span in alive],
            },
            "largest": [_span(span) for span in estimate.largest],
            "unknown": [_unknown(tensor) for tensor in estimate.unknown],
        },
        "formula": _formula(estimate.formula) if estimate.formula else None,
        "formula_note": estimate.formula_note or None,
        "table": [{"dims": dict(dims), "peak_bytes": peak} for dims, peak in estimate.table],
    }


def plan_document(plan: Plan, scheduled: Scheduled | None, name: str = "") -> dict[str, Any]:
    """`onnxmem.plan/1`; `name` is that of a problem without a model."""
    problem = plan.problem
    document = {
        "schema": "onnxmem.plan/1",
        **(_about(scheduled) if scheduled else {"problem": name} if name else {}),
        "strategy": plan.strategy,
        "peak_bytes": plan.peak,
        "lower_bound_bytes": problem.lower_bound,
        "proven_bound_bytes": plan.proven_bound,
        "gap": plan.gap,
        "optimal": plan.optimal,
        "seconds": plan.seconds,
        "buffers": len(problem),
        "naive_bytes": problem.total,
        "alignment": problem.alignment,
        "capacity_bytes": problem.capacity,
        "fits": plan.fits,
    }
    document |= _placement(plan, scheduled)
    if scheduled:
        document["unknown"] = [_unknown(tensor) for tensor in scheduled.timeline.unknown]
    return document


def _about(scheduled: Scheduled) -> dict[str, Any]:
    rules = scheduled.timeline.rules
    return {
        "model": scheduled.model.name,
        "file_bytes": scheduled.model.file_size,
        "view": scheduled.graph.view,
        "nodes": len(scheduled.graph.nodes),
        "steps": len(scheduled.timeline.steps),
        "order": scheduled.timeline.order,
        "order_search": _search(scheduled.timeline),
        "rules": {"alias": rules.alias, "in_place": rules.in_place, "count_inputs": rules.inputs},
        "alignment": scheduled.problem.alignment,
        "inputs": {
            name: {"dtype": tensor.dtype, "shape": _shape(tensor.shape)}
            for name in scheduled.graph.inputs
            if (tensor := scheduled.graph.tensors.get(name)) is not None
        },
        "dims": {"given": dict(scheduled.given), "assumed": dict(scheduled.assumed)},
        "notes": list(scheduled.graph.notes),
    }


def _search(timeline: Timeline) -> dict[str, Any] | None:
    """What the order search proved about all orders; None for an order that was not searched for."""
    search = timeline.search
    if not search.proven_bound:
        return None
    return {"optimal": search.optimal, "proven_bound_bytes": search.proven_bound, "seconds": search.seconds}


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.strategy,
        "peak_bytes": plan.peak,
        "seconds": plan.seconds,
        "optimal": plan.optimal,
        "gap": plan.gap,
    }


def _placement(plan: Plan, scheduled: Scheduled | None) -> dict[str, Any]:
    """Where every buffer lies. Not of huge problems: they would be a document that nobody can open; `-o` writes CSV."""
    if len(plan.problem) > MOST_PLACED:
        return {"placement": None, "placement_note": f"more than {MOST_PLACED:,} buffers are not listed"}
    if scheduled:
        rows = [_span(span) for span in scheduled.timeline.spans]
    else:
        rows = [{"name": b.id, "bytes": b.size, "lower": b.lower, "upper": b.upper} for b in plan.problem]
    offsets = plan.offsets.tolist()
    return {"placement": [{**row, "offset": offset} for row, offset in zip(rows, offsets, strict=True)]}


def _span(span: Span) -> dict[str, Any]:
    tensor = span.tensors[0]
    return {
        "name": span.id,
        "dtype": tensor.dtype,
        "shape": _shape(tensor.shape),
        "bytes": span.size,
        "kind": span.kind,
        "lower": span.lower,
        "upper": span.upper,
    }


def _unknown(tensor: Tensor) -> dict[str, Any]:
    reason = tensor.size.reason if isinstance(tensor.size, Unknown) else ""
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": _shape(tensor.shape), "bytes": None, "reason": reason}


def _shape(shape: Sequence[Dim] | None) -> list[int | str | None] | None:
    if shape is None:
        return None
    return [dim if isinstance(dim, int) else None if "?" in str(dim) else str(dim) for dim in shape]


def _formula(formula: Formula) -> dict[str, Any]:
    return {
        "dims": list(formula.symbols),
        "peak_bytes": formula.text,
        "holds_for": formula.condition,
        "multiples": dict(formula.multiples),
        "pieces": [{"bytes": p.text, "from": p.smallest, "to": p.largest} for p in formula.pieces],
        "general": [str(dim) for dim in formula.general],
    }
