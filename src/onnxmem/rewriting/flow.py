"""Where does an axis go through an operator? If an output is cut along it, which inputs must be cut, and where?

One table for two questions: whether the rows of a batch stay apart (`batch.py`), and which part of a graph can be
computed in blocks (`blocks.py`). An axis is a multiple of the `unit` that is followed: a batch of n, or the n·s tokens
that it was merged into; each of its n parts lies in one piece. Shapes may be numbers or expressions of names.

What no rule in `axis_rules.py` allows, is not followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from onnxmem.model.dims import Dim, floor_div

Shape: TypeAlias = "tuple[Dim, ...] | None"
CONTRIB = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
"""Operators that work on blocks of channels."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A node, as far as an axis cares."""

    op_type: str
    domain: str
    attributes: Mapping[str, Any]
    inputs: tuple[Shape, ...]
    """None: the input is not there, or its shape is not known."""
    outputs: tuple[Shape, ...]
    values: tuple[tuple[int, ...] | None, ...]
    """What the inputs hold, where those are a few integers that are known."""
    opset: int
    given: tuple[bool, ...]
    """Which of the inputs are there."""

    @property
    def rank(self) -> int:
        """How many axes its first output has."""
        return len(self.outputs[0] or ())

    def attribute(self, name: str, default: Any) -> Any:
        """One of its attributes; text comes as text."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def integers(self, place: int, name: str) -> list[int] | None:
        """What newer versions of an operator take as an input, and older ones as an attribute; None if not known."""
        if place < len(self.given) and self.given[place]:
            found = self.values[place]
            return None if found is None else list(found)
        value = self.attributes.get(name)
        return None if value is None else list(value)

    def has(self, place: int) -> bool:
        """Whether there is such an input."""
        return place < len(self.given) and self.given[place]


@dataclass(frozen=True)
class Flow:
    """Where the axis is in each input and output; None: not there, so that all of it belongs to every part."""

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


def is_multiple(dim: Dim, unit: Dim) -> bool:
    """Whether a dimension is the unit, so and so many times."""
    return floor_div(dim, unit) * unit == dim and dim != 0


def cut(shape: Sequence[Dim], axis: int | None, unit: Dim, part: Dim) -> tuple[Dim, ...]:
    """The shape of a tensor that is cut along an axis, where `part` of the unit is left."""
    return tuple(floor_div(dim, unit) * part if place == axis else dim for place, dim in enumerate(shape))
