"""What estimates and plans hold: facts about the model, and rows for buffers and strategies, all of them plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from onnxmem.documents import Document, Record, stored
from onnxmem.model.dims import Dim
from onnxmem.model.graph import Tensor
from onnxmem.placement.plan import Plan
from onnxmem.result import Result, check_schema
from onnxmem.schedule.formula import Formula, Piece
from onnxmem.schedule.scheduled import Scheduled
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Span, Timeline
from onnxmem.unknown import Unknown

MOST_PLACED = 20_000

Shape = tuple[int | str | None, ...] | None
"""A dimension is a number, an expression of the model's own names, or None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class InputFacts(Record):
    """What a caller feeds."""

    dtype: str
    shape: Shape
    symbolic_shape: Shape = None
    """As the model has it, free dimensions by their names."""


@dataclass(frozen=True, kw_only=True)
class Dimensions(Record):
    """The model's free dimensions: those the caller decided, and the numbers assumed for the others."""

    given: Mapping[str, int]
    assumed: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class OrderSearch(Record):
    """What the order search proved about all orders."""

    optimal: bool
    proven_bound_bytes: int
    seconds: float

    @classmethod
    def of(cls, timeline: Timeline) -> OrderSearch | None:
        """None for an order that was not searched for."""
        found = timeline.search
        if not found.proven_bound:
            return None
        return cls(optimal=found.optimal, proven_bound_bytes=found.proven_bound, seconds=found.seconds)


@dataclass(frozen=True, kw_only=True)
class ModelFacts(Record):
    """The model, the graph that was looked at, and the order of its nodes."""

    model: str
    file_bytes: int
    view: str
    nodes: int
    steps: int
    order: str
    order_search: OrderSearch | None
    rules: Rules
    inputs: Mapping[str, InputFacts]
    dims: Dimensions
    notes: tuple[str, ...]

    @classmethod
    def of(cls, scheduled: Scheduled) -> ModelFacts:
        graph, timeline = scheduled.graph, scheduled.timeline
        tensors = {name: graph.tensors[name] for name in graph.inputs if name in graph.tensors}
        free = scheduled.model.inputs
        return cls(
            model=scheduled.model.name,
            file_bytes=scheduled.model.file_size,
            view=graph.view,
            nodes=len(graph.nodes),
            steps=len(timeline.steps),
            order=timeline.order,
            order_search=OrderSearch.of(timeline),
            rules=timeline.rules,
            inputs={
                name: InputFacts(dtype=t.dtype, shape=plain_shape(t.shape), symbolic_shape=plain_shape(free.get(name)))
                for name, t in tensors.items()
            },
            dims=Dimensions(given=dict(scheduled.given), assumed=dict(scheduled.assumed)),
            notes=graph.notes,
        )

    @property
    def title(self) -> str:
        """Model, graph and order, for the top of a picture."""
        return f"{self.model}, {self.view}, {self.order} order"


class OnModel(Result):
    """A result with `about`, the facts of its model: in the document they stand beside the other keys."""

    def document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        document = super().document()
        return document | (document.pop("about") or {})

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The result that `document` wrote."""
        check_schema(document, cls.SCHEMA)
        return super().from_document({**document, "about": document if document.get("model") is not None else None})


@dataclass(frozen=True, kw_only=True)
class BufferRow(Record):
    """A buffer of `size` bytes, alive from step `lower` up to, not including, `upper`.

    What only buffers of a model have is None for others: the type and shape of the tensor that it holds first, whether
    that is an `activation`, an `output` or an `input`, and the node that writes it. `consumers` are the nodes that read
    it, in the order in which they run.

    `may_share` names the buffers over which this one may be written, and `over` the one over which it is: both lie at
    the same offset, and that one is dead from `lower` on.
    """

    name: str
    dtype: str | None = None
    shape: Shape = None
    size: int = stored("bytes")
    kind: str | None = None
    lower: int
    upper: int
    offset: int | None = None
    producer: str | None = None
    consumers: tuple[str, ...] = ()
    symbolic_shape: Shape = None
    """The shape in the model's own dimensions, where some were left open."""
    symbolic_bytes: str | None = None
    may_share: tuple[str, ...] | None = None
    over: str | None = None

    def document(self) -> dict[str, Any]:
        """As plain data; what does not apply is left out."""
        return {key: value for key, value in super().document().items() if value is not None or key == "producer"}

    @classmethod
    def of(cls, span: Span, symbolic: Mapping[str, Tensor], offset: int | None = None) -> BufferRow:
        tensor = span.tensors[0]
        general = symbolic.get(tensor.name)
        return cls(
            name=span.id,
            dtype=tensor.dtype,
            shape=plain_shape(tensor.shape),
            size=span.bytes,
            kind=span.kind,
            lower=span.lower,
            upper=span.upper,
            offset=offset,
            producer=span.producer,
            consumers=span.consumers,
            symbolic_shape=plain_shape(general.shape) if general else None,
            symbolic_bytes=str(general.size) if general else None,
        )


