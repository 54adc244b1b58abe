"""Cells on this machine: one process for each worker, watched from one place, and ended with it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Self

from onnxmem.documents import encode
from onnxmem.environment import available_cores
from onnxmem.folders import temporary_file, temporary_folder
from onnxmem.measurement.device import HOST
from onnxmem.process.child import Ended, end_child, has_ended, send_line, start_child
from onnxmem.sweeping.cell import Stage
from onnxmem.sweeping.engine import Answers, Job, OnStart
from onnxmem.sweeping.outcome import CRASH, LOST, TIME_LIMIT, Outcome, failure
from onnxmem.sweeping.place import core_sets, processor_with

_TICK = 0.5
# Verbs keep to the limit themselves; what has not answered this long after it hangs.
_GRACE = 30.0
_CHUNK = 1 << 20


class Embedded:
    """This machine: one worker for each core, or `parallel` of them, each with cores of its own, where models run."""

    name = "embedded"

    def __init__(self, parallel: int = 1, retries: int = 0) -> None:
        """A cell whose worker is lost is tried `retries` times more."""
        self._alone, self._retries = core_sets(parallel), retries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Workers end with the run that started them."""

    def workers(self, stage: Stage) -> int:
        return len(self._places(stage))

    def processors(self, stage: Stage) -> Sequence[str]:
        return [processor_with(len(self._places(stage)[0]), stage.device)]

    def memory(self, stage: Stage) -> int | None:
        return None

    def _places(self, stage: Stage) -> list[tuple[int, ...]]:
        """The cores of each worker. A GPU is for one at a time."""
        if not stage.runs:
            return core_sets(1) * available_cores()
        return self._alone if stage.device == HOST else core_sets(1)

    def run(self, jobs: Sequence[Job], stage: Stage, on_start: OnStart) -> Answers:
        queue = deque(jobs)
        # Workers are killed, at the end or before it: what they and theirs have not cleared away goes with the folder.
        with temporary_folder() as folder, selectors.DefaultSelector() as selector:
            slots = [_Slot(cores, folder) for cores in self._places(stage)]
            try:
                answers: list[tuple[Job, Outcome]] = []
                while queue or any(slot.job for slot in slots):
                    for slot in slots:
                        if queue and slot.job is None:
                            on_start(queue[0])
                            slot.begin(queue.popleft(), selector)
                    # After the next were begun: whoever writes the answers down is waited for by nobody.
                    yield from answers
                    answers = []
                    for slot, outcome in list(_outcomes(slots, selector)):
                        job, slot.job = slot.job, None
                        assert job is not None
                        if outcome.lost and job.tries <= self._retries:
                            queue.append(replace(job, tries=job.tries + 1))
                        else:
                            answers.append((job, replace(outcome, tries=job.tries)))
                yield from answers
            finally:
                for slot in slots:
                    slot.end()


def _outcomes(slots: Sequence[_Slot], selector: selectors.BaseSelector) -> Iterator[tuple[_Slot, Outcome]]:
    """Wait a little: those that have answered, died, or taken too long."""
    for ready, _ in selector.select(_TICK):
        outcome = ready.data.hear(selector)
        if outcome is not None:
            yield ready.data, outcome
    for slot in slots:
        if slot.job is not None and slot.late:
            slot.end(selector)
            yield slot, failure(TIME_LIMIT, f"it did not answer within {slot.job.cell.limit + _GRACE:g} s")


@dataclass(eq=False)
class _Slot:
    """The place of one worker, which is started when there is work, and again after it died."""

    cores: tuple[int, ...]
    folder: Path
    """For its temporary files."""
    job: Job | None = None
    _child: subprocess.Popen[bytes] | None = None
    _errors: IO[bytes] | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _buffer: list[bytes] = field(default_factory=list)
    _until: float = 0.0

    @property
    def late(self) -> bool:
        return time.monotonic() > self._until

    def begin(self, job: Job, selector: selectors.BaseSelector) -> None:
        if self._child is None:
            self._start(selector)
        assert self._child is not None
        self.job, self._until = job, time.monotonic() + job.cell.limit + _GRACE
        send_line(self._child, json.dumps(encode(job.cell)).encode())

    def _start(self, selector: selectors.BaseSelector) -> None:
        self._errors, pipe = self._open.enter_context(temporary_file()), subprocess.PIPE
        place = {"TMPDIR": str(self.folder)}
        self._child = start_child(
            "onnxmem.sweeping.worker", self.cores, environment=place, stdin=pipe, stdout=pipe, stderr=self._errors
        )
        assert self._child.stdout is not None
        selector.register(self._child.stdout, selectors.EVENT_READ, self)

    def hear(self, selector: selectors.BaseSelector) -> Outcome | None:
        """Read what there is; the outcome, when it is whole or the worker has died."""
        assert self._child is not None and self._child.stdout is not None
        part = os.read(self._child.stdout.fileno(), _CHUNK)
        if part:
            self._buffer.append(part)
            if not part.endswith(b"\n"):
                return None
            line = b"".join(self._buffer)
            self._buffer.clear()
            return Outcome.from_document(json.loads(line))
        has_ended(self._child, _TICK)  # its pipe is closed a moment earlier, and a kill would hide what it died of
        said, code = self._last_words(), self.end(selector)
        if self.job is None:
            return None
        if code == -signal.SIGKILL:
            return failure(LOST, "its worker was killed from outside, perhaps for memory")
        how = signal.Signals(-code).name if code < 0 else f"code {code}"
        return failure(CRASH, f"its worker ended with {how}{f': {said}' if said else ''}")

    def _last_words(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        return Ended(0, False, text, b"").last_line if text.strip() else ""

    def end(self, selector: selectors.BaseSelector | None = None) -> int:
        """End the worker, if there is one, and all that it has started: its exit code."""
        if self._child is None:
            return 0
        if selector is not None:
            with suppress(KeyError, ValueError):
                selector.unregister(self._child.stdout)  # type: ignore[arg-type]
        code = end_child(self._child)
        self._open.close()
        self._child, self._errors = None, None
        self._buffer.clear()
        return code
