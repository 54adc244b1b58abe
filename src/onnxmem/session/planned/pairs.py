"""Which buffers of a run may share a place, and what must be so for it: what `sharing.py` finds, and files keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnxmem.errors import PlanError
from onnxmem.placement.shares import NO_PAIRS, Int64Array
from onnxmem.session.planned.source import Source
from onnxmem.session.planned.trace import Trace

if TYPE_CHECKING:
    from onnxmem.session.planned.profile import NodeCalls


class Question(NamedTuple):
    """What a kernel is asked: how it broadcasts decides which of its routines runs."""

    op: str
    dtype: str
    forms: tuple[str, ...]
    """One per input: for each axis of the output, 1 if the input has it and 0 if it is stretched along it. Axes that
    all inputs have alike count as one. For the norms, what the input is."""

    @property
    def key(self) -> str:
        return " ".join([self.op, self.dtype, *self.forms])


class Trust(Enum):
    """When a run with shared places is right."""

    ALL = "if it made all the recorded calls and no others"
    PREFIX = "if it made all the recorded calls up to the last that concerns a shared place"


class Need(NamedTuple):
    """A kernel, and the inputs that it must be able to write over."""

    question: Question
    positions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sharing:
    """Pairs of buffers, by row of a trace, of which the second may be written over the first."""

    pairs: Int64Array = field(default_factory=lambda: NO_PAIRS)
    trust: Trust = Trust.ALL
    needs: tuple[Need, ...] = ()
    order: str = ""
    """How the session that was recorded ordered its nodes."""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """By row, the name of the node that writes over something."""

    def __bool__(self) -> bool:
        return bool(len(self.pairs))

    def document(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {
            "pairs": self.pairs.tolist(),
            "trust": self.trust.name,
            "order": self.order,
            "needs": [[need.question.op, need.question.dtype, need.question.forms, need.positions]
                      for need in self.needs],
            "nodes": {str(row): name for row, name in self.nodes.items()},
        }  # fmt: skip

    @classmethod
    def from_document(cls, document: Any) -> Sharing:
        """What `document` wrote."""
        try:
            return cls(
                np.array(document["pairs"], np.int64).reshape(-1, 2),
                Trust[document["trust"]],
                tuple(Need(Question(str(op), str(dtype), tuple(map(str, forms))), tuple(map(int, positions)))
                      for op, dtype, forms, positions in document["needs"]),
                str(document["order"]),
                {int(row): str(name) for row, name in document["nodes"].items()},
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"these are not pairs of buffers: {error}") from error

    def has(self, pairs: Int64Array) -> bool:
        """Whether all of these are among its own."""
        return set(map(tuple, pairs.tolist())) <= set(map(tuple, self.pairs.tolist()))

    def within(self, count: int) -> Sharing:
        """The same, if they are pairs of so many buffers; or else an error."""
        if self and not (self.pairs.min() >= 0 and self.pairs.max() < count):
            raise PlanError("a pair names a buffer that is not there")
        return self

    def for_trace(self, mine: Trace, other: Trace) -> Sharing:
        """The pairs of one trace in another, of equal sizes again there; none unless every call is of the same kind."""
        if not (np.array_equal(mine.lowers, other.lowers) and np.array_equal(mine.uppers, other.uppers)):
            return NOTHING
        same = other.sizes[self.pairs[:, 0]] == other.sizes[self.pairs[:, 1]]
        return replace(self, pairs=self.pairs[same])


NOTHING = Sharing()


@dataclass(frozen=True, kw_only=True)
class Sharer:
    """Finds the pairs of a session's runs, and what its kernels allow."""

    threads: int
    """How many threads the kernels use."""
    source: Source
    """What is certain about the model."""
    order: str
    """What decides the order of the nodes."""

    def find(self, trace: Trace, nodes: Sequence[NodeCalls]) -> Sharing:
        """The pairs of a recorded run whose nodes are known."""
        from onnxmem.session.planned.sharing import find  # noqa: PLC0415  few sessions come so far

        return replace(find(trace, nodes, self.threads, self._left_out), order=self.order)

    def allows(self, sharing: Sharing) -> bool:
        """Whether the kernels that are here allow what was found elsewhere."""
        from onnxmem.session.planned.rules import known_rules  # noqa: PLC0415

        rules = known_rules()
        allowed = self.order == sharing.order and all(
            need.question.op not in self._left_out and rules.allow(need.question, need.positions, self.threads)
            for need in sharing.needs
        )
        rules.keep()
        return allowed

    @property
    def _left_out(self) -> tuple[str, ...]:
        """Operators whose kernels were asked about one routine, where the model may use another."""
        certain = {"QuickGelu": self.source.plain_silu, "Gelu": self.source.plain_gelu}
        return tuple(op for op, is_certain in certain.items() if not is_certain)
