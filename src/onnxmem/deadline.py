"""One time limit for a whole command: each stage asks how much of it is left."""

from __future__ import annotations

import math
import time

from onnxmem.errors import UsageError

# A stage that comes too late still does its first step: any answer is better than none.
_LEAST = 0.01


MORE_TIME = "--time-limit SECONDS allows more"
"""What to do about work that ended because its time was over."""
LONGEST = 1e9
"""Of time limits that are given, in seconds: what waits for more than some of these is refused by the system."""


def check_time_limit(seconds: float) -> None:
    """Refuse what is no time, or more than can be waited for."""
    if not 0 < seconds <= LONGEST:
        raise UsageError(f"the time limit must be more than 0 seconds and at most {LONGEST:g}, not {seconds:g}")


class Deadline:
    """A moment after which no stage should go on; `time_limit` are the seconds from now until then."""

    def __init__(self, time_limit: float = math.inf) -> None:
        if not time_limit > 0:
            raise UsageError(f"the time limit must be more than 0 seconds, not {time_limit:g}")
        self.time_limit = time_limit
        self._end = time.monotonic() + time_limit

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        """Is it over?"""
        return time.monotonic() >= self._end

    def share(self, fraction: float) -> float:
        """Seconds for a stage that gets this part of the whole limit, or what is left if that is less; never 0."""
        return max(min(self.time_limit * fraction, self.left), _LEAST)
