import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

_Column = npt.NDArray[np.int64]

HANDED_FROM: int
"""From this size on, an output is put into pages that its run has done with."""

class Tape:
    def __init__(
        self,
        sizes: _Column,
        lowers: _Column,
        uppers: _Column,
        offsets: _Column,
        guard: int = 0,
        cut: bool = False,
        over: _Column | None = None,
        alignment: int = 64,
    ) -> None: ...
    @property
    def peak(self) -> int: ...
    @property
    def cut(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def offsets(self) -> _Column: ...
    @property
    def over(self) -> _Column:
        """For each buffer the one whose place it takes, -1 for none; empty if nothing shares."""
    @property
    def trace(self) -> Recorded: ...

class PoolStats:
    regions: int
    bytes: int
    largest: int
    lent: int
    escaped: int
    waits: int
    refusals: int

class Pool:
    def __init__(self, limit: int, waits: bool, huge: bool, device: Device | None = None) -> None: ...
    def trim(self) -> None: ...
    def shrink(self, size: int) -> None: ...
    def stats(self) -> PoolStats: ...

class DeviceStats:
    heap_bytes: int
    """Device memory of everything outside of regions: weights, outputs, and what is kept for later ones."""
    live_bytes: int
    live_blocks: int
    synchronizations: int
    """How often the device was waited for, so that it is done with what was freed."""

class Device:
    """A CUDA device, one object per number and process."""

    @property
    def number(self) -> int: ...
    @property
    def maps(self) -> bool:
        """Whether the driver has virtual memory, so that memory can grow and go back in pieces."""
    def stats(self) -> DeviceStats: ...
    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the whole device, as the driver says."""
    def trim(self) -> None:
        """Give back what is kept and the device is certainly done with."""
    def settle(self) -> None:
        """Wait for the device: then it is done with all that has been freed."""
    def synchronize(self) -> None: ...
    def allocate(self, size: int) -> int: ...
    def release(self, address: int) -> None: ...

class HeapStats:
    live_bytes: int
    live_blocks: int
    unknown_frees: int

class Recorded:
    complete: bool
    """False: so many calls were made that writing them down was given up, and there are no columns."""
    alignment: int
    marks: int
    """How often ONNX Runtime asked how far the run has come."""
    sizes: _Column
    lowers: _Column
    uppers: _Column

class DeviationKind(enum.Enum):
    PLACE_TAKEN = ...
    ALLOCATION_AFTER_THE_LAST = ...
    ALLOCATION_INSTEAD_OF_FREE = ...
    ALLOCATION_OF_ANOTHER_SIZE = ...
    FREE_INSTEAD_OF_ALLOCATION = ...
    FREE_OF_ANOTHER_BUFFER = ...
    BUFFER_OUTLIVED_THE_RUN = ...
    ENDED_EARLY = ...

class Deviation:
    kind: DeviationKind
    step: int
    expected_bytes: int
    asked_bytes: int

class Replayed:
    deviation: Deviation | None
    overruns: int
    marks: int
    """How often ONNX Runtime asked how far the run has come."""

def place_in_sequence(sizes: _Column, lowers: _Column, uppers: _Column, alignment: int = 64) -> _Column: ...
def connected() -> bool: ...
def enlist() -> str: ...
def withdraw() -> str: ...
def open_device(number: int, driver: str) -> Device:
    """Raises RuntimeError with the reason, if it cannot be used."""

def enlist_device(device: Device) -> str: ...
def withdraw_device(device: Device) -> str: ...
def begin_heap(device: Device | None = None) -> None: ...
def begin_record(limited: bool = True, device: Device | None = None) -> None: ...
def begin_record_inside(pool: Pool, size: int, outlasting: _Column) -> bool: ...
def begin_replay(tape: Tape, pool: Pool) -> bool: ...
def mark_as(token: int) -> None: ...
def end_run(settled: bool = True) -> Recorded | Replayed | None: ...
def within(
    begin: Callable[..., Any],
    how: tuple[Any, ...],
    token: int,
    enter: Callable[[], None],
    leave: Callable[[], None],
    run: Callable[..., Any],
    arguments: tuple[Any, ...],
    settles: bool,
    /,
) -> tuple[Any, Any, BaseException | None, Recorded | Replayed | None]:
    """Begin a run with one of the functions above, do it, and end it, whatever is raised meanwhile. What `begin`
    returned, the outputs, what ended the run early, and what `end_run` says."""

def tracked_objects() -> list[Any]:
    """All that the garbage collector knows but for tuples, gathered without letting other threads run."""

def heap_stats() -> HeapStats: ...
def trim_heap() -> None: ...
def allocate(size: int) -> int: ...
def release(address: int) -> None: ...
