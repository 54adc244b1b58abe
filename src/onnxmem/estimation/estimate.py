"""How much memory will this model take? Graph + order + plans → Estimate, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxmem.model.duplicates import Duplicates
from onnxmem.model.graph import Tensor
from onnxmem.model.model import Model
from onnxmem.placement.plan import Plan
from onnxmem.placement.strategies import STRATEGIES, solve
from onnxmem.result import Shown
from onnxmem.schedule.formula import Formula, peak_formula
from onnxmem.schedule.scheduled import Question, Scheduled, graph_of, schedule
from onnxmem.schedule.timeline import Span, lay_out


@dataclass(frozen=True)
class Estimate(Shown):
    """The answer."""

    scheduled: Scheduled
    plans: tuple[Plan, ...]
    formula: Formula | None
    formula_note: str
    table: tuple[tuple[Mapping[str, int], int], ...]
    """The formula at a few useful sizes: (dimensions, peak bytes)."""
    duplicates: tuple[Duplicates, ...]

    @property
    def weights_bytes(self) -> int:
        """All constants of the graph, as they lie in memory. Strings, which have no fixed size, are not in it."""
        return sum(weight.size or 0 for weight in self.scheduled.graph.all_weights())

    @property
    def best(self) -> Plan:
        """The smallest of the plans; among equals the last, since strategies are listed from naive to best."""
        return min(reversed(self.plans), key=lambda plan: plan.peak)

    @property
    def unknown(self) -> tuple[Tensor, ...]:
        """Tensors whose size cannot be told before the model runs; no figure includes them."""
        return self.scheduled.timeline.unknown

    @property
    def largest(self) -> tuple[Span, ...]:
        """The ten largest buffers."""
        spans = self.scheduled.timeline.spans
        return tuple(sorted(spans, key=lambda span: (-span.bytes, span.lower))[:10])

    @property
    def at_peak(self) -> tuple[int, tuple[Span, ...]]:
        """The step with the most bytes alive, and what is alive there, largest first."""
        step, _ = self.scheduled.problem.peak_step
        alive = self.scheduled.problem.live_at(step)
        return step, tuple(self.scheduled.timeline.spans[index] for index in alive)


def estimate(model: Model, question: Question, strategies: Sequence[str] = STRATEGIES, **options: float) -> Estimate:
    """Weights, activations by strategy, and the formula behind them where dimensions were left open."""
    scheduled = schedule(model, question)
    plans = tuple(solve(scheduled.problem, name, **options) for name in strategies)
    formula, note = None, ""
    if scheduled.assumed:
        formula, note = _formula(model, question, scheduled)
    table = _table(formula, scheduled) if formula else ()
    return Estimate(scheduled, plans, formula, note, table, model.duplicates())


def _formula(model: Model, question: Question, scheduled: Scheduled) -> tuple[Formula | None, str]:
    symbolic = graph_of(model, question, scheduled.given)
    timeline = lay_out(
        symbolic,
        question.order,
        question.rules,
        sample=scheduled.assumed,
        time_limit=question.search_time_limit,
    )
    formula = peak_formula(timeline, time_limit=question.time_limit)
    if formula is None and timeline.symbols:
        return None, "the formula was not found in time"
    more = len(timeline.unknown) - len(scheduled.timeline.unknown)
    if formula is not None and more > 0:
        return formula, f"{more} tensors whose size could only be told for numbers are not in the formula"
    return formula, "" if formula else "the peak does not depend on the free dimensions"


def _table(formula: Formula, scheduled: Scheduled) -> tuple[tuple[Mapping[str, int], int], ...]:
    """The formula where people would try it: each dimension doubled a few times, the others as assumed."""
    base = {name: _to_multiple(n, formula.multiples.get(name, 1)) for name, n in scheduled.assumed.items()}
    rows: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    batch = [name for name, n in base.items() if n == formula.multiples.get(name, 1) == 1]
    sizes = [name for name in base if name not in batch]
    for factor in (1, 2, 4):
        row = {**base, **{name: base[name] * factor for name in sizes}}
        rows[tuple(row.items())] = row
    for factor in (2, 4, 8, 16):
        row = {**base, **dict.fromkeys(batch, factor)}
        rows[tuple(row.items())] = row
    used = set(formula.symbols)
    return tuple((row, formula.at({n: v for n, v in row.items() if n in used})) for row in rows.values())


def _to_multiple(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
