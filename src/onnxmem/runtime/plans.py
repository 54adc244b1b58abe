"""The plans of a session, one per combination of input shapes: recorded, solved, followed, and given up.

A shape's life: the first run *records*; its trace is *solved*; later runs *replay* it. A run that deviates is right
all the same, because from there on it is served from the heap. A shape that deviates again and again is cut to the
part that is always the same, or left to the heap for good.
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
from onnxmem.plan.plan import Plan
from onnxmem.plan.strategies import solve
from onnxmem.plan.validate import validate
from onnxmem.runtime.trace import OUTLIVES, Trace

# A deviation is one strike; four clean runs take one back: a shape that deviates less often than that keeps its plan.
STRIKES = 3.0
_CLEAN_RUN = 0.25
# A part of a run is worth following if it holds at least this much of what the whole run needs.
_WORTHWHILE = 0.5
_CUTS = 3
# The first plan must not keep the caller waiting; the background has more time.
_AT_ONCE = 0.1


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
    """One shape's trace, plan and fortune. A shape without a tape is served from the heap, and `reason` says why."""

    key: RunKey
    trace: Trace
    plan: Plan
    tape: native.Tape | None
    steps: int
    """How many of the trace's calls are followed; fewer than all if the rest depends on the data."""
    replayed: int = 0
    deviated: int = 0
    strikes: float = 0.0
    cuts: int = 0
    earliest: int | None = None
    last: Deviation | None = None
    reason: str = ""


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
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def peak(self) -> int:
        """What the largest plan takes."""
        with self.lock:
            return max((shape.tape.peak for shape in self.shapes.values() if shape.tape), default=0)

    def find(self, key: RunKey) -> ShapePlan | None:
        """The shape's plan, if it has been recorded."""
        with self.lock:
            shape = self.shapes.get(key)
            if shape is not None:
                self.shapes.move_to_end(key)
            return shape

    def recorded(self, key: RunKey, trace: Trace) -> ShapePlan:
        """Take a new trace, with a plan that was found at once."""
        shape = self._solved(key, trace)
        with self.lock:
            self.counts.recorded += 1
            self._keep(shape)
        return shape

    def improved(self, shape: ShapePlan, plan: Plan) -> bool:
        """Follow a better plan from the next run on; False if the shape has gone other ways meanwhile."""
        tape = self._tape(shape.trace, plan, shape.steps)
        with self.lock:
            if shape.tape is None or plan.problem is not shape.plan.problem or plan.peak > shape.plan.peak:
                return False
            shape.plan, shape.tape = plan, tape
            return True

    def ran(self, shape: ShapePlan, deviation: Deviation | None) -> None:
        """Count a replay that ended well, or deviated."""
        if deviation is None:
            with self.lock:
                self.counts.replayed += 1
                shape.replayed += 1
                shape.strikes = max(0.0, shape.strikes - _CLEAN_RUN)
            return
        with self.lock:
            self.counts.deviated += 1
            shape.deviated += 1
            shape.last = deviation
            shape.strikes += 1
            shape.earliest = min(deviation.step, shape.steps if shape.earliest is None else shape.earliest)
            if shape.strikes < STRIKES or shape.tape is None:
                return
            step, shape.strikes, shape.earliest = shape.earliest, 0.0, None
            if shape.replayed == 0 and shape.cuts == 0 and shape.key not in self.again:
                # It never fitted once: perhaps another release or machine made it. It is recorded again, once.
                self.again.add(shape.key)
                self.shapes.pop(shape.key, None)
                return
        self._give_up(shape, deviation, step)

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
            shapes = [shape for shape in self.shapes.values() if shape.tape is not None]
        return [_document(shape) for shape in shapes]

    def load(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take plans that `documents` wrote: the first run of their shapes is already planned."""
        for document in documents:
            shape = self._read(document)
            with self.lock:
                self._keep(shape)

    def _keep(self, shape: ShapePlan) -> None:
        self.shapes[shape.key] = shape
        self.shapes.move_to_end(shape.key)
        while len(self.shapes) > self.limit:
            self.shapes.popitem(last=False)

    def _solved(self, key: RunKey, trace: Trace, step: int | None = None) -> ShapePlan:
        steps = trace.steps if step is None else step
        part = trace if step is None else trace.prefix(step)
        plan = solve(part.problem(guard=self.guard), "best", time_limit=_AT_ONCE)
        return ShapePlan(key, trace, plan, self._tape(trace, plan, steps), steps)

    def _tape(self, trace: Trace, plan: Plan, steps: int) -> native.Tape:
        """What native replays follow: every buffer's offset, or -1 for the heap."""
        whole = steps >= trace.steps
        part = trace if whole else trace.prefix(steps)
        offsets = np.full(len(part), -1, np.int64)
        offsets[part.inside] = plan.offsets
        # A cut tape has no call for what is alive at its end: those may be freed at any time, in any order.
        uppers = part.uppers if whole else np.where(part.uppers >= steps, OUTLIVES, part.uppers)
        return native.Tape(part.sizes, part.lowers, uppers, offsets, self.guard, not whole)

    def _give_up(self, shape: ShapePlan, last: Deviation, step: int) -> None:
        """Follow only the part of the run that is always the same, or nothing."""
        why = f"{last.what} at step {last.step} of {shape.trace.steps}, {shape.deviated} times"
        cut = None
        whole = shape.trace.problem(guard=self.guard).lower_bound
        part = shape.trace.prefix(step)
        if shape.cuts < _CUTS and part.problem(guard=self.guard).lower_bound >= _WORTHWHILE * whole > 0:
            cut = self._solved(shape.key, shape.trace, step)
        with self.lock:
            if cut is not None:
                shape.plan, shape.tape, shape.steps, shape.cuts = cut.plan, cut.tape, cut.steps, shape.cuts + 1
                shape.reason = f"only the first {cut.steps} steps are planned: {why}"
            else:
                shape.tape = None
                shape.reason = f"served from the heap for good: {why}"

    def _read(self, document: Mapping[str, Any]) -> ShapePlan:
        try:
            inputs = tuple((str(name), tuple(map(int, dims))) for name, dims in document["inputs"])
            key = RunKey(inputs, tuple(map(str, document["outputs"])), tuple(map(str, document["bound"])))
            trace, steps = Trace.of(document), int(document["steps"])
            part = trace if steps >= trace.steps else trace.prefix(steps)
            plan = Plan(part.problem(), np.asarray(document["offsets"], np.int64), "loaded")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"this is not a plan that onnxmem wrote: {error!r}") from error
        if self.guard:
            return self._solved(key, trace)  # guards need room that the file's plan does not have
        validate(plan)
        try:
            return ShapePlan(key, trace, plan, self._tape(trace, plan, steps), steps)
        except ValueError as error:
            raise PlanError(f"this plan cannot be followed: {error}") from error


def _document(shape: ShapePlan) -> dict[str, Any]:
    return {
        "inputs": [[name, list(dims)] for name, dims in shape.key.inputs],
        "outputs": list(shape.key.outputs),
        "bound": list(shape.key.bound),
        "steps": shape.steps,
        **shape.trace.document(),
        "offsets": shape.plan.offsets.tolist(),
        "peak_bytes": shape.plan.peak,
        "lower_bound_bytes": shape.plan.proven_bound,
    }
