"""A batch whose rows do not mix: how is it cut, and when are results the same bit for bit?

What `proof.py` has found out about a model. Here is only what a session needs to run it, which parses no models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from onnxmem.documents import Record
from onnxmem.model.comparing import evaluate
from onnxmem.model.dim_documents import dim_document, dim_from
from onnxmem.model.dims import Dim, symbols_of
from onnxmem.rewriting.exactness import Condition, Sizes

ROWS = "rows of the batch"
"""The name of the dimension that is followed; no model's own, for the spaces in it."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch whose rows do not mix."""

    inputs: Mapping[str, int]
    """The inputs that are cut, and along which axis."""
    outputs: Mapping[str, int | None]
    """The outputs that come in rows, and along which axis; None for those that are the same for all rows."""
    shapes: Mapping[str, tuple[Dim, ...]]
    """The shapes of all inputs, with the batch under its name here."""
    made: Mapping[str, tuple[Dim, ...]]
    """The shapes of outputs that are the same whatever the inputs hold."""
    conditions: tuple[Condition, ...]
    """The nodes that are exact under conditions."""

    def dims(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int] | None:
        """The numbers of the free dimensions for inputs of these shapes; None if they do not go together."""
        found: dict[str, int] = {}
        for name, declared in self.shapes.items():
            given = shapes.get(name)
            if given is None or len(given) != len(declared):
                return None
            for dim, number in zip(declared, given, strict=True):
                (key,) = symbols_of(dim) or {""}
                if (dim if not key else found.setdefault(key, number)) != number:
                    return None
        return found

    def differs(self, dims: Mapping[str, int], rows: int, threads: int) -> str:
        """Why results of so many rows at once may not be those of all; empty if they are the same, bit for bit."""
        whole = Sizes(dims=dims, rows=dims[ROWS], threads=threads)
        part = Sizes(dims={**dims, ROWS: rows}, rows=rows, threads=threads)
        reasons = (f"{each.node}: {why}" for each in self.conditions if (why := each.differs(part, whole)))
        return next(reasons, "")

    def exact(self, dims: Mapping[str, int], threads: int) -> Iterator[int]:
        """The numbers of rows that give the same bits as all of them at once, ascending."""
        return (rows for rows in range(1, dims[ROWS]) if not self.differs(dims, rows, threads))

    def made_shapes(self, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the outputs, where these sizes decide them."""
        return {name: tuple(evaluate(dim, dims) for dim in shape) for name, shape in self.made.items()}

    def document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "shapes": {name: [dim_document(dim) for dim in shape] for name, shape in self.shapes.items()},
            "made": {name: [dim_document(dim) for dim in shape] for name, shape in self.made.items()},
            "conditions": [[c.rule, [dim_document(dim) for dim in c.sizes], c.node] for c in self.conditions],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The batch that `document` wrote."""
        conditions = (
            Condition(rule, tuple(map(dim_from, sizes)), node) for rule, sizes, node in document["conditions"]
        )
        return cls(
            inputs=document["inputs"],
            outputs=document["outputs"],
            shapes={name: tuple(map(dim_from, shape)) for name, shape in document["shapes"].items()},
            made={name: tuple(map(dim_from, shape)) for name, shape in document["made"].items()},
            conditions=tuple(conditions),
        )


@dataclass(frozen=True)
class Look(Record):
    """A model's file that is to be looked at by `proof.py` in a process of its own."""

    model: Path
    packed: bool


@dataclass(frozen=True)
class Looked(Record):
    """What was found: a batch as a JSON text, or why there is none."""

    batch: str
    reason: str
