"""A fork waits until planned runs have left ONNX Runtime.

A mutex that another thread holds at the moment of a fork stays locked in the child for ever, and ONNX Runtime has some
that it takes while it runs. So runs that are inside are waited for, and new ones wait until the fork is over. Both
waits end after PATIENCE: a run that cannot end before the fork does would otherwise stop both for good.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from threading import get_ident

PATIENCE = 5.0


class Gate:
    """Who is inside ONNX Runtime, by thread; closed while somebody forks."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        # Reentrant: a signal handler may run a session, or fork, while its own thread is in here.
        self._changed = threading.Condition(threading.RLock())
        self._inside: dict[int, int] = {}
        self._forks = 0

    def enter(self) -> None:
        """Begin a run; not while somebody forks, unless this thread is inside already."""
        thread = get_ident()
        with self._changed:
            if self._forks and thread not in self._inside:
                self._changed.wait_for(lambda: not self._forks, self._patience)
            self._inside[thread] = self._inside.get(thread, 0) + 1

    def leave(self) -> None:
        """End a run."""
        thread = get_ident()
        with self._changed:
            left = self._inside.pop(thread, 1) - 1
            if left:
                self._inside[thread] = left
            if self._forks:
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Let nobody in, and wait until all other threads are out."""
        thread = get_ident()
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: self._inside.keys() <= {thread}, self._patience)

    def after_fork_in_parent(self) -> None:
        """Let them in again."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        """Only the forking thread exists here: nobody else is inside, and nobody holds the lock."""
        thread = get_ident()
        inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._changed, self._inside, self._forks = threading.Condition(threading.RLock()), inside, 0


GATE = Gate()
with suppress(AttributeError):  # systems without fork
    os.register_at_fork(
        before=GATE.before_fork,
        after_in_parent=GATE.after_fork_in_parent,
        after_in_child=GATE.after_fork_in_child,
    )
