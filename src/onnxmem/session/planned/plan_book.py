"""The plans of a session, one per combination of input shapes: recorded, solved, followed, and given up.

The first run of a shape *records*; its trace is *solved*; later runs *replay* it. After a few shapes what others will
ask for is *predicted* (`formulas`), and their first run replays already. A run that deviates is right all the same,
because from there on it is served from what is free. What is done about those that deviate often is in `adapting`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxmem._native import arena as native
from onnxmem.errors import PlanError
from onnxmem.placement.problem import Int64Array
from onnxmem.session.planned.adapting import Change, Conduct, adapt, apply, in_common
from onnxmem.session.planned.pairs import NOTHING, Sharing, Trust
from onnxmem.session.planned.placing import AT_ONCE, Placement, follow, place
from onnxmem.session.planned.run_key import RunKey
from onnxmem.session.planned.trace import DEVICE_ALIGNMENT, OUTLIVES, Trace

if TYPE_CHECKING:
    from onnxmem.session.memory import Deviation
    from onnxmem.session.planned.formulas import Formulas


@dataclass(eq=False)
class ShapePlan:
    """One shape's plan, and how its runs went. Without a tape it is served from the heap, and `reason` says why."""

    key: RunKey
    placement: Placement
    tape: native.Tape | None
    conduct: Conduct = field(default_factory=Conduct)
    replayed: int = 0
    predicted: bool = False
    """Whether nothing was recorded: formulas say what its runs ask for."""
    kept: bool = False
    """Whether an earlier process left it, and no run has shown yet that it is right."""
    reason: str = ""
    sharing: Sharing = NOTHING
    """Which buffers may share places; which of them do, the placement says."""
    room: int = field(init=False)
    """What the whole run needed: buffers that are left out find pages there, and so does what comes after a cut."""

    def __post_init__(self) -> None:
        self.room = self.placement.peak

    def trusts(
        self, tape: native.Tape, deviation: Deviation | native.Deviation | None, *, failed: bool = False
    ) -> bool:
        """Whether a run that followed the tape is right: one that deviated may have shared what it must not. Whether
        one that `failed` did not do so because it shared."""
        if (deviation is None and not failed) or not len(tape.over):  # as nearly always
            return True
        if deviation is not None and deviation.step <= int(tape.trace.lowers[tape.over >= 0].min()):
            return True  # nothing had been shared yet
        if failed or deviation is None or self.sharing.trust is Trust.ALL:
            return False
        before = tape.over[tape.over >= 0]
        return deviation.step > int(tape.trace.uppers[before].max())

    @property
    def came_again(self) -> bool:
        """Whether this is the second run of the shape."""
        return self.replayed == 1 + self.predicted


@dataclass
class Counts:
    """How the runs of a session were served."""

    runs_recorded: int = 0
    runs_replayed: int = 0
    runs_deviated: int = 0
    runs_from_heap: int = 0
    runs_repeated: int = 0
    overruns: int = 0
    shapes_predicted: int = 0
    shapes_kept: int = 0


