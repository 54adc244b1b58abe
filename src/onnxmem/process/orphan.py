"""How does a process end with the one that started it, however that ends? Imports next to nothing: it is measured."""

from __future__ import annotations

import os
import sys


def die_with(parent: int) -> None:
    """Let the kernel end this process with the thread that started it; elsewhere look now and then."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
        # It may have ended before the kernel was told.
        if os.getppid() != parent:
            os._exit(1)
    else:
        watch(parent)


def watch(parent: int, hangup: int | None = None) -> None:
    """End this process when its parent is gone, whichever thread started it, or when the socket `hangup` is closed.

    A closed socket alone would not do: a fork of the parent would hold it open.
    """
    import threading  # noqa: PLC0415

    threading.Thread(target=_wait, args=(parent, hangup), name="onnxmem-orphan", daemon=True).start()


def _wait(parent: int, hangup: int | None) -> None:
    import select  # noqa: PLC0415

    poll, seconds = select.poll(), 1.0
    if hangup is not None:
        poll.register(hangup, 0)  # hang-up only, which is always reported
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
        seconds = 60.0
    except (AttributeError, OSError):
        pass
    while os.getppid() == parent and not poll.poll(seconds * 1000):
        pass
    os._exit(0)