@dataclass(frozen=True, kw_only=True)
class UnknownTensor(Record):
    """A tensor whose size cannot be told before the model runs, and why; no figure includes it."""

    name: str
    dtype: str
    shape: Shape
    reason: str

    def derived(self) -> Mapping[str, Any]:
        """Its size, which is not known."""
        return {"bytes": None}

    @classmethod
    def of(cls, tensor: Tensor) -> UnknownTensor:
        reason = tensor.size.reason if isinstance(tensor.size, Unknown) else ""
        return cls(name=tensor.name, dtype=tensor.dtype, shape=plain_shape(tensor.shape), reason=reason)


@dataclass(frozen=True, kw_only=True)
class Rated(Record):
    """The peak of a plan, and how good it is: no plan takes less than `proven_bound_bytes`."""

    peak_bytes: int
    proven_bound_bytes: int
    seconds: float
    interrupted: bool = False
    """Whether Ctrl-C ended the search: a longer one might have found a smaller plan."""

    @property
    def optimal(self) -> bool:
        """Is it proven that no plan is smaller?"""
        return self.peak_bytes == self.proven_bound_bytes

    @property
    def gap(self) -> float:
        """How far above the proven bound, as a fraction: 0.0 is optimal."""
        return self.peak_bytes / self.proven_bound_bytes - 1 if self.proven_bound_bytes else 0.0

    def derived(self) -> Mapping[str, Any]:
        """Whether it is optimal, and if not, how far from it at most."""
        return {"optimal": self.optimal, "gap": self.gap}


def rating(plan: Plan) -> dict[str, Any]:
    """What `Rated` holds, of a plan."""
    return {
        "peak_bytes": plan.peak,
        "proven_bound_bytes": plan.proven_bound,
        "seconds": plan.seconds,
        "interrupted": plan.interrupted,
    }


def listing(plan: Plan, scheduled: Scheduled | None) -> dict[str, Any]:
    """Where every buffer lies, and the nodes in their order; a note instead for huge problems, whose document nobody
    could open."""
    if len(plan.problem) > MOST_PLACED:
        return {"placement": None, "placement_note": f"more than {MOST_PLACED:,} buffers are not listed"}
    offsets = plan.offsets.tolist()
    if scheduled is not None:
        timeline = scheduled.timeline
        rows = zip(timeline.spans, offsets, strict=True)
        placed = (BufferRow.of(span, scheduled.symbolic, offset) for span, offset in rows)
        return {"placement": tuple(placed), "schedule": timeline.steps}
    befores: dict[int, list[str]] = {}
    for before, after in plan.problem.shares.tolist():
        befores.setdefault(after, []).append(plan.problem.ids[before])
    over = {after: plan.problem.ids[before] for before, after in plan.shared.tolist()}
    plain = (
        BufferRow(
            name=b.id,
            size=b.size,
            lower=b.lower,
            upper=b.upper,
            offset=offset,
            may_share=tuple(befores[row]) if row in befores else None,
            over=over.get(row),
        )
        for row, (b, offset) in enumerate(zip(plan.problem, offsets, strict=True))
    )
    return {"placement": tuple(plain)}


def plain_shape(shape: Iterable[Dim] | None) -> Shape:
    """A shape as plain data."""
    if shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None if "?" in str(dim) else str(dim) for dim in shape)


@dataclass(frozen=True, kw_only=True)
class PeakFormula(Record):
    """The peak for any size, as text: `text` where `holds_for` is true, and the largest of `general` everywhere."""

    dims: tuple[str, ...]
    text: str = stored("peak_bytes")
    holds_for: str
    multiples: Mapping[str, int]
    """The short form holds where each of these dimensions is a multiple of its number."""
    pieces: tuple[Piece, ...]
    """The short form, in bytes: the largest of these."""
    general: tuple[str, ...]

    @classmethod
    def of(cls, formula: Formula) -> PeakFormula:
        return cls(
            dims=formula.symbols,
            text=formula.text,
            holds_for=formula.condition,
            multiples=dict(formula.multiples),
            pieces=formula.pieces,
            general=tuple(map(str, formula.general)),
        )


@dataclass(frozen=True, kw_only=True)
class SizedPeak(Record):
    """The formula at one useful size."""

    dims: Mapping[str, int]
    peak_bytes: int
