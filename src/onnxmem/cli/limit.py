"""One time limit for every verb, over all it does: what does not end by itself is ended as by Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from onnxmem.errors import OnnxmemError, UsageError


class Interrupted(OnnxmemError):
    """The work was ended from outside, and everything was cleared away."""

    def __init__(self, message: str, exit_code: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class _Terminated(KeyboardInterrupt):
    """SIGTERM came: whoever clears up after Ctrl-C does so now, too."""


class _OutOfTime(KeyboardInterrupt):
    """The time limit is over."""


def end_on_sigterm() -> None:
    """From now on SIGTERM ends this process as Ctrl-C does: with nothing left behind."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)


@contextmanager
def interruptible(seconds: float | None, grace: float = 0.0) -> Iterator[None]:
    """End the block if it takes longer than this, and `grace` to stop by itself.

    Raises Interrupted if anything ended it before it was done.
    """
    if seconds is not None and not seconds > 0:
        raise UsageError(f"the time limit must be more than 0 seconds, not {seconds:g}")

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds + grace)
    try:
        yield
    except _OutOfTime:
        message = f"not done within {seconds:g} seconds"
        raise Interrupted(message, 3, hint="--time-limit SECONDS allows more") from None
    except _Terminated:
        raise Interrupted("ended by SIGTERM", 128 + signal.SIGTERM) from None
    except KeyboardInterrupt:
        raise Interrupted("interrupted", 128 + signal.SIGINT) from None
    finally:
        lift()
        signal.signal(signal.SIGALRM, before)


def lift() -> None:
    """There is no limit any more: somebody is looking."""
    signal.setitimer(signal.ITIMER_REAL, 0)