class PlanBook:
    """All shapes of a session, the most recently used last; the least recently used is forgotten when it is full.

    Many threads use it at once: whatever is read or written, is so under its lock. Searches happen outside of it.
    """

    def __init__(self, limit: int, guard: int = 0, device: native.Device | None = None) -> None:
        self.limit = limit
        self.guard = guard
        self.device = device
        self.make_locks()
        self._formulas: Formulas | None = None  # only sessions that see several shapes have any
        self._first: tuple[RunKey, Trace] | None = None
        self._counts = Counts()
        self._shapes: OrderedDict[RunKey, ShapePlan] = OrderedDict()
        self._recorded_again: set[RunKey] = set()
        self._outlasting: Int64Array = np.empty(0, np.int64)
        self._shared: tuple[Trace, Sharing] | None = None

    def make_locks(self) -> None:
        """Those of a process; a forked child needs others. A handler of signals may run the session that it
        interrupted, so that a thread may come twice."""
        self.lock = threading.RLock()
        self.learning = threading.RLock()  # takes longer: those who only look up a plan do not wait for it

    # What it says.

    @property
    def peak(self) -> int:
        """What the largest plan takes, or took before it was adapted."""
        return self.expected()[0]

    def expected(self) -> tuple[int, Int64Array]:
        """What a new shape may need: the largest plan, and which allocations, by number, outlived runs of others."""
        with self.lock:
            peak = max((shape.room for shape in self._all() if shape.tape), default=0)
            return peak, self._outlasting

    @property
    def full(self) -> bool:
        """Whether the next new shape takes the place of another."""
        with self.lock:
            return len(self._shapes) >= self.limit

    def find(self, key: RunKey) -> ShapePlan | None:
        """The shape's plan, if it has been recorded."""
        with self.lock:
            shape = self._shapes.get(key)
            if shape is not None:
                try:  # noqa: SIM105  every run comes here, and this costs nothing
                    self._shapes.move_to_end(key)
                except KeyError:  # a handler of signals has just run another, which took its place
                    pass
            return shape

    def followed(self, shape: ShapePlan) -> tuple[native.Tape | None, Placement]:
        """What is followed at this moment, and the placement that it was made from."""
        with self.lock:
            return shape.tape, shape.placement

    def snapshot(self) -> tuple[Counts, list[ShapePlan]]:
        """Everything as it is at this moment."""
        with self.lock:
            return replace(self._counts), [replace(shape) for shape in self._all()]

    def _all(self) -> list[ShapePlan]:
        """In one step: a handler of signals may run the session between any two."""
        return list(self._shapes.values())

    def documents(self) -> list[dict[str, Any]]:
        """All plans as plain data, for a file."""
        shapes = self.snapshot()[1]
        return [_document(shape.key, shape.placement, shape.tape) for shape in shapes if shape.tape]

    # What it takes in.

    def load(self, documents: Iterable[Mapping[str, Any]], *, allowed: Callable[[Sharing], bool] | None = None) -> None:
        """Take plans that `documents` wrote: the first run of their shapes is already planned.

        `allowed` says whether what they share may be shared here; without it, nothing is.
        """
        for document in documents:
            shape = _read(document, self.guard, allowed)
            if self.device is not None and shape.tape is not None and shape.tape.trace.alignment < DEVICE_ALIGNMENT:
                continue  # it is for the host
            with self.lock:
                self._keep(shape)
                if shape.sharing and self._shared is None and shape.tape is not None:
                    self._shared = Trace.recorded(shape.tape.trace), shape.sharing

    def recorded(self, key: RunKey, trace: Trace, sharing: Sharing | None = None) -> ShapePlan:
        """Take a new trace, with a plan that was found at once. `sharing` is known if the run was profiled."""
        if sharing:
            self._shared = trace, sharing
        shape = self._planned(key, trace)
        self._learn(key, trace)
        with self.lock:
            self._counts.runs_recorded += 1
            shape.conduct = Conduct(recorded_again=key in self._recorded_again)
            self._keep(shape)
        return shape

    def take(self, key: RunKey, trace: Trace, placement: Placement, *, provable: bool) -> ShapePlan:
        """Follow what an earlier process did. Where the next run cannot prove which buffers may share a place, only
        those do that are known already."""
        sharing = Sharing(placement.shared)
        if len(placement.shared) and not provable:
            sharing = self._known(trace)
            if not sharing.has(placement.shared):
                placement = place(trace, room=self.peak, pairs=sharing.pairs)
        shape = ShapePlan(key, placement, follow(trace, placement), sharing=sharing, kept=True)
        with self.lock:
            if (there := self._shapes.get(key)) is not None:  # another thread was faster
                return there
            self._counts.shapes_kept += 1
            self._keep(shape)
        return shape

    def prove(self, shape: ShapePlan, trace: Trace, found: Sharing | None) -> bool:
        """A run made all the calls of a kept plan. `found` are the pairs that may share in it, if its nodes were seen.

        False if others did: its outputs may be wrong, and the plan is another one now.
        """
        self._learn(shape.key, trace)
        sharing = self._known(trace) if found is None else found
        before = shape.placement
        right = sharing.has(before.shared)
        after = before if right else place(trace, pairs=sharing.pairs)
        tape = shape.tape if right else follow(trace, after)
        with self.lock:
            if found:
                self._shared = trace, found
            shape.placement, shape.tape = after, tape
            shape.room = max(shape.room, after.peak)
            shape.kept, shape.sharing = False, sharing
            self._counts.runs_repeated += not right
        return right

    def _known(self, trace: Trace) -> Sharing:
        """The pairs of another trace that was looked into, in this one."""
        return self._shared[1].for_trace(self._shared[0], trace) if self._shared else NOTHING

    def forget(self, shape: ShapePlan) -> None:
        """The next run of this shape is recorded."""
        with self.lock:
            if self._shapes.get(shape.key) is shape:
                self._shapes.pop(shape.key, None)

    def predict(self, key: RunKey) -> ShapePlan | None:
        """A plan for a shape that never ran, if what it will ask for is certain."""
        if self._formulas is None:
            return None
        with self.learning:
            trace = self._formulas.predict(key.kind, key.dims)
        return None if trace is None else self.expect(key, trace)

    def expect(self, key: RunKey, trace: Trace) -> ShapePlan:
        """Plan a shape that never ran, by what it is expected to ask for; the first run that does not, ends that."""
        shape = self._planned(key, trace)
        shape.predicted = True
        with self.lock:
            if (there := self._shapes.get(key)) is not None:  # another thread was faster
                return there
            self._counts.shapes_predicted += 1
            self._keep(shape)
        return shape

    def _learn(self, key: RunKey, trace: Trace) -> None:
        with self.lock:
            # Not union1d, which imports masked arrays: more than a MiB in the middle of somebody's first run.
            numbers = {*self._outlasting.tolist(), *np.flatnonzero(trace.uppers == OUTLIVES).tolist()}
            self._outlasting = np.array(sorted(numbers), np.int64)
        with self.learning:
            if self._formulas is None:
                if self._first is None or self._first[0] == key:
                    self._first = (key, trace)
                    return
                from onnxmem.session.planned.formulas import Formulas  # noqa: PLC0415  one shape needs none

                first, self._formulas, self._first = self._first, Formulas(), None
                self._formulas.learn(first[0].kind, first[0].dims, first[1])
            self._formulas.learn(key.kind, key.dims, trace)

    def _planned(self, key: RunKey, trace: Trace) -> ShapePlan:
        """With a plan that was found at once. A shape may never come again: a search is for those that need more room
        than there is, and a long one for those that will be remembered."""
        seconds = AT_ONCE / 10 if self.full else AT_ONCE
        sharing = NOTHING if key.overwrites else self._known(trace)
        placement = place(trace, guard=self.guard, seconds=seconds, room=self.peak, pairs=sharing.pairs)
        return ShapePlan(key, placement, follow(trace, placement, guard=self.guard), sharing=sharing)

    def unfollowable(self, key: RunKey) -> None:
        """A run made so many calls for so little memory that following them would take more than it saves."""
        reason = "served from the heap for good: its calls are so many that a plan would take more than it saves"
        with self.lock:
            self._counts.runs_recorded += 1
            self._keep(ShapePlan(key, Placement(np.empty(0, np.int64), 0, 0), None, reason=reason))

    def improved(self, shape: ShapePlan, tape: native.Tape, better: Placement) -> bool:
        """Follow a better placement of a tape from the next run on; False if the shape follows another meanwhile."""
        trace = Trace.recorded(tape.trace)
        new = native.Tape(*trace.columns, better.offsets, self.guard, tape.cut, better.over, trace.alignment)
        with self.lock:
            if shape.tape is not tape or better.peak > shape.placement.peak:
                return False
            shape.room -= shape.placement.peak - better.peak
            shape.placement, shape.tape = better, new
            return True

    def count(self, *, from_heap: int = 0, overruns: int = 0) -> None:
        """Count runs that no plan served, and writes behind the end of a buffer, which only guards notice."""
        with self.lock:
            self._counts.runs_from_heap += from_heap
            self._counts.overruns += overruns

    def unshare(self, shape: ShapePlan, tape: native.Tape, *, for_good: bool = False) -> None:
        """A run that shared places is not to be trusted: it is done again, and this shape shares nothing any more.

        Other shapes will not share what this one did, if it is `for_good`.
        """
        trace = Trace.recorded(tape.trace)
        placement = place(trace, guard=self.guard)
        new = follow(trace, placement, guard=self.guard)
        with self.lock:
            self._counts.runs_repeated += not for_good
            if for_good:
                self._shared = None
            if shape.tape is tape:
                shape.placement, shape.tape, shape.sharing = placement, new, NOTHING
                shape.room = max(shape.room, placement.peak)

    def ran(self, shape: ShapePlan, deviation: Deviation | None) -> bool:
        """Count a replay that ended well or deviated, and adapt the plan if that is often so. True: it has none now."""
        with self.lock:
            if deviation is None:
                self._counts.runs_replayed += 1
                shape.replayed += 1
                if shape.conduct.fitted and not shape.conduct.strikes:
                    return False  # as nearly always
            else:
                self._counts.runs_deviated += 1
        if deviation is not None and shape.predicted and not shape.conduct.fitted:
            self._mispredicted(shape)
            return False
        with self.lock:
            shape.conduct, advice = adapt(shape.conduct, deviation, first_differs=self.device is not None)
            conduct, tape, before = shape.conduct, shape.tape, shape.placement
            if advice is None or tape is None:
                return False
            if advice.change is Change.RECORD_AGAIN:
                self._recorded_again.add(shape.key)
                self._shapes.pop(shape.key, None)
                return False
        after = apply(advice, conduct, Trace.recorded(tape.trace), before, self.guard)
        with self.lock:
            shape.placement, shape.tape, shape.reason = after
            shape.sharing = NOTHING
        return after.tape is None

    def _mispredicted(self, shape: ShapePlan) -> None:
        """The next run of it is recorded, and its kind is predicted with more care."""
        with self.lock:
            self._shapes.pop(shape.key, None)
        if self._formulas is not None:
            with self.learning:  # not under the other lock: runs that only look up a plan would wait
                self._formulas.failed(shape.key.kind)

    def _keep(self, shape: ShapePlan) -> None:
        self._shapes.pop(shape.key, None)
        self._shapes[shape.key] = shape  # as the last
        while len(self._shapes) > self.limit:
            self._shapes.popitem(last=False)


