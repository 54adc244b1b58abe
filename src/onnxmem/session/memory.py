"""What does a session take to run, and was it planned? `session.memory`, also where the answer is no and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from onnxmem.documents import Record, stored
from onnxmem.unknown import Bytes, Unknown

if TYPE_CHECKING:
    from onnxmem.session.planned.plan_book import ShapePlan


class DeviationKind(Enum):
    """What a run did that the recorded one did not; named as in the native library."""

    PLACE_TAKEN = "a place was taken"
    ALLOCATION_AFTER_THE_LAST = "an allocation after the last recorded one"
    ALLOCATION_INSTEAD_OF_FREE = "an allocation where a free was recorded"
    ALLOCATION_OF_ANOTHER_SIZE = "an allocation of another size"
    FREE_INSTEAD_OF_ALLOCATION = "a free where an allocation was recorded"
    FREE_OF_ANOTHER_BUFFER = "a free of another buffer"
    BUFFER_OUTLIVED_THE_RUN = "a buffer that outlived the run"
    ENDED_EARLY = "an early end"


@dataclass(frozen=True, kw_only=True)
class Deviation(Record):
    """The first call of a run that was not the recorded one."""

    kind: DeviationKind
    step: int
    expected_bytes: int
    asked_bytes: int


@dataclass(frozen=True, kw_only=True)
class ShapeMemory(Record):
    """One combination of input shapes: what its plan takes, and how its runs went."""

    inputs: Mapping[str, tuple[int, ...]]
    arena_bytes: Bytes
    bound_bytes: Bytes = stored("lower_bound_bytes")
    shared_places: int = 0
    """How many buffers are written over another that dies."""
    shared_bytes: int = 0
    """How much less the plan takes for that: at the least, than the most that is alive at once."""
    optimal: bool
    replayed: int
    deviated: int
    reason: str
    """Why it is not, or only partly, planned; empty if it is."""
    last_deviation: Deviation | None


@dataclass(frozen=True, kw_only=True)
class BatchMemory(Record):
    """A batch that was run in parts, to keep to the budget."""

    inputs: Mapping[str, tuple[int, ...]]
    rows: int
    rows_at_once: int
    """The rows of its largest part."""
    parts: int
    needed: int = stored("needed_bytes")
    """What its largest part takes, and the outputs of all of them."""
    runs: int


@dataclass(frozen=True, kw_only=True)
class SessionMemory(Record):
    """What a planned session takes to run, and how its runs were served; without a plan, why there is none."""

    reason: str
    """Why nothing is planned at all; empty if it is."""
    device: str = ""
    """The device that it runs on, if that is not the host."""
    device_bytes: int = 0
    """What its arena takes there, and the weights and outputs of all planned sessions on that device."""
    arena_bytes: Bytes
    """The memory of its arena: all regions, for all sessions that share it."""
    plan_bytes: Bytes
    """What the largest of its plans takes."""
    bound_bytes: Bytes = stored("lower_bound_bytes")
    """What is provably needed for the largest of its plans."""
    shared_places: int = 0
    """How many buffers of the largest of its plans are written over another that dies."""
    shared_bytes: int = 0
    """How much less that plan takes for it: at the least, than the most that is alive at once."""
    regions: int = 0
    runs_recorded: int = 0
    runs_replayed: int = 0
    runs_deviated: int = 0
    runs_from_heap: int = 0
    runs_repeated: int = 0
    """Runs that were done again, because they deviated and shared places."""
    waits: int = 0
    """How often a run had to wait for a region."""
    shapes_predicted: int = 0
    """How many shapes were planned before they ran for the first time, by what others had asked for."""
    shapes_kept: int = 0
    """How many shapes began with the plan that an earlier process left."""
    overruns: int = 0
    """Writes behind the end of a buffer; only a session with debug=True looks."""
    shapes: tuple[ShapeMemory, ...] = ()
    budget: int | None = stored("budget_bytes", default=None)
    """The most that a run may take, its outputs included, if anybody said so."""
    unsplit: str = ""
    """Why no batch can be run in parts; empty if it can be, or if there is no budget."""
    batches: tuple[BatchMemory, ...] = ()
    """The batches that were run in parts."""

    def with_others(self, others: Sequence[SessionMemory]) -> SessionMemory:
        """Together with sessions of other graphs in the same arena."""
        if not others:
            return self
        every = [self, *others]
        largest = max(every, key=lambda each: each.plan_bytes if isinstance(each.plan_bytes, int) else -1)
        counts = {name: sum(getattr(each, name) for each in every) for name in _COUNTED}
        shapes, batches = ([x for each in every for x in getattr(each, name)] for name in ("shapes", "batches"))
        # Why batches are not split is said of the package's own graph: the others are for one size each.
        unsplit = "" if any(not each.unsplit for each in every) else self.unsplit
        return replace(largest, **counts, unsplit=unsplit, shapes=tuple(shapes), batches=tuple(batches))


_COUNTED = (
    "runs_recorded",
    "runs_replayed",
    "runs_deviated",
    "runs_from_heap",
    "runs_repeated",
    "shapes_predicted",
    "overruns",
)


def shape_memory(shape: ShapePlan) -> ShapeMemory:
    """What a shape's runs take, by its plan."""
    none, placed = Unknown(shape.reason), shape.placement if shape.tape else None
    return ShapeMemory(
        inputs=dict(shape.key.inputs),
        arena_bytes=placed.peak if placed else none,
        bound_bytes=placed.bound if placed else none,
        shared_places=len(placed.shared) if placed else 0,
        shared_bytes=placed.saved if placed else 0,
        optimal=placed is not None and placed.optimal,
        replayed=shape.replayed,
        deviated=shape.conduct.deviated,
        reason=shape.reason,
        last_deviation=shape.conduct.last,
    )
