"""What came of a cell: its figure and the whole document, or why there is none."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxmem.documents import Record, stored
from onnxmem.history.figures import Figures
from onnxmem.unknown import Bytes, Unknown

FINISHED, FAILED, WAITING = "finished", "failed", "waiting"
NO_MEMORY, TIME_LIMIT, CRASH, LOST, REFUSED = "out of memory", "time limit", "crash", "lost", "failed"
REASONS = {
    "out of memory": NO_MEMORY,
    "timed out": TIME_LIMIT,
    "crashed": CRASH,
    "killed": LOST,
    "failed": REFUSED,
}
"""How a process ended, and what that is as the reason of a failure."""
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class Outcome(Record):
    """The answer of a worker."""

    state: str = FINISHED
    reason: str = ""
    """Of a failure: out of memory, time limit, crash, lost (its process or node is gone), failed (it said why)."""
    message: str = ""
    size: Bytes = stored("bytes", default=Unknown("it failed"))
    """The figure of its verb."""
    latency: float | Unknown = stored("latency_seconds", default=Unknown("it was not measured"))
    figures: Figures | None = None
    """Where the verb has all of those that histories keep."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The verb's own document."""
    seconds: float = 0.0
    tries: int = 1
    node: str = ""
    processor: str = ""
    no_room: bool = False
    """The disk is full where it worked: that says nothing about the cell."""

    @property
    def lost(self) -> bool:
        """Whether another try may end otherwise."""
        return self.state == FAILED and self.reason == LOST


def failure(reason: str, message: str, **more: Any) -> Outcome:
    """A cell without an answer."""
    return Outcome(state=FAILED, reason=reason, message=" ".join(message.split()), **more)
