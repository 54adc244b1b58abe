"""How did the measured process end? A crash, a timeout or a lack of memory is a result like any other."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from onnxmem.measurement.worker import NO_MEMORY


@dataclass(frozen=True)
class Verdict:
    """How it ended: ok, failed, out of memory, crashed, killed or timed out; where; and what was said."""

    kind: str
    phase: str | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the process got through all phases."""
        return self.kind == "ok"

    def __str__(self) -> str:
        where = f" in phase '{self.phase}'" if self.phase else ""
        return f"{self.kind}{where}{': ' if self.message else ''}{self.message}"


def judge(
    phase: str | None, error: Mapping[str, Any] | None, code: int, said: str, *, oom: bool, timeout: float | None
) -> Verdict:
    """What happened? `error` is what the process said itself, `code` how it exited, `said` what it printed last."""
    if timeout is not None:
        return Verdict("timed out", phase, f"it was stopped after {timeout:g} s")
    if error:
        kind = str(error["kind"])
        return Verdict(kind, phase, f"{error['type']}: {error['message']}")
    return Verdict("ok") if code == 0 else _death(phase, code, said, oom=oom)


def _death(phase: str | None, code: int, said: str, *, oom: bool) -> Verdict:
    """What a process that could not speak any more died of."""
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    # The count is the whole system's: someone else may have been killed for memory while this one crashed.
    if oom and code == -signal.SIGKILL:
        return Verdict("out of memory", phase, "the kernel killed it for memory")
    if any(sign in said for sign in NO_MEMORY):
        return Verdict("out of memory", phase, last)
    if code == -signal.SIGKILL:
        return Verdict("killed", phase, "it got SIGKILL from outside")
    how = _signal_name(-code) if code < 0 else f"it ended with code {code}"
    return Verdict("crashed", phase, f"{how}{f': {last}' if last else ''}")


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
