"""How much memory will this model take? Model + question → Estimate, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar

from onnxmem.deadline import Deadline
from onnxmem.documents import Record
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.estimation.budgets import LEAST, BudgetFacts, budget_facts
from onnxmem.estimation.records import (
    BufferRow,
    ModelFacts,
    OnModel,
    PeakFormula,
    Rated,
    SizedPeak,
    UnknownTensor,
    listing,
    rating,
)
from onnxmem.estimation.tiling import TilingFacts, check_runnable, checked_extra_work, tile_schedule
from onnxmem.measurement.device import HOST, check_device, device_number
from onnxmem.model.dims import Expr
from onnxmem.model.duplicates import Duplicates
from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.model.weights import Weight
from onnxmem.placement.plan import Plan
from onnxmem.placement.strategies import STRATEGIES, solve
from onnxmem.prediction.calibration import calibration
from onnxmem.prediction.formula import find_formulas
from onnxmem.prediction.on_device import OnDevice, forecast_on_device
from onnxmem.prediction.predict import MODES, Subject, forecast_mode
from onnxmem.prediction.prediction import Forecast
from onnxmem.progress import OnProgress, Progress
from onnxmem.schedule.formula import Formula, peak_formula
from onnxmem.schedule.scheduled import ALIGNMENT, STAGE_SHARE, Question, Scheduled, graph_of, order_graph, schedule
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Step
from onnxmem.units import format_bytes, parse_bytes
from onnxmem.unknown import Unknown

_EFFORT = 0.2
"""The part of the time limit that a strategy takes on an ordinary processor."""


@dataclass(frozen=True, kw_only=True)
class WeightsFacts(Record):
    """The constants of the graph."""

    count: int
    bytes_by_source: Mapping[str, int]
    without_fixed_size: tuple[str, ...]
    """Strings: no figure includes them."""
    duplicate_bytes: int
    """What one copy of each would save."""
    duplicates: tuple[Duplicates, ...]

    @classmethod
    def of(cls, weights: Sequence[Weight], duplicates: Sequence[Duplicates]) -> WeightsFacts:
        sources = dict.fromkeys(sorted(weight.source for weight in weights), 0)
        for weight in weights:
            sources[weight.source] += weight.size or 0
        return cls(
            count=len(weights),
            bytes_by_source=sources,
            without_fixed_size=tuple(weight.name for weight in weights if weight.size is None),
            duplicate_bytes=sum(group.wasted for group in duplicates),
            duplicates=tuple(duplicates),
        )


@dataclass(frozen=True, kw_only=True)
class StrategyRow(Rated):
    """The plan of one strategy."""

    name: str


@dataclass(frozen=True, kw_only=True)
class PeakStep(Record):
    """The step with the most bytes alive, the node that runs there, and the buffers alive, largest first."""

    step: int
    node: str | None
    tensors: tuple[BufferRow, ...]


@dataclass(frozen=True, kw_only=True)
class Activations(Record):
    """All that is computed on the way from the inputs to the outputs."""

    count: int
    naive_bytes: int
    """All buffers together, if nothing were ever reused."""
    lower_bound_bytes: int
    """The most bytes alive at once: no plan can take less."""
    strategies: tuple[StrategyRow, ...]
    placement: tuple[BufferRow, ...] | None
    """The smallest of the plans."""
    placement_note: str | None = None
    schedule: tuple[Step, ...] | None = None
    """The nodes in the order in which they run: one for every step."""
    peak: PeakStep
    largest: tuple[BufferRow, ...]
    unknown: tuple[UnknownTensor, ...]

    @property
    def best(self) -> StrategyRow:
        """The smallest of the plans; among equals the last, since strategies are listed from naive to best."""
        return min(reversed(self.strategies), key=lambda row: row.peak_bytes)

    @classmethod
    def of(cls, scheduled: Scheduled, plans: Sequence[Plan]) -> Activations:
        problem, timeline = scheduled.problem, scheduled.timeline
        step, _ = problem.peak_step
        return cls(
            count=len(problem),
            naive_bytes=problem.total,
            lower_bound_bytes=problem.lower_bound,
            strategies=tuple(StrategyRow(name=plan.strategy, **rating(plan)) for plan in plans),
            **listing(smallest(plans), scheduled),
            peak=PeakStep(
                step=step,
                node=timeline.steps[step].label if timeline.steps else None,
                tensors=tuple(BufferRow.of(timeline.spans[k], scheduled.symbolic) for k in problem.live_at(step)),
            ),
            largest=tuple(
                BufferRow.of(span, scheduled.symbolic)
                for span in sorted(timeline.spans, key=lambda span: (-span.bytes, span.lower))[:10]
            ),
            unknown=tuple(map(UnknownTensor.of, timeline.unknown)),
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimate(OnModel):
    """What a model will take: its weights, its activations by strategy, and the formula behind them."""

    SCHEMA: ClassVar[str] = "onnxmem.estimate/1"

    about: ModelFacts
    alignment: int
    weights: WeightsFacts
    activations: Activations
    formula: PeakFormula | None
    formula_note: str | None
    table: tuple[SizedPeak, ...]
    processes: tuple[Forecast, ...] | Unknown
    """What the whole process will take, in each mode."""
    tiling: TilingFacts | None = None
    """What computing parts of the model in pieces would give, where that was asked for; no other figure has it."""
    budget: BudgetFacts | Unknown | None = None
    """What it takes to keep runs to a budget, where that was asked for."""
    device: OnDevice | Unknown | None = None
    """What it will take on a GPU, where that was asked for."""

    @property
    def weights_bytes(self) -> int:
        """All constants of the graph, as they lie in memory."""
        return sum(self.weights.bytes_by_source.values())

    @property
    def best(self) -> StrategyRow:
        """The smallest of the plans."""
        return self.activations.best

    def derived(self) -> Mapping[str, Any]:
        """The sum of the weights."""
        return {"weights_bytes": self.weights_bytes}

    def __repr__(self) -> str:
        plan = f"{format_bytes(self.best.peak_bytes)} by {self.best.name}{', optimal' if self.best.optimal else ''}"
        return f"<Estimate of {self.about.model}: weights {format_bytes(self.weights_bytes)}, activations {plan}>"


def estimate(
    model: str | PathLike[str] | Model,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    view: str | None = None,
    level: str = "all",
    fix_dims: bool = False,
    order: str = "ort-default",
    alias: bool = True,
    in_place: bool = True,
    count_inputs: bool = False,
    alignment: int = ALIGNMENT,
    strategies: Sequence[str] = STRATEGIES,
    threads: int | None = None,
    processes: bool = True,
    tile: bool = False,
    extra_work: float | None = None,
    budget: int | str | None = None,
    device: str = HOST,
    time_limit: float = 20.0,
    seed: int = 0,
) -> Estimate:
    """How much memory will this model take? `estimate("m.onnx", shapes={"x": (1, 3, 640, 640)})`.

    `shapes` are those of inputs, `dims` numbers for free dimensions; what neither decides is assumed, and the result
    says so and has a formula for it. `view` is "raw" (the graph as in the file) or "optimized" at a `level` (as ONNX
    Runtime would run it; the default, if it can load it), with `fix_dims` optimized for just these dimensions. `order`
    is that of the nodes, `strategies` the names of planners to compare. `alias`, `in_place` and `count_inputs` are what
    shares memory, and whether inputs count. With `processes`, the whole process is predicted for each mode, run with so
    many `threads`; that needs a figure of this environment, which is measured in a process of its own the first time,
    and kept. With `tile` the result says what computing parts of the model in pieces would give, with at most
    `extra_work` more to compute (0.1 is 10 %). With a `budget` ("64MiB") it says what it takes to keep a run to that:
    nothing, a few rows of a batch at a time, or tiles; with "least", what every step down to the least that is possible
    costs. On another `device` (`cuda`, `cuda:1`) it is about the memory there: the graph is the one that ONNX Runtime
    would run on it, and its kernels are asked, one by one, what they take. `time_limit` are the seconds for all of it
    together, but for the search of such steps.
    """
    work = checked_extra_work(tile=tile, extra_work=extra_work)
    question = Question(
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        dims=dims or {},
        view=view,
        level=level,
        fix_dims=fix_dims,
        order=order,
        rules=Rules(alias=alias, in_place=in_place, inputs=count_inputs),
        alignment=alignment,
        device=device_number(device),
        time_limit=time_limit,
        seed=seed,
    )
    check_device(device)
    opened = model if isinstance(model, Model) else Model.open(model)
    found = compute_estimate(
        opened,
        question,
        strategies,
        threads=threads,
        processes=processes,
        extra_work=work,
        budget=parse_bytes(budget) if isinstance(budget, str) and budget != LEAST else budget,
    )
    return found[0]


def compute_estimate(
    model: Model,
    question: Question,
    strategies: Sequence[str] = STRATEGIES,
    *,
    threads: int | None = None,
    processes: bool = True,
    extra_work: float | None = None,
    budget: int | str | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Estimate, Scheduled, Plan]:
    """The answer, and what it was made from: the model laid out in time, and its smallest plan."""
    if budget is not None:
        check_runnable(question, "a budget")
    if question.device is not None and (budget is not None or extra_work is not None):
        raise UsageError("tiles and budgets are estimated for the CPU's memory", hint="leave the device out")
    deadline = Deadline(question.time_limit)
    scheduled = schedule(model, question, deadline)
    plans = [
        solve(
            scheduled.problem,
            name,
            time_limit=deadline.share(STAGE_SHARE),
            effort=question.time_limit * _EFFORT,
            seed=question.seed,
        )
        for name in strategies
    ]
    formula, note, general = None, None, None
    if scheduled.assumed:
        general = graph_of(model, question, scheduled.given, deadline)
        symbolic = {tensor.name: tensor for tensor in general.all_tensors() if isinstance(tensor.size, Expr)}
        scheduled = replace(scheduled, symbolic=symbolic)
        formula, note = _formula(general, question, scheduled, deadline)
    result = Estimate(
        about=ModelFacts.of(scheduled),
        alignment=scheduled.problem.alignment,
        weights=WeightsFacts.of(list(scheduled.graph.all_weights()), model.duplicates()),
        activations=Activations.of(scheduled, plans),
        formula=PeakFormula.of(formula) if formula else None,
        formula_note=note,
        table=_table(formula, scheduled) if formula else (),
        processes=_processes(scheduled, question, threads, deadline, general, formula)
        if processes
        else Unknown("it was not asked for"),
        tiling=tile_schedule(model, question, deadline, extra_work)[1] if extra_work is not None else None,
        budget=_budget(scheduled, question, threads, budget, on_progress) if budget is not None else None,
        device=None if question.device is None else _on_device(scheduled, question, deadline, on_progress),
    )
    return result, scheduled, smallest(plans)


def _processes(
    scheduled: Scheduled,
    question: Question,
    threads: int | None,
    deadline: Deadline,
    general: Graph | None,
    formula: Formula | None,
) -> tuple[Forecast, ...] | Unknown:
    if question.device is not None:
        return Unknown("it was asked for the memory of a device")
    if not scheduled.graph.view.startswith("optimized"):
        return Unknown("the graph as in the file is not what ONNX Runtime runs")
    if deadline.passed:
        return Unknown("the time limit was over")
    try:
        subject = Subject.of_scheduled(scheduled, question.level, threads)
        environment = calibration()
        forecasts = tuple(forecast_mode(subject, mode, environment) for mode in MODES)
        if general is None or formula is None:
            return forecasts
        found = find_formulas(subject, general, formula, MODES, environment, deadline)
        return tuple(replace(forecast, formula=found[forecast.mode]) for forecast in forecasts)
    except OnnxmemError as error:
        return Unknown(str(error))


def _budget(
    scheduled: Scheduled, question: Question, threads: int | None, budget: int | str, on_progress: OnProgress | None
) -> BudgetFacts | Unknown:
    subject = Subject.of_scheduled(scheduled, question.level, threads)
    step = on_progress or (lambda _: None)
    return budget_facts(subject, None if isinstance(budget, str) else budget, lambda what: step(Progress(what)))


def _on_device(
    scheduled: Scheduled, question: Question, deadline: Deadline, on_progress: OnProgress | None
) -> OnDevice | Unknown:
    assert question.device is not None
    try:
        return forecast_on_device(
            scheduled.model, scheduled.graph, question.level, question.device, deadline, on_progress
        )
    except OnnxmemError as error:
        return Unknown(str(error))


def smallest(plans: Sequence[Plan]) -> Plan:
    """The smallest of the plans; among equals the last, since strategies are listed from naive to best."""
    return min(reversed(plans), key=lambda plan: plan.peak)


def _formula(
    general: Graph, question: Question, scheduled: Scheduled, deadline: Deadline
) -> tuple[Formula | None, str | None]:
    timeline = order_graph(general, question, deadline, scheduled.assumed)
    if not timeline.symbols:
        return None, "the peak does not depend on the free dimensions"
    formula = peak_formula(timeline, time_limit=deadline.left)
    if formula is None:
        return None, "the formula was not found in time"
    more = len(timeline.unknown) - len(scheduled.timeline.unknown)
    note = f"{more} tensors whose size is known only for given numbers are not in the formula" if more > 0 else None
    return formula, note


def _table(formula: Formula, scheduled: Scheduled) -> tuple[SizedPeak, ...]:
    """The formula where people would try it: each dimension doubled a few times, the others as assumed."""
    base = {name: _to_multiple(n, formula.multiples.get(name, 1)) for name, n in scheduled.assumed.items()}
    batch = [name for name, n in base.items() if n == formula.multiples.get(name, 1) == 1]
    sizes = [name for name in base if name not in batch]
    rows = [{**base, **{name: base[name] * factor for name in sizes}} for factor in (1, 2, 4)]
    rows += [{**base, **dict.fromkeys(batch, factor)} for factor in (2, 4, 8, 16)]
    used = set(formula.symbols)
    unique = {tuple(row.items()): row for row in rows}.values()
    return tuple(
        SizedPeak(dims=row, peak_bytes=formula.at({name: n for name, n in row.items() if name in used}))
        for row in unique
    )


def _to_multiple(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
