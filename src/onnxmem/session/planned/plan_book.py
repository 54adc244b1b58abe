"""The plans of a session, one per combination of input shapes: recorded, solved, followed, and given up.

A shape's life: the first run *records*; its trace is *solved*; later runs *replay* it. A run that deviates is right
all the same, because from there on it is served from the heap. A shape that deviates again and again is adapted: a
buffer whose size depends on the data is left out, or the plan is cut to the part that is always the same; or else the
shape is left to the heap for good.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onnxmem._native import arena as native
from onnxmem.errors import PlanError
from onnxmem.placement.problem import Int64Array
from onnxmem.session.planned.placing import AT_ONCE, Placement, follow, place
from onnxmem.session.planned.trace import OUTLIVES, Trace

# A deviation is one strike; four clean runs take one back: a shape that deviates less often than that keeps its plan.
STRIKES = 3.0
_CLEAN_RUN = 0.25
# A part of a run is worth following if it holds at least this much of what the whole run needs.
_WORTHWHILE = 0.5
_CUTS = 3
# So many buffers of a shape may have a size that depends on the data; they are on the heap, the others are planned.
_FREE_SIZES = 64
_ANOTHER_SIZE = "an allocation of another size"


class RunKey(NamedTuple):
    """What decides what a run asks for: the shapes that go in, and the outputs that are wanted or already there."""

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[str, ...]
    bound: tuple[str, ...] = ()


class Deviation(NamedTuple):
    """The first call of a run that was not the recorded one."""

    what: str
    step: int
    expected_bytes: int
    asked_bytes: int


@dataclass(eq=False)
class ShapePlan:
    """One shape's plan and fortune. A shape without a tape is served from the heap, and `reason` says why."""

    key: RunKey
    placement: Placement
    tape: native.Tape | None
    replayed: int = 0
    deviated: int = 0
    strikes: float = 0.0
    cuts: int = 0
    free_sizes: int = 0
    places: set[int] = field(default_factory=set)
    """Steps at which runs deviated since the plan was last adapted."""
    last: Deviation | None = None
    reason: str = ""

    @property
    def trace(self) -> Trace | None:
        """What is followed, as it was recorded."""
        return Trace(*self.tape.trace) if self.tape else None


@dataclass
class Counts:
    """How the runs of a session were served."""

    recorded: int = 0
    replayed: int = 0
    deviated: int = 0
    heap: int = 0
    overruns: int = 0


