"""A folder that is locked as long as it is used. By itself: sessions do without `pathlib` and `shutil`."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress


def make_locked(folder: str) -> int | None:
    """Make a private folder and lock it; None if another process, which was clearing at that moment, was faster."""
    os.mkdir(folder, 0o700)  # noqa: PTH102
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # some file systems have no locks: then nobody clears there, either
        fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(folder):  # noqa: PTH110
        return lock
    os.close(lock)
    return None
