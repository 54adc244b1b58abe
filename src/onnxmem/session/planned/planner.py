"""How does a run stay inside its plan? The first one is recorded, its placement solved, and later ones happen there.

A `Planner` belongs to one session, which asks it to run; the session's memory comes from the arena that it holds.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnxruntime

from onnxmem._native import arena as native
from onnxmem.placement.shares import Int64Array
from onnxmem.session.forked import renew_in_children
from onnxmem.session.planned.arena import own_arena
from onnxmem.session.planned.forks import GATE
from onnxmem.session.planned.pairs import Sharer, Sharing
from onnxmem.session.planned.placing import at_once, follow, warm_up
from onnxmem.session.planned.plan_book import PlanBook, ShapePlan
from onnxmem.session.planned.run_key import (
    Binding,
    RunKey,
    key_of_binding,
    key_of_run,
    shrinks,
    synchronizes,
    without_shrinking,
)
from onnxmem.session.planned.target import Target
from onnxmem.session.planned.trace import Trace
from onnxmem.session.planning import PlanningOptions
from onnxmem.unknown import Unknown

if TYPE_CHECKING:  # imported where somebody asks, or a run deviates: most sessions never do, and would be larger for it
    from onnxmem.session.memory import Deviation, SessionMemory

if TYPE_CHECKING:
    from onnxmem.session.planned.kept import KeptPlans
    from onnxmem.session.planned.profile import NodeCalls, Profile

_GUARD = 64
_TRIES = 8
"""After so many runs that did not end it, as all of them failed, the profile is given up: each makes it longer."""


class _Ended:
    """A run that is over, as `native.within` says."""

    __slots__ = ("begun", "failure", "outputs", "result")

    def __init__(self, begun: Any, outputs: Any, failure: BaseException | None, result: Any) -> None:
        self.begun, self.outputs, self.failure, self.result = begun, outputs, failure, result

    def by_itself(self, run_options: Any) -> bool:
        """Whether it failed though nobody interrupted or terminated it."""
        return isinstance(self.failure, Exception) and not (run_options is not None and run_options.terminate)

    def answer(self) -> Any:
        """Its outputs, or what ended it early; once, because the traceback has all that the run was given."""
        outputs, failure = self.outputs, self.failure
        self.outputs = self.failure = None
        if failure is None:
            return outputs
        try:
            raise failure
        finally:
            del failure


class Planner:
    """The plans of one session, and the arena they are in."""

    def __init__(
        self,
        options: PlanningOptions,
        sharer: Sharer | None = None,
        *,
        packaged: bool = False,
        target: Target = Target(),  # noqa: B008  it is immutable
        kept: KeptPlans | None = None,
    ) -> None:
        """Without a sharer, no buffers share places. A model that is `packaged` runs its nodes in the same order in
        every session, so that what a file says of them holds. `kept` are the plans that earlier processes left.
        """
        self.arena = options.arena or own_arena(options.trim_after, bool(options.huge_pages))
        self.device = target.device
        self._synchronizes = target.synchronizes
        self._pool = self.arena.pool_on(self.device)
        if self.device is not None:
            self.device.settle()  # weights can lie where those of a session lay that is gone
        # The host cannot look behind the ends of buffers on a device.
        guard = _GUARD if options.debug and self.device is None else 0
        self.book = PlanBook(options.max_plans or 16, guard, self.device)
        self._plan_seconds = 5.0 if options.plan_seconds is None else options.plan_seconds
        self._sharer = sharer
        self.outputs: frozenset[str] = frozenset()
        """All outputs of the model: asking for all of them by name is asking for nothing in particular."""
        self._kept = None if options.debug else kept  # guards need room that a kept plan does not have
        # Held in the first run, so that there is one run in the profile.
        self._first_run = threading.RLock()
        self._profile: Profile | None = None
        self._tries = 0
        renew_in_children(self)
        plans = tuple(options.plans or ())
        self.book.load(plans, allowed=sharer.allows if sharer and packaged else None)
        self.wants_profile = sharer is not None and not plans
        warm_up()

    def take_profile(self, profile: Profile | None) -> None:
        """The profile of a session that has just been made, and has not run."""
        self._profile = profile

    def end_profile(self, session: Any) -> None:
        """For runs that are not planned, which would make it longer and longer."""
        if self._profile is not None:
            with self._first_run:
                self._end_profile(session)

    def begin_anew(self) -> None:
        """In a forked child: other threads, which may have held locks, do not exist."""
        self._first_run = threading.RLock()
        self.book.make_locks()

    # What runs. `run` is onnxruntime's own, bound to the session: nothing else lies between the caller and it.

    def run(self, run: Callable[..., Any], output_names: Any, feeds: Any, run_options: Any) -> Any:
        """Run with feeds, which may be arrays or OrtValues."""
        placed = self._shrunk if run_options is not None and shrinks(run_options) else self._placed
        key = key_of_run(output_names, feeds, run_options, self.outputs, on_device=self.device is not None)
        return placed(key, run, output_names, feeds, run_options)

    def run_bound(self, run: Callable[..., Any], binding: Any, run_options: Any) -> None:
        """Run what is bound."""
        placed = self._shrunk if run_options is not None and shrinks(run_options) else self._placed
        placed(key_of_binding(binding), run, binding, run_options)

    def binding(self, session: Any) -> Binding:
        """A binding of which it knows the shapes."""
        return Binding(session)

    def bound_run(self, binding: Any) -> RunKey:
        """Which run one with this binding would be."""
        return key_of_binding(binding)

    def plain_run(self, output_names: Any, feeds: Any) -> RunKey:
        """Which run one with these feeds would be."""
        return key_of_run(output_names, feeds, None, self.outputs, on_device=self.device is not None)

    # What it takes.

    @property
    def memory(self) -> SessionMemory:
        """What it takes to run, and how its runs were served."""
        from onnxmem.session.memory import SessionMemory, shape_memory  # noqa: PLC0415

        pool, (counts, shapes) = self._pool.stats(), self.book.snapshot()
        largest = max((s.placement for s in shapes if s.tape), key=lambda placement: placement.peak, default=None)
        none = Unknown(next((shape.reason for shape in shapes if shape.reason), "no run has been planned yet"))
        return SessionMemory(
            reason="",
            device="" if self.device is None else f"CUDA device {self.device.number}",
            device_bytes=0 if self.device is None else pool.bytes + self.device.stats().heap_bytes,
            arena_bytes=pool.bytes,
            plan_bytes=largest.peak if largest else none,
            bound_bytes=largest.bound if largest else none,
            shared_places=len(largest.shared) if largest else 0,
            shared_bytes=largest.saved if largest else 0,
            regions=pool.regions,
            waits=pool.waits,
            **vars(counts),
            shapes=tuple(map(shape_memory, shapes)),
        )

    def traces(self) -> list[Trace]:
        """What the model asked for, one trace per shape that is planned."""
        return [Trace.recorded(shape.tape.trace) for shape in self.book.snapshot()[1] if shape.tape]

    # How.

    def _shrunk(self, key: RunKey, run: Callable[..., Any], *arguments: Any) -> Any:
        """Run, and give the arena back: what the option asks of ONNX Runtime's own arena, which is not there."""
        try:
            with without_shrinking(arguments[-1]):
                return self._placed(key, run, *arguments)
        finally:
            self.arena.trim()

    def _placed(self, key: RunKey, run: Callable[..., Any], *arguments: Any) -> Any:
        """Run inside the shape's plan, or record it if it has none."""
        if self._profile is not None:
            # Whoever forks waits until the profile is read, or its lock would stay locked in the child.
            with self._first_run, GATE.passed():
                self._reconsider_profile(key, run)
                return self._planned(key, run, *arguments)
        return self._planned(key, run, *arguments)

    def _planned(self, key: RunKey, run: Callable[..., Any], *arguments: Any) -> Any:
        shape = self.book.find(key) or self.book.predict(key) or self._take_kept(key, run)
        if shape is None:
            return self._recorded(key, run, *arguments)
        tape = shape.tape  # once: another thread may take it away
        token = self._profile.new_token() if self._profile is not None and shape.kept else 0
        begin, how = (native.begin_heap, (self.device,)) if tape is None else (native.begin_replay, (tape, self._pool))
        ended = self._within(begin, how, run, arguments, token)
        self.arena.used()
        if not ended.begun:
            self.book.count(from_heap=1)
        result = ended.result
        if tape is None or not isinstance(result, native.Replayed):
            return ended.answer()
        if result.overruns:
            self.book.count(overruns=result.overruns)
        if ended.failure is not None:  # which says nothing about the plan, unless it comes of wrong numbers
            if shape.trusts(tape, result.deviation, failed=True) or not ended.by_itself(arguments[-1]):
                return ended.answer()
            del ended  # its traceback has this frame
            return self._done_apart(shape, tape, run, arguments)
        if not self._is_right(shape, tape, run, result):
            del ended  # and outputs, which may be wrong
            return self._planned(key, run, *arguments)
        return ended.answer()

    def _is_right(self, shape: ShapePlan, tape: native.Tape, run: Callable[..., Any], result: native.Replayed) -> bool:
        """Whether the outputs of a run are right; and what is to be done about its plan, is done."""
        if shape.kept and not self._stands(shape, tape, run, result):
            return False
        deviation = _deviation(result.deviation)
        if deviation is not None and self._kept is not None:
            self._kept.missed(shape.key)
        if not shape.trusts(tape, deviation):
            self.book.unshare(shape, tape)
            return False
        if self.book.ran(shape, deviation):
            self.arena.needed(self.book, self.book.peak, for_good=True)
        if shape.came_again and shape.placement.improvable:
            self._improve(shape)
        return True

    def _done_apart(
        self, shape: ShapePlan, tape: native.Tape, run: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        """Do a run that failed once more where nothing shares a place. If it fails there, too, that is not the plan's
        doing, which stays."""
        ended = self._within(native.begin_heap, (self.device,), run, arguments)
        if ended.failure is None:
            if shape.kept:
                self.book.forget(shape)
                self._kept.missed(shape.key)  # type: ignore[union-attr]
            else:
                self.book.unshare(shape, tape)
        return ended.answer()

    def _within(
        self, begin: Callable[..., Any], how: tuple[Any, ...], run: Callable[..., Any], arguments: Any, token: int = 0
    ) -> _Ended:
        """Run in ONNX Runtime, which no other thread forks meanwhile."""
        settles = self.device is None or self._settled(arguments[-1])
        return _Ended(*native.within(begin, how, token, GATE.enter, GATE.leave, run, arguments, settles))

    def _recorded(self, key: RunKey, run: Callable[..., Any], *arguments: Any) -> Any:
        """Run without a plan, and make one of what the run asks for."""
        token = self._profile.new_token() if self._profile is not None else 0
        how = (self._pool, *self.book.expected())
        ended = self._within(native.begin_record_inside, how, run, arguments, token)
        if not ended.begun:
            self._trim_heap()  # what the run left there is not to lie beside what the search takes
        if ended.failure is None and isinstance(ended.result, native.Recorded):
            shape = self._solve(key, run, ended.result)
            if shape is not None and self.book.guard and ended.outputs is not None:
                self._suspect(shape, run, arguments)
            if not ended.begun:
                self._trim_heap()
        return ended.answer()

    def _settled(self, run_options: Any) -> bool:
        """Whether a run that ended well is over on the device, too."""
        return self._synchronizes and synchronizes(run_options)

    def _trim_heap(self) -> None:
        if self.device is None:
            native.trim_heap()
        else:
            self.device.trim()

    def _improve(self, shape: ShapePlan) -> None:
        from onnxmem.session.planned.improve import improve  # noqa: PLC0415  few plans can be improved

        improve(self.book, shape, self.arena, self._plan_seconds, self._kept)

    def _take_kept(self, key: RunKey, run: Callable[..., Any]) -> ShapePlan | None:
        found = self._kept.read(key) if self._kept is not None and not key.overwrites else None
        if found is None:
            return None
        if not len(found.placement.shared):
            self._end_profile(run.__self__)  # type: ignore[attr-defined]  # there was nothing to share
        shape = self.book.take(key, *found, provable=self._profile is not None)
        self.arena.needed(self.book, self.book.peak)
        return shape

    def _stands(self, shape: ShapePlan, tape: native.Tape, run: Callable[..., Any], result: native.Replayed) -> bool:
        """Whether the outputs of a run inside a kept plan are right; and if the plan is not, it is another one now."""
        if result.deviation is not None:
            self.book.forget(shape)
            self._kept.missed(shape.key)  # type: ignore[union-attr]
            return not len(shape.placement.shared)
        trace = Trace.recorded(tape.trace)
        with self._seen(run, result.marks) as nodes:
            right = self.book.prove(shape, trace, self._pairs(trace, nodes))
        if not right:
            self._keep(shape)
        return right

    def _keep(self, shape: ShapePlan) -> None:
        if self._kept is not None and shape.tape is not None:
            self._kept.write(shape.key, shape.tape, shape.placement, shape.sharing)

    def _reconsider_profile(self, key: RunKey, run: Callable[..., Any]) -> None:
        """End it before it has begun, if it would take more than is worth it; or if it does not come to an end."""
        if self._profile is None or self._sharer is None:
            return
        self._tries += 1
        worth_it = self._sharer.source.worth_a_profile(dims for _, dims in key.inputs)
        if self._tries > _TRIES or not worth_it:
            self._end_profile(run.__self__)  # type: ignore[attr-defined]

    def _end_profile(self, session: Any) -> None:
        if self._profile is not None:
            self._profile = None
            onnxruntime.InferenceSession.end_profiling(session)

    @contextmanager
    def _seen(self, run: Callable[..., Any], marks: int) -> Iterator[list[NodeCalls] | None]:
        """The nodes of the run that has just ended, with so many marks; None if it was not profiled.

        No other run begins before the block has ended.
        """
        try:
            if self._profile is not None:
                onnxruntime.InferenceSession.end_profiling(run.__self__)  # type: ignore[attr-defined]
            yield None if self._profile is None else self._profile.nodes(marks)
        finally:
            self._profile = None

    def _pairs(self, trace: Trace, nodes: list[NodeCalls] | None) -> Sharing | None:
        return None if nodes is None or self._sharer is None else self._sharer.find(trace, nodes)

    def _suspect(self, shape: ShapePlan, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Look whether sharing changes outputs; if it does, say where, and share nothing."""
        if shape.tape is None or not len(shape.placement.shared):
            return
        from onnxmem.session.planned.suspicion import wrong_nodes  # noqa: PLC0415  only debugging needs it

        trace = Trace.recorded(shape.tape.trace)

        def run_with(pairs: Int64Array) -> Any:
            placement = at_once(trace, self.book.guard, pairs)
            how = (follow(trace, placement, guard=self.book.guard), self._pool)
            return self._within(native.begin_replay, how, run, arguments).answer()

        if wrong := wrong_nodes(run_with, shape.placement.shared, shape.sharing.nodes):
            self.book.unshare(shape, shape.tape, for_good=True)
            text = f"outputs change where this is written over its input: {', '.join(wrong)}; no places are shared"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _solve(self, key: RunKey, run: Callable[..., Any], recorded: native.Recorded) -> ShapePlan | None:
        with self._seen(run, recorded.marks) as nodes:
            if not recorded.complete:
                self.book.unfollowable(key)
                return None
            trace = Trace.recorded(recorded)
            shape = self.book.recorded(key, trace, self._pairs(trace, nodes))
        # What only the first run needed is not kept for it.
        for_good = self.device is not None and shape.conduct.recorded_again
        self.arena.needed(self.book, self.book.peak, for_good=for_good)
        self._keep(shape)
        return shape


def _deviation(native_one: native.Deviation | None) -> Deviation | None:
    if native_one is None:
        return None
    from onnxmem.session.memory import Deviation, DeviationKind  # noqa: PLC0415

    return Deviation(
        kind=DeviationKind[native_one.kind.name],
        step=native_one.step,
        expected_bytes=native_one.expected_bytes,
        asked_bytes=native_one.asked_bytes,
    )
