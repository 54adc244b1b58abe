"""How did the measured process end? A crash, a timeout or a lack of memory is a result like any other."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from dataclasses import dataclass

from onnxmem.deadline import MORE_TIME
from onnxmem.documents import Record, stored
from onnxmem.measurement.protocol import NO_MEMORY, OUT_OF_MEMORY, Failed
from onnxmem.units import format_bytes

TIMED_OUT = "timed out"
_CODE = re.compile(r"^\d+ : [A-Z_]+ : ")
_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: ")
_PLACE = re.compile(r"^\S+\.(?:h|cc|cpp|hpp):\d+ (?:(?:[\w:<>*&]+ )*[\w:<>~]+::[\w:<>~]+\([^)]*\)(?: const)?|\w+) ")


@dataclass(frozen=True)
class Verdict(Record):
    """How it ended: ok, failed, out of memory, crashed, killed or timed out; where; and the error."""

    kind: str
    phase: str | None = None
    message: str = ""
    limit: int | None = stored("limit_bytes", default=None)
    """The memory limit it ran out of; None for any other end, and where the limit was the machine's."""
    hint: str = ""
    """What to try instead."""

    @property
    def ok(self) -> bool:
        """Whether the process got through all phases."""
        return self.kind == "ok"

    def __str__(self) -> str:
        where = f" in phase '{self.phase}'" if self.phase else ""
        limit = "" if self.limit is None else f" with a limit of {format_bytes(self.limit)}"
        return f"{self.kind}{where}{limit}{': ' if self.message else ''}{self.message}"


def judge(
    phase: str | None,
    failure: Failed | None,
    code: int,
    output: str,
    *,
    oom: bool = False,
    limit: int | None = None,
    timeout: float | None = None,
) -> Verdict:
    """What happened? `failure` is what the process reported, `code` how it exited, `output` what it printed last.

    `oom` says whether the kernel killed for memory meanwhile, `timeout` after how many seconds it was stopped.
    """
    if timeout is not None:
        return Verdict(TIMED_OUT, phase, f"it was stopped after {round(timeout, 1):g} s", hint=MORE_TIME)
    if failure is not None:
        lack = failure.kind == OUT_OF_MEMORY
        return Verdict(failure.kind, phase, what_failed(failure.error, failure.message), limit if lack else None)
    return Verdict("ok") if code == 0 else _death(phase, code, output, oom=oom, limit=limit)


def what_failed(error: str, message: str) -> str:
    """What an exception says, in fewer words if it is ONNX Runtime's: the innermost node that failed, and why."""
    # Its codes, and the places in its source, say nothing to those who only use it.
    plain = _CODE.sub("", message)
    _, *nodes = _NODE.split(plain)
    if not nodes:
        return plain if plain != message else f"{error}: {message}".removesuffix(": ")
    operator, name, why = nodes[-3:]
    return f"{operator} '{name}': {_PLACE.sub('', why)}" if name else f"{operator}: {_PLACE.sub('', why)}"


def _death(phase: str | None, code: int, output: str, *, oom: bool, limit: int | None) -> Verdict:
    """What a process that could not speak any more died of."""
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    # The count is the whole system's: someone else may have been killed for memory while this one crashed.
    if oom and code == -signal.SIGKILL:
        return Verdict(OUT_OF_MEMORY, phase, "the kernel killed it for memory", limit)
    if any(sign in output for sign in NO_MEMORY):
        return Verdict(OUT_OF_MEMORY, phase, last, limit)
    if code == -signal.SIGKILL:
        return Verdict("killed", phase, "it got SIGKILL from outside")
    how = _signal_name(-code) if code < 0 else f"it ended with code {code}"
    return Verdict("crashed", phase, f"{how}{f': {last}' if last else ''}")


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