def solved(key: RunKey, traces: Sequence[Trace], *, seconds: float, sharing: Sharing = NOTHING) -> dict[str, Any]:
    """A plan as `documents` writes it, of what several runs have in common; searched for longer than a run may wait.

    And another one in which buffers share places, for those sessions that may. `sharing` is about the first trace.
    """
    trace, cut = in_common(traces)
    placement = place(trace, seconds=seconds, worthwhile=0)
    document = _document(key, placement, follow(trace, placement, cut=cut))
    if not sharing or cut is not None or trace != traces[0]:
        return document
    shared = place(trace, seconds=seconds, worthwhile=0, pairs=sharing.pairs)
    if not len(shared.shared):
        return document
    return {**document, "sharing": {**sharing.document(), **_plan_document(shared, follow(trace, shared))}}


def _document(key: RunKey, placement: Placement, tape: native.Tape) -> dict[str, Any]:
    trace = Trace.recorded(tape.trace)
    if len(placement.shared):
        # Another session may run its nodes in another order: it could not tell which buffer is which.
        placement = place(trace)
        tape = follow(trace, placement)
    return {
        "inputs": [[name, list(dims)] for name, dims in key.inputs],
        "outputs": list(key.outputs),
        "bound": list(key.bound),
        "cut": tape.cut,
        **trace.document(),
        **_plan_document(placement, tape),
    }


