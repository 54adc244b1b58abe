"""How is a piece of work done in a process of its own? One that never outlives whoever started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from onnxmem.process.orphan import die_with

_INTERVAL = 0.05


def run_child(
    module: str, task: Mapping[str, Any], *, timeout: float | None = None, on_tick: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run `python -m module` on a task until it ends: its exit code, and all it said.

    A process that takes longer than `timeout` seconds is ended, and counts as killed.
    """
    end = None if timeout is None else time.monotonic() + timeout
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", module, json.dumps({**task, "parent": os.getpid()})],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            # Ctrl-C is for the parent, which then ends this one.
            start_new_session=True,
        )
        try:
            while child.returncode is None and (end is None or time.monotonic() < end):
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_INTERVAL)
                if on_tick:
                    on_tick()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        said.seek(0)
        return child.returncode, said.read().decode(errors="replace")


def read_task() -> dict[str, Any]:
    """The task of this process, which from now on dies with the one that gave it."""
    task: dict[str, Any] = json.loads(sys.argv[1])
    die_with(task["parent"])
    return task


def last_words(said: str) -> str:
    """What a process died of. The last part is the cause; before it come the places that passed it on."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " ".join((lines or ["it said nothing"])[-1].split("[ONNXRuntimeError] : ")[-1].split())[:300]
