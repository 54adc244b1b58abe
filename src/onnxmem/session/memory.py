"""What does a session take to run, and was it planned? `session.memory`, also where the answer is no and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from onnxmem.documents import Record, stored
from onnxmem.unknown import Bytes


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