@dataclass(eq=False)
class PlanBook:
    """All shapes of a session, the most recently used last; the least recently used is forgotten when it is full."""

    limit: int
    guard: int = 0
    counts: Counts = field(default_factory=Counts)
    shapes: OrderedDict[RunKey, ShapePlan] = field(default_factory=OrderedDict)
    again: set[RunKey] = field(default_factory=set)
    """Shapes whose first trace never came again, and that were recorded a second time."""
    outlasting: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    """Which allocations, by number, outlived a run of any shape: where outputs are expected in the next new shape."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def peak(self) -> int:
        """What the largest plan takes."""
        with self.lock:
            return max((shape.tape.peak for shape in self.shapes.values() if shape.tape), default=0)

    @property
    def full(self) -> bool:
        """Whether the next new shape takes the place of another."""
        return len(self.shapes) >= self.limit

    def find(self, key: RunKey) -> ShapePlan | None:
        """The shape's plan, if it has been recorded."""
        with self.lock:
            shape = self.shapes.get(key)
            if shape is not None:
                self.shapes.move_to_end(key)
            return shape

    def recorded(self, key: RunKey, trace: Trace) -> ShapePlan:
        """Take a new trace, with a plan that was found at once."""
        # Where there are so many shapes that each is soon forgotten, none is worth a long search.
        placement = place(trace, guard=self.guard, seconds=AT_ONCE / 10 if self.full else AT_ONCE)
        shape = ShapePlan(key, placement, follow(trace, placement, guard=self.guard))
        with self.lock:
            self.counts.recorded += 1
            # Not union1d, which imports masked arrays: more than a MiB in the middle of somebody's first run.
            numbers = {*self.outlasting.tolist(), *np.flatnonzero(trace.uppers == OUTLIVES).tolist()}
            self.outlasting = np.array(sorted(numbers), np.int64)
            self._keep(shape)
        return shape

    def unfollowable(self, key: RunKey) -> None:
        """A run made so many calls for so little memory that following them would take more than it saves."""
        with self.lock:
            self.counts.recorded += 1
            reason = "served from the heap for good: its calls are so many that a plan would take more than it saves"
            self._keep(ShapePlan(key, Placement(np.empty(0, np.int64), 0, 0), None, reason=reason))

    def improved(self, shape: ShapePlan, better: Placement) -> bool:
        """Follow a better plan from the next run on; False if the shape has gone other ways meanwhile."""
        before, tape = shape.placement, shape.tape
        if tape is None or better.peak > before.peak:
            return False
        new = native.Tape(*tape.trace, better.offsets, self.guard, tape.cut)
        with self.lock:
            if shape.tape is not tape:
                return False
            shape.placement, shape.tape = better, new
            return True

    def ran(self, shape: ShapePlan, deviation: Deviation | None) -> None:
        """Count a replay that ended well, or deviated."""
        with self.lock:
            if deviation is None:
                self.counts.replayed += 1
                shape.replayed += 1
                shape.strikes = max(0.0, shape.strikes - _CLEAN_RUN)
                return
            self.counts.deviated += 1
            shape.deviated += 1
            shape.last = deviation
            shape.strikes += 1
            shape.places.add(deviation.step)
            of_size = deviation.what == _ANOTHER_SIZE and len(shape.places) == 1 and shape.free_sizes < _FREE_SIZES
            if shape.tape is None or shape.strikes < (STRIKES - 1 if of_size else STRIKES):
                return
            step, shape.strikes, shape.places = min(shape.places), 0.0, set()
            adapted = shape.cuts or shape.free_sizes
            if shape.replayed == 0 and not adapted and shape.key not in self.again:
                # It never fitted once: perhaps another release or machine made it. It is recorded again, once.
                self.again.add(shape.key)
                self.shapes.pop(shape.key, None)
                return
        if of_size:
            self._leave_out(shape, step)
        else:
            self._cut(shape, deviation, step)

    def from_heap(self) -> None:
        """Count a run that no plan served."""
        with self.lock:
            self.counts.heap += 1

    def overran(self, times: int) -> None:
        """Count writes behind the end of a buffer, which only a book with guards notices."""
        with self.lock:
            self.counts.overruns += times

    def documents(self) -> list[dict[str, Any]]:
        """All plans as plain data, for a file."""
        with self.lock:
            shapes = [(shape.key, shape.placement, shape.tape) for shape in self.shapes.values()]
        return [_document(key, placement, tape) for key, placement, tape in shapes if tape is not None]

    def load(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take plans that `documents` wrote: the first run of their shapes is already planned."""
        for document in documents:
            shape = _read(document, self.guard)
            with self.lock:
                self._keep(shape)

    def _keep(self, shape: ShapePlan) -> None:
        self.shapes[shape.key] = shape
        self.shapes.move_to_end(shape.key)
        while len(self.shapes) > self.limit:
            self.shapes.popitem(last=False)

    def _leave_out(self, shape: ShapePlan, step: int) -> None:
        """Plan without the buffer that was allocated at that step: its size depends on the data."""
        if (trace := shape.trace) is None:
            return
        part = trace.without(step)
        placement = place(part, guard=self.guard)
        tape = follow(part, placement, guard=self.guard, cut=part.steps if shape.cuts else None)
        with self.lock:
            shape.free_sizes += 1
            shape.placement, shape.tape = placement, tape
            shape.reason = f"{shape.free_sizes} buffers are on the heap: their size depends on the data"

    def _cut(self, shape: ShapePlan, last: Deviation, step: int) -> None:
        """Follow only the part of the run that is always the same, or nothing."""
        trace, tape = shape.trace, None
        if trace is None:
            return
        why = f"{last.what} at step {last.step} of {trace.steps}, {shape.deviated} times"
        placement, part = shape.placement, trace.prefix(step)
        if shape.cuts < _CUTS and part.bound(self.guard) >= _WORTHWHILE * shape.placement.bound > 0:
            placement = place(part, guard=self.guard)
            tape = follow(part, placement, guard=self.guard, cut=step)
        with self.lock:
            shape.cuts += 1
            shape.placement, shape.tape = placement, tape
            part_only = f"only the first {step} steps are planned: {why}"
            shape.reason = part_only if tape else f"served from the heap for good: {why}"


def solved(key: RunKey, trace: Trace, *, seconds: float) -> dict[str, Any]:
    """A plan as `documents` writes it, searched for longer than a caller's first run may wait."""
    placement = place(trace, seconds=seconds)
    return _document(key, placement, follow(trace, placement))


def _document(key: RunKey, placement: Placement, tape: native.Tape) -> dict[str, Any]:
    return {
        "inputs": [[name, list(dims)] for name, dims in key.inputs],
        "outputs": list(key.outputs),
        "bound": list(key.bound),
        "cut": tape.cut,
        **Trace(*tape.trace).document(),
        "offsets": tape.offsets.tolist(),
        "peak_bytes": tape.peak,
        "lower_bound_bytes": placement.bound,
    }


def _read(document: Mapping[str, Any], guard: int) -> ShapePlan:
    try:
        inputs = tuple((str(name), tuple(map(int, dims))) for name, dims in document["inputs"])
        key = RunKey(inputs, tuple(map(str, document["outputs"])), tuple(map(str, document["bound"])))
        trace, bound = Trace.from_document(document), int(document["lower_bound_bytes"])
        offsets = np.asarray(document["offsets"], np.int64)
        # The library checks every offset against every other: a file is not trusted.
        tape = native.Tape(trace.sizes, trace.lowers, trace.uppers, offsets, 0, bool(document["cut"]))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise PlanError(f"this is not a plan that can be followed: {error}") from error
    placement = Placement(offsets, tape.peak, bound)
    if guard:
        # Guards need room that the file's plan does not have.
        placement = place(trace, guard=guard)
        tape = follow(trace, placement, guard=guard)
    return ShapePlan(key, placement, tape)
