"""What is to be done about a plan that runs deviate from? Decided here, from nothing but how its runs went.

A shape that deviates again and again is adapted: a buffer whose size depends on the data is left out, or the plan is
cut to the part that is always the same; or else the shape is served from the heap for good. One that never fitted at
all is recorded once more: perhaps another release or machine made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnxmem._native import arena as native
from onnxmem.session.planned.placing import Placement, follow, place
from onnxmem.session.planned.trace import Trace

if TYPE_CHECKING:
    from onnxmem.session.memory import Deviation

# A deviation is one strike; four clean runs take one back: a shape that deviates less often than that keeps its plan.
STRIKES = 3.0
_CLEAN_RUN = 0.25
# A part of a run is worth following if it holds at least this much of what the whole run needs.
_WORTHWHILE = 0.5
_CUTS = 3
# So many buffers of a shape may have a size that depends on the data; they are on the heap, the others are planned.
_LEFT_OUT = 64


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How the runs of one shape went. `deviated` counts all of them; strikes and steps, those since the last change."""

    deviated: int = 0
    strikes: float = 0.0
    steps: frozenset[int] = frozenset()
    """At which steps runs deviated."""
    cuts: int = 0
    left_out: int = 0
    fitted: bool = False
    """Whether a run has followed the plan to its end."""
    recorded_again: bool = False
    last: Deviation | None = None


class Change(Enum):
    """What is to be done about a plan."""

    RECORD_AGAIN = "record it again"
    LEAVE_OUT = "plan without the buffer that is allocated at a step"
    CUT = "follow only what comes before a step, or nothing"


class Advice(NamedTuple):
    """A change, and the step it is about."""

    change: Change
    step: int


def adapt(
    conduct: Conduct, deviation: Deviation | None, *, first_differs: bool = False
) -> tuple[Conduct, Advice | None]:
    """The conduct after one more run, and what is to be done about the plan; mostly nothing.

    If the `first_differs` from all later ones, as where kernels try out algorithms in it, the second is recorded, too.
    """
    if deviation is None:
        return replace(conduct, strikes=max(0.0, conduct.strikes - _CLEAN_RUN), fitted=True), None
    steps = conduct.steps | {deviation.step}
    of_size = deviation.kind.name == "ALLOCATION_OF_ANOTHER_SIZE" and len(steps) == 1 and conduct.left_out < _LEFT_OUT
    strikes = conduct.strikes + 1
    after = replace(conduct, deviated=conduct.deviated + 1, strikes=strikes, steps=steps, last=deviation)
    changed = bool(conduct.cuts or conduct.left_out)
    new = not (conduct.fitted or changed or conduct.recorded_again)
    if strikes < (STRIKES - 1 if of_size else STRIKES) and not (new and first_differs):
        return after, None
    after = replace(after, strikes=0.0, steps=frozenset())
    if new:
        return after, Advice(Change.RECORD_AGAIN, 0)
    if of_size:
        return replace(after, left_out=conduct.left_out + 1), Advice(Change.LEAVE_OUT, deviation.step)
    return replace(after, cuts=conduct.cuts + 1), Advice(Change.CUT, min(steps))


class Followed(NamedTuple):
    """What is followed from now on; without a tape, nothing is. `reason` says why it is not all of the run."""

    placement: Placement
    tape: native.Tape | None
    reason: str


def in_common(traces: Sequence[Trace]) -> tuple[Trace, int | None]:
    """What several runs of one shape have in common, to be planned; and where to cut, if they go apart at some step.

    Buffers that are not always of the same size are left out. What is hardly a part of the largest run is not worth a
    cut: then that run is planned as it is.
    """
    largest = max(traces, key=lambda trace: trace.bound())
    calls, cut = largest.calls, largest.steps
    for other in traces:
        both = min(cut, other.steps)
        differ = np.flatnonzero(calls[:both] != other.calls[:both])
        cut = int(differ[0]) if len(differ) else both
    whole = all(trace.steps == cut for trace in traces)
    part = largest if whole else largest.prefix(cut)
    if part.bound() < _WORTHWHILE * largest.bound():
        return largest, None
    sizes = np.array([trace.sizes[: len(part)] for trace in traces])
    steps = part.lowers[(sizes != sizes[0]).any(axis=0)]
    for step in steps if len(steps) <= _LEFT_OUT else ():
        part = part.without(int(step))
    return part, None if whole else cut


def apply(advice: Advice, conduct: Conduct, trace: Trace, before: Placement, guard: int) -> Followed:
    """Carry out what `adapt` advised: leave a buffer out, or cut."""
    whole = trace.ended(before.offsets >= 0)  # what an earlier cut left without an end still has a place
    if advice.change is Change.LEAVE_OUT:
        part = whole.without(advice.step)
        placement = place(part, guard=guard)
        tape = follow(part, placement, guard=guard, cut=trace.steps if conduct.cuts else None)
        count = conduct.left_out
        which = "1 buffer is on the heap: its" if count == 1 else f"{count} buffers are on the heap: their"
        return Followed(placement, tape, f"{which} size depends on the data")
    assert conduct.last is not None
    times = "once" if conduct.deviated == 1 else f"{conduct.deviated} times"
    why = f"{conduct.last.kind.value} at step {conduct.last.step} of {trace.steps}, {times}"
    part = whole.prefix(advice.step)
    if conduct.cuts > _CUTS or not part.bound(guard) >= _WORTHWHILE * before.bound > 0:
        return Followed(before, None, f"served from the heap for good: {why}")
    placement = place(part, guard=guard)
    tape = follow(part, placement, guard=guard, cut=advice.step)
    return Followed(placement, tape, f"only the first {advice.step} steps are planned: {why}")
