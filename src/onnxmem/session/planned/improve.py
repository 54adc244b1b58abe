"""Better plans, found in the background while the first ones are already in use."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from contextlib import suppress

from onnxmem.errors import OnnxmemError
from onnxmem.session.forked import renew_in_children
from onnxmem.session.planned.arena import Arena
from onnxmem.session.planned.kept import KeptPlans
from onnxmem.session.planned.placing import improve as longer_search
from onnxmem.session.planned.plan_book import PlanBook, ShapePlan
from onnxmem.session.planned.trace import Trace

# A search cannot be interrupted, but the end of the process must not wait for it: it works in slices of this length.
_SLICE = 0.5


class _Improver:
    """One thread for the whole process, started with the first plan that is not optimal."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked child, which has no such thread: what was queued is only lost improvement."""
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self.lock = threading.RLock()  # reentrant, as a handler of signals may come in between

    def add(self, job: _Job) -> None:
        self.jobs.put(job)
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, name="onnxmem-plans", daemon=True)
                try:
                    with suppress(RuntimeError):  # no memory for a thread: the plans that there are will do
                        self.thread.start()
                finally:
                    # A handler of signals may have raised an exception before there was one, or when there just was.
                    if self.thread not in threading.enumerate():
                        self.thread = None

    def stop(self) -> None:
        # A daemon thread that comes back from native code into a dying interpreter would take the process with it.
        self.stopping.set()
        with self.lock:  # not before it has started
            thread = self.thread
        if thread is not None:
            self.jobs.put(None)
            thread.join()

    def _work(self) -> None:
        while not self.stopping.is_set():
            job = self.jobs.get()
            if job is not None:
                job.work(self.stopping)


class _Job:
    """Improve one shape's plan; a session that has gone meanwhile is not kept alive for it."""

    def __init__(self, book: PlanBook, shape: ShapePlan, arena: Arena, seconds: float, kept: KeptPlans | None) -> None:
        self.book, self.shape, self.arena = weakref.ref(book), weakref.ref(shape), weakref.ref(arena)
        self.seconds = seconds
        self.kept = kept

    def work(self, stopping: threading.Event) -> None:
        end, seed = time.monotonic() + self.seconds, 0
        while not stopping.is_set() and (left := end - time.monotonic()) > 0:
            if self.slice(min(left, _SLICE), seed):
                break
            seed += 1
        book, shape = self.book(), self.shape()
        if self.kept is None or book is None or shape is None or stopping.is_set():
            return
        tape, placement = book.followed(shape)
        if tape is not None and not shape.predicted:
            self.kept.write(shape.key, tape, placement, shape.sharing, searched=True)

    def slice(self, seconds: float, seed: int) -> bool:
        """One search; True if there is no point in another."""
        book, shape, arena = self.book(), self.shape(), self.arena()
        if book is None or shape is None or arena is None:
            return True
        tape, before = book.followed(shape)
        if tape is None or not before.improvable:
            return True
        try:
            trace, pairs = Trace.recorded(tape.trace).ended(tape.offsets >= 0), shape.sharing.pairs
            after = longer_search(trace, before, guard=book.guard, seconds=seconds, seed=seed, pairs=pairs)
        except OnnxmemError:
            return True
        if after is not before and book.improved(shape, tape, after):
            arena.needed(book, book.peak, for_good=True)
        return not after.improvable


def improve(book: PlanBook, shape: ShapePlan, arena: Arena, seconds: float, kept: KeptPlans | None = None) -> None:
    """Look for a better plan of this shape for so long, if there can be one; then keep what was found."""
    if book.full and shape.placement.peak < book.peak:
        return  # shapes come and go: each would keep a processor busy, and the arena is as large as the largest needs
    if seconds > 0 and shape.placement.improvable:
        _IMPROVER.add(_Job(book, shape, arena, seconds, kept))


_IMPROVER = _Improver()
renew_in_children(_IMPROVER)
atexit.register(_IMPROVER.stop)