def _plan_document(placement: Placement, tape: native.Tape) -> dict[str, Any]:
    return {"offsets": tape.offsets.tolist(), "peak_bytes": tape.peak, "lower_bound_bytes": placement.bound}


def _read(document: Mapping[str, Any], guard: int, allowed: Callable[[Sharing], bool] | None) -> ShapePlan:
    try:
        inputs = tuple((str(name), tuple(map(int, dims))) for name, dims in document["inputs"])
        key = RunKey(inputs, tuple(map(str, document["outputs"])), tuple(map(str, document["bound"])))
        trace, cut = Trace.from_document(document), bool(document["cut"])
        may_share = allowed and "sharing" in document and not key.overwrites
        sharing = Sharing.from_document(document["sharing"]) if may_share else NOTHING
        sharing = sharing if allowed and sharing and not cut and allowed(sharing) else NOTHING
        plan = document["sharing"] if sharing else document
        offsets = np.asarray(plan["offsets"], np.int64)
        pairs = sharing.within(len(trace)).pairs
        used = pairs[offsets[pairs[:, 0]] == offsets[pairs[:, 1]]]
        placement = Placement(offsets, 0, int(plan["lower_bound_bytes"]), shared=used)
        # The library checks every offset against every other: a file is not trusted.
        tape = native.Tape(*trace.columns, offsets, 0, cut, placement.over, trace.alignment)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise PlanError(f"this is not a plan that can be followed: {error}") from error
    placement = replace(placement, peak=tape.peak, saved=max(0, trace.bound() - tape.peak) if len(used) else 0)
    if guard:
        # Guards need room that the file's plan does not have.
        whole = trace.ended(offsets >= 0)
        placement = place(whole, guard=guard, pairs=pairs)
        tape = follow(whole, placement, guard=guard, cut=trace.steps if tape.cut else None)
    return ShapePlan(key, placement, tape, sharing=sharing)
