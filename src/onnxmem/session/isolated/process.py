"""The parent's side of an isolated session: one child process, and a lane to it for each thread that calls."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from onnxmem.errors import RuntimeUnsupported
from onnxmem.process.child import end_child, has_ended, start_child
from onnxmem.session.isolated.channel import (
    Call,
    Channel,
    Failed,
    Gone,
    Load,
    Loaded,
    OpenLane,
    Returned,
    Trim,
    close_all,
)
from onnxmem.session.isolated.wire import Parcel, Slot, unpack
from onnxmem.session.isolated.worker import failure

_PATIENCE = 5.0
_SPARE_SLOTS = 4
# Each slot that outputs lie in is a mapping and a descriptor here and there. A caller that gathers outputs by the
# thousand would run out of them, and for small ones a copy is cheaper than the bookkeeping: those are copied out.
_MOST_LENT = 8
_SMALL = 64 * 1024
_WORKER = "onnxmem.session.isolated.worker"


class _Forks:
    """How often this process has begun or ended a fork. Who was forked has the outputs that were lent, in the same
    memory: a slot that was lent before a fork, or in the middle of one, is not used again after it.
    """

    def __init__(self) -> None:
        self.seen = 0

    def count(self) -> None:
        self.seen += 1


_FORKS = _Forks()
with suppress(AttributeError):  # systems without fork
    os.register_at_fork(before=_FORKS.count, after_in_parent=_FORKS.count)


class Child:
    """A process that holds one session, and has so many seconds to answer."""

    def __init__(self, time_limit: float | None = None) -> None:
        if os.name != "posix" or not sys.executable:
            raise RuntimeUnsupported("an isolated session needs a POSIX system and a Python interpreter to start")
        self._owner = os.getpid()
        self._lock = threading.RLock()  # reentrant, as a handler of signals may come in between
        self._lanes: deque[Lane] = deque()
        self._all: weakref.WeakSet[Lane] = weakref.WeakSet()
        self._time_limit = time_limit
        self._control, there = Channel.pair()
        self._control.limit(time_limit)
        try:
            # The thread that makes a session may end long before the session does.
            self.process = start_child(_WORKER, there.fileno(), hangup=there.fileno())
        except BaseException:
            self._control.close()
            raise
        finally:
            there.close(wake=False)

    def load(self, request: Load) -> Loaded:
        """Have the model loaded; the answer describes the session."""
        self._control.send(request)
        reply, _ = self._control.receive()
        if isinstance(reply, Failed):
            raise failure(reply)
        loaded: Loaded = reply
        return loaded

    def trim(self) -> None:
        """Have it give freed memory back, and wait until it has; and let go of the lanes that nobody uses."""
        with suppress(IndexError):
            while True:
                self._lanes.popleft().close()
        with self._lock:
            self._control.send(Trim())
            self._control.receive()

    def lane(self) -> Lane:
        """A lane that nobody else uses."""
        with suppress(IndexError):
            return self._lanes.pop()  # the last one used: each has memory of its own
        here, there = Channel.pair()
        try:
            with self._lock:
                self._control.send(OpenLane(), [there.fileno()])
        except Gone:
            here.close()
            raise
        finally:
            there.close(wake=False)
        here.limit(self._time_limit)
        lane = Lane(here)
        self._all.add(lane)
        return lane

    def give_back(self, lane: Lane) -> None:
        """Done with a lane. One that waits for an answer nobody wants any more is closed instead of used again."""
        if lane.waiting:
            lane.close()
        else:
            self._lanes.append(lane)

    def end(self) -> None:
        """End the process, gently if it can, and wait for it. No lock: this may run inside the garbage collector."""
        # After a fork, the process belongs to the parent of this copy.
        mine = os.getpid() == self._owner
        for lane in list(self._all):
            lane.close(wake=mine)
        self._control.close(wake=mine)
        if not mine:
            self.process.returncode = 0  # or Popen would complain about a child it never had
            return
        has_ended(self.process, _PATIENCE)
        end_child(self.process)

    def fate(self, *, late: bool = False) -> str:
        """What became of a process that no longer answers; one that is late is ended."""
        if late:
            end_child(self.process)
            self.end()
            return f"did not answer within {self._time_limit:g} seconds and was ended"
        has_ended(self.process, _PATIENCE)
        self.end()
        code = self.process.returncode
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), perhaps because memory ran out"
        if code < 0:
            with suppress(ValueError):
                return f"crashed ({signal.Signals(-code).name})"
        return f"ended (exit code {code})"


class Lane:
    """A channel to the child, with the memory in which inputs leave and outputs arrive."""

    def __init__(self, channel: Channel) -> None:
        self.waiting = False
        self._channel = channel
        self._outgoing: Slot | None = None
        self._slots: dict[int, Slot] = {}
        self._free: list[int] = []
        # Filled by finalizers of arrays, in any thread and at any moment: appending is atomic, a lock might deadlock.
        self._returned: deque[tuple[int, int]] = deque()

    def call(
        self, fetch: Sequence[str], feeds: Mapping[str, Any], options: Mapping[str, Any], parcel: Parcel
    ) -> list[Any]:
        """Ask for one run, with inputs from the parcel, and wait for its answer."""
        # From the first step on: after one that was interrupted, the child no longer knows what this side has.
        self.waiting = True
        outgoing, new = self._room(parcel.size)
        parcel.write(outgoing.view())
        forget: list[int] = []
        while self._returned:
            number, forks = self._returned.popleft()
            (self._free if forks == _FORKS.seen else forget).append(number)
        forget += self._free[:-_SPARE_SLOTS]
        self._free = self._free[-_SPARE_SLOTS:]
        for number in forget:
            del self._slots[number]
        request = Call(fetch, feeds, options, outgoing.size, self._free, forget)
        self._channel.send(request, [outgoing.descriptor] if new else [])
        outgoing.handed_over()
        reply, descriptors = self._channel.receive()
        if isinstance(reply, Failed):
            if new:
                self._outgoing = None  # it may not have arrived: the next call sends another
            self.waiting = False
            close_all(descriptors)
            raise failure(reply)
        outputs = self._outputs(reply, descriptors)
        self.waiting = False
        return outputs

    def close(self, *, wake: bool = True) -> None:
        """Give up the lane; the child finishes what it is doing there and forgets it."""
        self._channel.close(wake=wake)

    def _room(self, needed: int) -> tuple[Slot, bool]:
        if self._outgoing is not None and needed <= self._outgoing.size:
            return self._outgoing, False
        if self._outgoing is not None:
            self._outgoing.handed_over()
        self._outgoing = Slot.new(0, needed)
        return self._outgoing, True

    def _outputs(self, reply: Returned, descriptors: list[int]) -> list[Any]:
        number = reply.slot
        if descriptors:
            self._slots[number] = Slot.adopt(number, reply.size, descriptors[0])
        else:
            self._free.remove(number)
        memory = self._slots[number].view()
        lent = len(self._slots) - len(self._free) - len(self._returned)
        if reply.used <= _SMALL or lent > _MOST_LENT:
            memory = memory[: reply.used].copy()
            self._free.append(number)
        else:
            # All outputs are views of this array; when the last of them is gone, so is it, and the slot is free again.
            weakref.finalize(memory, self._returned.append, (number, _FORKS.seen)).atexit = False
        return [unpack(description, memory) for description in reply.outputs]
