"""What is asked of a model, and the model laid out in time for it: `Question` → `Scheduled`, which is then planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxmem.deadline import Deadline
from onnxmem.errors import ImpossibleShapes, UsageError
from onnxmem.model.bindings import bind, default_dimensions
from onnxmem.model.graph import Graph, Tensor
from onnxmem.model.model import Model
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.schedule.orders import check_order_name
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Timeline, lay_out

# What ONNX Runtime's CPU allocators align to.
ALIGNMENT = 64


ORDER_EFFORT = 0.2
"""The part of the time limit that the search for an order takes on an ordinary processor …"""
STAGE_SHARE = 0.5
"""… and that any one stage takes at most, where that is slow or busy."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a model: which graph, which sizes, which order, which rules."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    view: str | None = None
    level: str = "all"
    fix_dims: bool = False
    order: str = "ort-default"
    rules: Rules = field(default_factory=Rules)
    alignment: int = ALIGNMENT
    device: int | None = None
    """The number of a CUDA device that it would run on; None: the CPU."""
    time_limit: float = 20.0
    """Seconds for the whole answer."""
    seed: int = 0
    """Where searches choose at random, they begin here."""

    def __post_init__(self) -> None:
        check_order_name(self.order)
        if self.alignment < 1:
            raise UsageError(f"alignment must be at least 1, not {self.alignment}")


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A model laid out in time: what the planner plans."""

    model: Model
    graph: Graph
    timeline: Timeline
    problem: Problem
    given: Mapping[str, int]
    """Dimensions the caller decided."""
    assumed: Mapping[str, int]
    """Dimensions the caller left open, and the numbers used for them."""
    symbolic: Mapping[str, Tensor] = field(default_factory=dict)
    """The tensors whose sizes depend on open dimensions, by name, with shapes and sizes in those, where asked for."""


def schedule(model: Model, question: Question, deadline: Deadline | None = None) -> Scheduled:
    """Read the graph at the sizes asked for (defaults where nothing is said) and lay it out in time."""
    deadline = deadline or Deadline(question.time_limit)
    graph, given, assumed = numbered_graph(model, question, deadline)
    timeline = order_graph(graph, question, deadline)
    problem = problem_of(timeline, question.alignment)
    return Scheduled(model=model, graph=graph, timeline=timeline, problem=problem, given=given, assumed=assumed)


def order_graph(
    graph: Graph, question: Question, deadline: Deadline, sample: Mapping[str, int] | None = None
) -> Timeline:
    """The graph laid out in the order asked for, at the dimensions in `sample` where it has free ones."""
    return lay_out(
        graph,
        question.order,
        question.rules,
        sample=sample,
        time_limit=deadline.share(STAGE_SHARE),
        effort=question.time_limit * ORDER_EFFORT,
        seed=question.seed,
        alignment=question.alignment,
    )


def numbered_graph(
    model: Model, question: Question, deadline: Deadline
) -> tuple[Graph, dict[str, int], dict[str, int]]:
    """The graph with a number for every dimension: those that the question decides, and what is assumed for others."""
    given = bind(model.inputs, shapes=question.shapes, dims=question.dims)
    assumed = {name: n for name, n in default_dimensions(model.inputs).items() if name not in given}
    try:
        return graph_of(model, question, {**given, **assumed}, deadline), given, assumed
    except ImpossibleShapes as error:
        if assumed:
            listed = ", ".join(f"{name}={number}" for name, number in assumed.items())
            error.hint = f"{listed} was assumed; give what suits the model, as in --dim {next(iter(assumed))}=N"
        raise


def problem_of(timeline: Timeline, alignment: int) -> Problem:
    """The placement problem of a timeline."""
    buffers = (Buffer(span.id, span.lower, span.upper, span.bytes) for span in timeline.spans)
    return Problem.of(buffers, alignment=alignment)


def graph_of(model: Model, question: Question, bindings: Mapping[str, int], deadline: Deadline) -> Graph:
    """The graph that the question is about, for these numbers of the free dimensions."""
    return model.graph(
        bindings,
        view=question.view,
        level=question.level,
        fix_dims=question.fix_dims,
        numbered=question.order in ("ort-priority", "best"),
        device=question.device,
        time_limit=deadline.left,
    )
