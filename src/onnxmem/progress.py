"""What long work says while it is going on: every verb that takes long calls back with the same record."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """What is being done now."""

    stage: str
    """In a few words: "load", "hashing", "prepacked: 4 workers"."""
    done: int = 0
    total: int = 0
    """How much of it there is; 0 where nobody knows."""
    unit: str = ""
    """What is counted: "bytes", or empty for steps."""
    pid: int | None = None
    """The process that is about to do it, and waits until the call returns; None if it is this one."""


OnProgress = Callable[[Progress], None]
