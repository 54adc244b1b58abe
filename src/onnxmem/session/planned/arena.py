"""Memory that planned sessions run in: one region per run at a time, given back when idle."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Any

from onnxmem._native import arena as native
from onnxmem.errors import UsageError
from onnxmem.session.forked import renew_in_children
from onnxmem.session.planning import check_seconds


class Arena:
    """Memory to run in, for one session or for several that run in turn.

    A detector, a classifier and a recognizer that share an arena take as much as the largest of them, not as all of
    them together. `limit` is how many runs can be inside at once, each in a region of its own; when all are taken,
    the next run waits or is served from the heap (`busy`: "wait" or "heap"). `trim_after` seconds without a run the
    pages go back to the system; the next run takes them again. `huge_pages` asks the system for large ones.
    """

    def __init__(
        self, limit: int = 1, *, busy: str = "wait", trim_after: float | None = None, huge_pages: bool = False
    ) -> None:
        if not isinstance(limit, int) or limit < 1:
            raise UsageError(f"an arena needs room for at least one run, not {limit!r}")
        if busy not in ("wait", "heap"):
            raise UsageError(f"a busy arena cannot '{busy}'", hint="known: wait, heap")
        check_seconds("trim_after", trim_after)
        self.pool = native.Pool(limit, busy == "wait", huge_pages)
        self._on_devices: dict[int, tuple[native.Device, native.Pool]] = {}
        self.limit = limit
        self.busy = busy
        self.trim_after = trim_after
        self._peaks: dict[weakref.ref[Any], tuple[native.Pool, int]] = {}
        self._last_used = 0.0
        self._timer: threading.Timer | None = None

    def __repr__(self) -> str:
        return f"Arena(limit={self.limit}, busy={self.busy!r}, bytes={self.bytes})"

    @property
    def bytes(self) -> int:
        """The address space of all regions; pages count as memory only once a run has touched them."""
        return self.pool.stats().bytes

    @property
    def device_bytes(self) -> int:
        """The memory of all regions on devices."""
        return sum(pool.stats().bytes for _, pool in self._on_devices.copy().values())

    @property
    def largest(self) -> int:
        """The largest region."""
        return self.pool.stats().largest

    def pool_on(self, device: native.Device | None) -> native.Pool:
        """The regions on a device, or on the host."""
        if device is None:
            return self.pool
        if device.number not in self._on_devices:
            fresh = device, native.Pool(self.limit, self.busy == "wait", False, device)
            self._on_devices.setdefault(device.number, fresh)
        return self._on_devices[device.number][1]

    def trim(self) -> None:
        """Give the pages of all regions that nobody runs in back to the system, and what freed outputs left."""
        self.pool.trim()
        native.trim_heap()
        for device, pool in self._on_devices.copy().values():
            pool.trim()
            device.settle()
            device.trim()

    def needed(self, user: Any, peak: int, *, for_good: bool = False) -> None:
        """`user`'s largest plan takes `peak` bytes on its device from now on: what no user needs any more is unmapped.

        Unless that is `for_good`, little is not worth it: the shape that was forgotten today comes back tomorrow.
        """
        # Replaced as a whole, never changed: other threads may be reading it. Should two of them replace it at once,
        # an arena is for a while smaller than it will be again.
        others = {of: bytes_ for of, bytes_ in self._peaks.items() if of() is not None and of() is not user}
        pool = self.pool_on(user.device)
        self._peaks = {**others, weakref.ref(user): (pool, peak)}
        most = max(bytes_ for its, bytes_ in self._peaks.values() if its is pool)
        if for_good or most < pool.stats().largest // 2:
            pool.shrink(most)

    def used(self) -> None:
        """A run has ended: the time until the pages go back starts again."""
        if self.trim_after is None:
            return
        self._last_used = time.monotonic()
        # One timer per idle period, not per run; a forked child has the object without its thread.
        if self._timer is None or not self._timer.is_alive():
            self._wait(self.trim_after)

    def _wait(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, _expired, [weakref.ref(self)])
        self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError:  # there is no memory for a thread: no time to wait, and no reason for a run to fail
            self._timer = None
            self.trim()

    def _expire(self) -> None:
        assert self.trim_after is not None
        left = self._last_used + self.trim_after - time.monotonic()
        if left > 0:
            self._wait(left)
        else:
            # First, so that a run which ends while this trims starts the next one.
            self._timer = None
            self.trim()


class _Trims:
    """Timers that trim, one at a time. A thread that comes back from native code into a dying interpreter would take
    the process with it: its end waits for the one that trims, and those that come later wait for ever.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked child: no timer is there."""
        self.lock = threading.Lock()

    def end(self) -> None:
        self.lock.acquire()


_TRIMS = _Trims()
atexit.register(_TRIMS.end)
renew_in_children(_TRIMS)


def _expired(reference: weakref.ref[Arena]) -> None:
    # A weak reference, so that a waiting timer does not keep an arena that nobody wants any more.
    with _TRIMS.lock:
        if (arena := reference()) is not None:
            arena._expire()


def own_arena(trim_after: float | None, huge_pages: bool) -> Arena:
    """The arena of a session that shares none: more runs at once than processors are not faster, so they wait."""
    return Arena(len(os.sched_getaffinity(0)), trim_after=trim_after, huge_pages=huge_pages)
