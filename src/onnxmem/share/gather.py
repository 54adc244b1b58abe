"""How are N workers kept alive together? Each is a measured process of its own, held at the end of its runs.

They load and run one after the other, so that no worker's time depends on the others, and then wait. When the last
has arrived, or has failed, all of them are looked at; then they may go.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxmem.measure import probes, smaps
from onnxmem.measure.probes import Bytes, Reading
from onnxmem.measure.trial import Phase, Trial, run_trial
from onnxmem.share.sharing import Worker
from onnxmem.unknown import Unknown

OnHold = Callable[[tuple[int, ...]], None]
"""Called with the process ids while all workers wait."""


class _Abandoned(Exception):
    """The parent has given up; the worker has to go."""


@dataclass
class _Member:
    """One worker, as its thread sees it."""

    pid: int | None = None
    holds_turn: bool = False
    trial: Trial | None = None
    error: BaseException | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    """It waits with all its work done, or it has ended."""
    waiting: bool = False


class Gathering:
    """N workers of one task."""

    def __init__(self, task: Mapping[str, Any], count: int, files: tuple[Path, ...], timeout: float) -> None:
        self._task, self._files, self._timeout = task, files, timeout
        self._turn, self._go = threading.Lock(), threading.Event()
        self._abandoned = False
        self._members = [_Member() for _ in range(count)]
        self._seen: dict[int, tuple[Reading, Bytes]] = {}

    def run(self, on_hold: OnHold | None = None) -> tuple[tuple[Worker, ...], tuple[str, ...]]:
        """Bring all of them to the point where they wait, look, and let them go: the workers, and what went wrong."""
        threads = [
            threading.Thread(target=self._live, args=(member,), name="onnxmem-worker") for member in self._members
        ]
        try:
            for thread in threads:
                thread.start()
            for member in self._members:
                member.arrived.wait()
            waiting = [member.pid for member in self._members if member.waiting and member.pid]
            # All readings in a row: PSS depends on who else has a page.
            self._seen = {pid: (probes.read(pid), self._model_pss(pid)) for pid in waiting}
            if on_hold and waiting:
                on_hold(tuple(waiting))
        except BaseException:
            self._abandoned = True
            self._kill()
            raise
        finally:
            self._go.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        for member in self._members:
            if member.error:
                raise member.error
        workers = tuple(self._worker(member) for member in self._members if member.pid in self._seen)
        return workers, self._failures()

    def _live(self, member: _Member) -> None:
        """One worker's life, in a thread of its own: the kernel ends a child with the thread that started it."""
        try:
            member.trial = run_trial(
                self._task,
                timeout=self._timeout,
                memory_limit=None,
                model_files=(),
                on_phase=lambda name, pid: self._border(member, name, pid),
            )
        except _Abandoned:
            pass
        except BaseException as error:
            member.error = error
        finally:
            if member.holds_turn:
                self._turn.release()
            member.waiting = member.waiting and member.trial is None
            member.arrived.set()

    def _border(self, member: _Member, phase: str, pid: int) -> None:
        """Called while the worker waits to begin a phase."""
        member.pid = pid
        if phase == "load":
            self._turn.acquire()
            member.holds_turn = True
        elif phase == "release":
            member.holds_turn = False
            self._turn.release()
            member.waiting = True
            member.arrived.set()
            self._go.wait()
        if self._abandoned:
            raise _Abandoned

    def _model_pss(self, pid: int) -> Bytes:
        kinds = smaps.classify(self._files, pid)
        return kinds if isinstance(kinds, Unknown) else next(k.pss for k in kinds if k.name == "model files")

    def _kill(self) -> None:
        for member in self._members:
            if member.pid and member.trial is None:
                with suppress(OSError):
                    os.killpg(member.pid, signal.SIGKILL)

    def _failures(self) -> tuple[str, ...]:
        return tuple(
            f"worker {number} of {len(self._members)}: {member.trial.verdict}"
            for number, member in enumerate(self._members, 1)
            if member.trial and not member.trial.verdict.ok
        )

    def _worker(self, member: _Member) -> Worker:
        assert member.trial is not None
        assert member.pid is not None
        load = member.trial.phase("load")
        assert load is not None
        reading, files = self._seen[member.pid]
        return Worker(
            reading,
            files,
            load.seconds,
            load.growth,
            _anon_peak(member.trial, load),
            member.trial.first_run or 0.0,
            member.trial.latencies,
            ",".join(sorted(set(member.trial.outputs))),
        )


def _anon_peak(trial: Trial, load: Phase) -> Bytes:
    """The largest growth of anonymous memory that was sampled while loading."""
    before = [sample.anon for sample in trial.timeline if sample.at < load.began]
    during = [sample.anon for sample in trial.timeline if load.began <= sample.at <= load.ended]
    if not before or not during:
        return Unknown("loading was over before it could be sampled")
    return max(0, max(during) - before[-1])
