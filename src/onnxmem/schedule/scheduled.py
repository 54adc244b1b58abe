"""What is asked of a model, and the model laid out in time for it: `Question` → `Scheduled`, which is then planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxmem.model.bindings import bind, default_dimensions
from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Timeline, lay_out

# What ONNX Runtime's CPU allocators align to.
ALIGNMENT = 64


@dataclass(frozen=True)
class Question:
    """What is asked of a model: which graph, which sizes, which order, which rules."""

    shapes: Mapping[str, tuple[int, ...]]
    dims: Mapping[str, int]
    view: str | None = None
    level: str = "all"
    fix_dims: bool = False
    order: str = "ort-default"
    rules: Rules = field(default_factory=Rules)
    alignment: int = ALIGNMENT
    time_limit: float = 20.0
    """Seconds for finding shapes and the formula."""
    search_time_limit: float = 5.0
    """Seconds for the order `best`."""


@dataclass(frozen=True)
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

    @property
    def title(self) -> str:
        """Model, graph and order, for the top of a picture."""
        return f"{self.model.name}, {self.graph.view}, {self.timeline.order} order"


def schedule(model: Model, question: Question) -> Scheduled:
    """Read the graph at the sizes asked for (defaults where nothing is said) and lay it out in time."""
    given = bind(model.inputs, shapes=question.shapes, dims=question.dims)
    assumed = {name: n for name, n in default_dimensions(model.inputs).items() if name not in given}
    graph = graph_of(model, question, {**given, **assumed})
    timeline = lay_out(graph, question.order, question.rules, time_limit=question.search_time_limit)
    buffers = (Buffer(span.id, span.lower, span.upper, span.bytes) for span in timeline.spans)
    problem = Problem.of(buffers, alignment=question.alignment)
    return Scheduled(model, graph, timeline, problem, given, assumed)


def graph_of(model: Model, question: Question, bindings: Mapping[str, int]) -> Graph:
    return model.graph(
        bindings,
        view=question.view,
        level=question.level,
        fix_dims=question.fix_dims,
        numbered=question.order in ("ort-priority", "best"),
        time_limit=question.time_limit,
    )
