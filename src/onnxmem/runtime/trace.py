"""What does a model really ask its allocator for? One run's allocations and frees, kernels' scratch included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onnxmem.errors import ModelError, PlanError
from onnxmem.plan.problem import Int64Array, Problem

ALIGNMENT = 64
OUTLIVES = -1


@dataclass(frozen=True, eq=False)
class Trace:
    """One row per buffer: its size, and when it was allocated and freed, counted in calls.

    An upper of -1 says that the buffer outlived the run: it is an output.
    """

    sizes: Int64Array
    lowers: Int64Array
    uppers: Int64Array

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def steps(self) -> int:
        """How many calls there were."""
        return int(max(self.lowers.max(initial=-1), self.uppers.max(initial=-1))) + 1

    @cached_property
    def inside(self) -> Int64Array:
        """The buffers that live within the run, by their row: those that a plan places."""
        return np.flatnonzero(self.uppers != OUTLIVES)

    @property
    def output_bytes(self) -> int:
        """What outlived the run."""
        return int(self.sizes[self.uppers == OUTLIVES].sum())

    def problem(self, *, outputs: bool = False, guard: int = 0) -> Problem:
        """The placement problem: buffers that live within the run; with `outputs`, also those that outlive it."""
        rows = np.arange(len(self)) if outputs else self.inside
        uppers = np.where(self.uppers == OUTLIVES, self.steps, self.uppers)[rows]
        padded = self.sizes[rows] if not guard else -(-self.sizes[rows] // ALIGNMENT) * ALIGNMENT + guard
        return Problem(tuple(f"a{row}" for row in rows), self.lowers[rows], uppers, padded, ALIGNMENT)

    def prefix(self, step: int) -> Trace:
        """The part before a step, in which whatever is alive at its end stays alive until then."""
        rows = self.lowers < step
        uppers = np.where(self.uppers[rows] > step, step, self.uppers[rows])
        return Trace(self.sizes[rows], self.lowers[rows], uppers)

    def document(self) -> dict[str, list[int]]:
        """As plain lists, for a file."""
        return {name: getattr(self, name).tolist() for name in ("sizes", "lowers", "uppers")}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Trace:
        """The trace that `document` wrote."""
        try:
            columns = (np.asarray(document[name], np.int64) for name in ("sizes", "lowers", "uppers"))
            return cls(*columns)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"this is not a trace: {error}") from error


def record(path: str | bytes, feeds: Mapping[str, Any], options: Any = None) -> Trace:
    """Run a model once and write down what it asks for. `path` is a file or a serialized model."""
    from onnxmem.runtime.planned import PlannedSession  # noqa: PLC0415

    try:
        session = PlannedSession(path, options, ["CPUExecutionProvider"], plan_seconds=0)
        session.run(None, feeds)
    except Exception as error:
        raise ModelError(f"the model does not run: {str(error).splitlines()[0] if str(error) else error!r}") from error
    traces = session.traces()
    if not traces:
        raise ModelError("the run left no trace", hint="a session that runs nodes in parallel cannot be recorded")
    return traces[0]
