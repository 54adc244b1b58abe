"""A fork waits until planned runs have left ONNX Runtime.

A mutex that another thread holds at the moment of a fork stays locked in the child for ever, and ONNX Runtime has some
that it takes while it runs. So runs that are inside are waited for, and new ones wait until the fork is over. Both
waits end after PATIENCE: a run that cannot end before the fork does would otherwise stop both for good.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident

PATIENCE = 5.0


class Gate:
    """Who is inside ONNX Runtime, by thread; closed while somebody forks.

    Runs take no lock. They enter first and look for forks second, forks announce themselves first and look for runs
    second: whoever comes later sees the other.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._inside: dict[int, int] = {}
        self._open()

    def _open(self) -> None:
        # By thread and not a number: an exception of a signal's handler can keep a fork from saying that it is over.
        self._forking: set[int] = set()
        # Reentrant: a signal handler may run a session, or fork, while its own thread is in here.
        self._changed = threading.Condition(threading.RLock())

    def enter(self) -> None:
        """Begin a run; not while somebody forks, unless this thread is inside already."""
        thread = get_ident()
        before = self._inside.get(thread, 0)
        self._inside[thread] = before + 1
        if self._forking and not before:
            self.leave()
            with self._changed:
                # Not its own, in the middle of which a handler of signals may be: that goes on when this is done.
                others = self._forking - {thread}
                if not self._changed.wait_for(lambda: self._forking <= {thread}, self._patience):
                    self._forking -= others  # nobody else waits for those
                self._inside[thread] = 1

    def leave(self) -> None:
        """End a run."""
        thread = get_ident()
        if (before := self._inside.get(thread, 1)) > 1:
            self._inside[thread] = before - 1
        else:
            self._inside.pop(thread, None)
        if self._forking:
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Inside, for the length of a block; runs may begin in it."""
        try:
            self.enter()
            yield
        finally:
            self.leave()

    def before_fork(self) -> None:
        """Let nobody in, and wait until all other threads are out."""
        thread = get_ident()

        def alone() -> bool:
            self._forking.add(thread)  # again: a fork in a handler of signals has ended in the meantime
            return len(self._inside) == (thread in self._inside)

        with self._changed:
            self._changed.wait_for(alone, self._patience)

    def after_fork_in_parent(self) -> None:
        """Let them in again."""
        with self._changed:
            self._forking.discard(get_ident())
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        """Only the forking thread exists here: nobody else is inside, and nobody holds the lock."""
        thread = get_ident()
        self._inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._open()


GATE = Gate()
with suppress(AttributeError):  # systems without fork
    os.register_at_fork(
        before=GATE.before_fork,
        after_in_parent=GATE.after_fork_in_parent,
        after_in_child=GATE.after_fork_in_child,
    )
