"""A child that does nothing for a while, with a child of its own that does the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

from onnxmem.documents import Record
from onnxmem.process.child import serve, start_child


@dataclass(frozen=True)
class Nap(Record):
    """How long to sleep."""

    seconds: float
    grandchild: bool = False


def _sleep(nap: Nap) -> None:
    pids = [os.getpid()]
    if nap.grandchild:
        pids.append(start_child("tests.integration.sleeper", 60.0, stdin=subprocess.DEVNULL).pid)
    # The parent's parent reads it: stdout and stderr of this process are files.
    with open(f"/proc/{os.getppid()}/fd/1", "w") as out:  # noqa: PTH123
        print(*pids, file=out, flush=True)
    time.sleep(nap.seconds)


def main(seconds: float | None = None) -> None:
    """Serve one nap, or take one at once."""
    if seconds is None:
        serve(Nap, _sleep)
    else:
        time.sleep(seconds)
    sys.exit(0)
