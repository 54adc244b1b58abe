"""What all verbs have in common: options that come in groups, and a time limit over all they do.

A dataclass is one parameter of a verb, and each of its fields an option. What does not end in time by itself is ended
as by Ctrl-C.
"""

from __future__ import annotations

import functools
import inspect
import signal
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any

from onnxmem.cli import options
from onnxmem.cli.streams import leave_terminal
from onnxmem.deadline import MORE_TIME, check_time_limit
from onnxmem.errors import OnnxmemError

# Verbs that watch the limit themselves have something to show when it is over: they get the time to do so.
_GRACE = 3.0
_AT_ONCE = 1.0


def spread(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as Typer can read it: fields of dataclasses among its parameters are parameters of their own.

    Its `time_limit` holds for all it does; a verb that has none gets one.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = typing.get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))
            continue
        groups[name] = kind
        own = typing.get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(each.name, parameter.KEYWORD_ONLY, default=each.default, annotation=own[each.name])
            for each in fields(kind)
        ]

    unaware = "time_limit" not in hints
    if unaware:
        limit = inspect.Parameter(
            "time_limit", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options.NoTimeLimit
        )
        parameters.append(limit)

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        seconds = given.pop("time_limit") if unaware else given["time_limit"]
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        with interruptible(seconds, grace=0.0 if unaware else _GRACE):
            verb(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


class Interrupted(OnnxmemError):
    """The work was ended from outside, and everything was cleared away."""

    def __init__(self, message: str, exit_code: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class _Terminated(KeyboardInterrupt):
    """SIGTERM came, or the terminal is gone: whoever clears up after Ctrl-C does so now, too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = signal.Signals(number)


def end_on_signals() -> None:
    """From now on SIGTERM and SIGHUP end this process as Ctrl-C does: with nothing left behind.

    What comes within a second of another says the same once more, and must not keep from clearing up.
    """
    last = -_AT_ONCE

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if number == signal.SIGHUP:
            leave_terminal()
        if last - before >= _AT_ONCE:
            raise KeyboardInterrupt if number == signal.SIGINT else _Terminated(number)

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # under nohup it is ignored
        signal.signal(signal.SIGHUP, stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background of a script it is ignored
        signal.signal(signal.SIGINT, stop)


@contextmanager
def interruptible(seconds: float | None, grace: float = 0.0) -> Iterator[None]:
    """End the block if it takes longer than this, and `grace` to stop by itself.

    Raises Interrupted if anything ended it before it was done.
    """
    if seconds is not None:
        check_time_limit(seconds)
    late = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal late
        late = True
        signal.raise_signal(signal.SIGTERM)  # whoever has a way to end of its own, as servers have, takes it

    before = signal.signal(signal.SIGALRM, stop)
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds + grace)
    try:
        yield
    except (KeyboardInterrupt, ImportError) as error:
        ended = _interrupt_behind(error)
        if ended is None:
            raise
        if not isinstance(ended, _Terminated):
            raise Interrupted("interrupted", 128 + signal.SIGINT) from None
        if late:
            message = f"not done within {seconds:g} seconds"
            raise Interrupted(message, 3, hint=MORE_TIME) from None
        raise Interrupted(f"ended by {ended.number.name}", 128 + ended.number) from None
    finally:
        lift()
        signal.signal(signal.SIGALRM, before)


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The signal that ended it: a native module that was just being loaded says only that it could not be."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def lift() -> None:
    """There is no limit any more: somebody is looking."""
    signal.setitimer(signal.ITIMER_REAL, 0)
