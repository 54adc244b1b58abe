"""One verb of the command line in a process of its own: what it says while it works, and what it returns.

The page never does long work itself, so that nothing a model does can stop or end it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

from onnxmem.folders import temporary_file
from onnxmem.process.child import end_child, has_ended, start_child

Document = Mapping[str, Any]
_TOLD, _HINT = "onnxmem: ", "hint: "
# A verb that is asked to end clears up after itself; one that does not within this time is killed.
_GRACE = 3.0
_INTERVAL = 0.1


class Job:
    """A verb at work, or what came of it. Its thread lives as long as its process, which the kernel ends with it."""

    def __init__(self, words: tuple[str, ...], wanted: Callable[[], bool] = lambda: True) -> None:
        """`words`: as typed after `onnxmem`, without `--json`. The job ends when it is no longer `wanted`."""
        self.words = words
        self.document: Document | None = None
        self.error = self.hint = ""
        """One sentence each; a result may come with an error, such as a budget that was not met."""
        self.stages: list[str] = []
        """What it said it was doing, in order."""
        self.cancelled = False
        self.ended = False
        self.pid: int | None = None
        self._wanted, self._stop, self._began, self._end = wanted, threading.Event(), time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._work, name=f"onnxmem-{words[0]}", daemon=True)
        self._thread.start()

    @property
    def command(self) -> str:
        """What to type for the same."""
        return shlex.join(["onnxmem", *self.words])

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self._end or time.monotonic()) - self._began

    def cancel(self) -> None:
        """End it, and all that it has started."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Give it so long; has it ended?"""
        self._thread.join(seconds)
        return self.ended

    def _work(self) -> None:
        try:
            with temporary_file() as answer, temporary_file() as told:
                child = start_child("onnxmem.cli.child", *self.words, "--json", stdout=answer, stderr=told)
                self.pid = child.pid
                try:
                    self._watch(child, told)
                finally:
                    code = end_child(child)
                self._listen(told)
                answer.seek(0)
                self._conclude(code, answer.read())
        except Exception as error:  # whatever it is: the page has to say so, not to wait for ever
            self.error = f"this could not be run: {error}"
        finally:
            self._end, self.ended = time.monotonic(), True

    def _watch(self, child: subprocess.Popen[bytes], told: IO[bytes]) -> None:
        while not has_ended(child, _INTERVAL):
            self._listen(told)
            if self._stop.is_set() or not self._wanted():
                self.cancelled = True
                with suppress(OSError):
                    os.kill(child.pid, signal.SIGTERM)
                has_ended(child, _GRACE)
                return

    def _listen(self, told: IO[bytes]) -> None:
        """Read what it has said so far. With `pread`, since it goes on writing where this file is."""
        text = os.pread(told.fileno(), 2**20, 0).decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        self.stages = [line.removeprefix(_TOLD).removesuffix(" …") for line in lines if line.endswith(" …")]
        said = [line for line in lines if not line.endswith(" …")]
        self.hint = " ".join(line.removeprefix(_HINT) for line in said if line.startswith(_HINT))
        sentences = [line.removeprefix(_TOLD) for line in said if line.startswith(_TOLD)]
        self.error = sentences[-1] if sentences else said[-1][:300] if said else ""

    def _conclude(self, code: int, answer: bytes) -> None:
        with suppress(ValueError):
            self.document = json.loads(answer)
        if self.cancelled:
            self.document, self.error, self.hint = None, "cancelled", ""
        elif code == 0 and self.document is not None:
            self.error = self.hint = ""
        elif not self.error:
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            self.error = f"onnxmem {self.words[0]} ended with {why} and said nothing"
