"""What is known of a tensor while shapes are inferred: element type, shape, and the gaps in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onnxmem.model.dims import Dim
from onnxmem.model.values import MOST_DIMENSIONS, Value


@dataclass(frozen=True)
class TensorType:
    """Element type and shape; a shape of None, or a dimension named `?…`, is not known."""

    elem_type: int
    shape: tuple[Dim, ...] | None
    reason: str = ""
    """Why the shape is None."""

    @classmethod
    def of(cls, elem_type: int, dims: Sequence[Dim]) -> TensorType:
        """With a shape, if it is one that can be followed."""
        if len(dims) > MOST_DIMENSIONS:
            return cls(elem_type, None, f"it has {len(dims)} dimensions, and at most {MOST_DIMENSIONS} are followed")
        return cls(elem_type, tuple(dims))


@dataclass
class Scope:
    """What is known of the names of one graph; lookups go on in the graph around it."""

    outer: Scope | None = None
    types: dict[str, TensorType] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    children: dict[tuple[int, int], Scope] = field(default_factory=dict)
    """Scopes of subgraphs, by (node, graph within the node)."""

    def type_of(self, name: str) -> TensorType | None:
        found = self.types.get(name)
        return found or (self.outer.type_of(name) if self.outer else None)

    def value_of(self, name: str) -> Value | None:
        # A name of this graph hides the same name outside, known value or not.
        if name in self.types or self.outer is None:
            return self.values.get(name)
        return self.outer.value_of(name)


@dataclass(frozen=True)
class Partial:
    """A shape with gaps."""

    elem_type: int
    shape: tuple[Dim | None, ...] | None
    reason: str = ""

    @property
    def complete(self) -> bool:
        return self.shape is not None and None not in self.shape

    def filled(self, other: Sequence[Dim | None] | None, elem_type: int) -> Partial:
        """This, with its gaps filled from `other` where the ranks agree."""
        shape = self.shape
        if shape is None and other is not None:
            shape = tuple(other)
        elif shape is not None and other is not None and len(other) == len(shape):
            shape = tuple(b if a is None else a for a, b in zip(shape, other, strict=True))
        return Partial(self.elem_type or elem_type, shape, self.reason)


def partial_of(kind: TensorType | None) -> Partial:
    return Partial(kind.elem_type, kind.shape, kind.reason) if kind else Partial(0, None)


def either(kinds: Sequence[TensorType | None], reason: str) -> Partial:
    """What two possible shapes have in common."""
    known = [kind for kind in kinds if kind is not None]
    if not known or any(kind.shape is None for kind in known):
        return Partial(known[0].elem_type if known else 0, None, reason)
    shapes = [kind.shape or () for kind in known]
    if len({len(shape) for shape in shapes}) > 1:
        return Partial(known[0].elem_type, None, reason)
    dims = tuple(column[0] if len(set(column)) == 1 else None for column in zip(*shapes, strict=True))
    return Partial(known[0].elem_type, dims, reason)
