"""How are N workers kept alive together? Each is a measured process of its own, held at the end of its runs.

They take turns: one loads, or runs for a round, while all others wait, so that no worker's time depends on the others
and whatever else the machine does hits all alike. When the last has arrived, or has failed, all of them are looked at;
then they may go.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from onnxmem.measurement import probes, smaps
from onnxmem.measurement.device import Gpu
from onnxmem.measurement.feeds import Fed
from onnxmem.measurement.measure import with_hint
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.protocol import INPUTS, LOAD, RELEASE, STEADY_RUNS, Task
from onnxmem.measurement.trial import Phase, Trial, run_trial
from onnxmem.sharing.sharing import Worker
from onnxmem.unknown import Bytes, Unknown, combine, subtract

OnHold = Callable[[tuple[int, ...]], None]
"""Called with the process ids while all workers wait."""


class _Turns:
    """A lock that is given to whoever has waited longest, so that turns go round."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._queue: deque[object] = deque()

    def acquire(self, who: object) -> None:
        with self._free:
            self._queue.append(who)
            self._free.wait_for(lambda: self._queue[0] is who)

    def release(self, who: object) -> None:
        with self._free:
            if who in self._queue:
                self._queue.remove(who)
            self._free.notify_all()


class _Abandoned(Exception):
    """The parent has given up; the worker has to go."""


@dataclass(eq=False)
class _Member:
    """One worker, as its thread sees it."""

    task: Task
    files: tuple[Path, ...]
    pid: int | None = None
    trial: Trial | None = None
    error: BaseException | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    """It waits with all its work done, or it has ended."""
    waiting: bool = False


class Gathering:
    """Workers that are alive at the same time: a task for each, and the files its model is in."""

    def __init__(self, tasks: Sequence[tuple[Task, tuple[Path, ...]]], fed: Fed, timeout: float) -> None:
        self._fed, self._timeout = fed, timeout
        self._turns, self._go = _Turns(), threading.Event()
        self._abandoned = False
        self._members = [_Member(task, files) for task, files in tasks]
        self._seen: dict[int, tuple[Reading, Bytes]] = {}
        device = next((task.device for task, _ in tasks), None)
        self._gpu = None if device is None else Gpu(device)
        self._there: dict[int, Bytes] = {}

    def run(self, on_hold: OnHold | None = None) -> tuple[Worker | str, ...]:
        """Bring all of them to the point where they wait, look, and let them go: what was seen, or what went wrong."""
        threads = [
            threading.Thread(target=self._attend, args=(member,), name="onnxmem-worker") for member in self._members
        ]
        try:
            for thread in threads:
                thread.start()
            for member in self._members:
                member.arrived.wait()
            # All readings in a row: PSS depends on who else has a page.
            self._seen = {m.pid: (probes.read(m.pid), _model_pss(m)) for m in self._members if m.waiting and m.pid}
            if self._gpu is not None:
                self._there = dict(zip(self._seen, self._gpu.shares(tuple(self._seen)), strict=True))
            if on_hold and self._seen:
                on_hold(tuple(self._seen))
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
        return tuple(self._result(number, member) for number, member in enumerate(self._members, 1))

    def _attend(self, member: _Member) -> None:
        """One worker, from its start to its end, in a thread of its own."""
        try:
            member.trial = run_trial(
                member.task,
                timeout=self._timeout,
                on_phase=lambda name, pid: self._border(member, name, pid),
            )
        except _Abandoned:
            pass
        except BaseException as error:
            member.error = error
        finally:
            self._turns.release(member)
            member.waiting = member.waiting and member.trial is None
            member.arrived.set()

    def _border(self, member: _Member, phase: str, pid: int) -> None:
        """Called while the worker waits to begin a phase."""
        member.pid = pid
        if phase == LOAD:
            self._turns.acquire(member)
        elif phase == STEADY_RUNS:
            self._turns.release(member)
            self._turns.acquire(member)
        elif phase == RELEASE:
            self._turns.release(member)
            member.waiting = True
            member.arrived.set()
            self._go.wait()
        if self._abandoned:
            raise _Abandoned

    def _kill(self) -> None:
        for member in self._members:
            if member.pid and member.trial is None:
                with suppress(OSError):
                    os.killpg(member.pid, signal.SIGKILL)

    def _result(self, number: int, member: _Member) -> Worker | str:
        assert member.trial is not None
        if not member.trial.verdict.ok or member.pid not in self._seen:
            verdict = with_hint(member.trial, self._fed).verdict
            hint = f" ({verdict.hint})" if verdict.hint else ""
            return f"worker {number} of {len(self._members)}: {verdict}{hint}"
        load = member.trial.phase(LOAD)
        assert load is not None
        reading, files = self._seen[member.pid]
        return Worker(
            pss=reading.pss,
            uss=reading.uss,
            anon=reading.anon,
            model_pss=files,
            load_seconds=load.seconds,
            load_peak=load.growth,
            load_peak_anon=_anon_peak(member.trial, load),
            loaded_anon=_anon_growth(member.trial, load),
            first_run=member.trial.first_run or 0.0,
            latencies=member.trial.latencies,
            outputs=",".join(sorted(set(member.trial.outputs))),
            device=self._there.get(member.pid),
        )


def _model_pss(member: _Member) -> Bytes:
    kinds = smaps.classify(member.files, member.pid)
    return kinds if isinstance(kinds, Unknown) else next(kind.pss for kind in kinds if kind.name == "model files")


def _anon_growth(trial: Trial, load: Phase) -> Bytes:
    inputs = trial.phase(INPUTS)
    before = inputs.reading.anon if inputs else Unknown("nothing was read before")
    return combine(lambda grown: max(0, grown), subtract(load.reading.anon, before))


def _anon_peak(trial: Trial, load: Phase) -> Bytes:
    """The largest growth of anonymous memory that was sampled while loading."""
    before = [sample.anon for sample in trial.timeline if sample.at < load.began]
    during = [sample.anon for sample in trial.timeline if load.began <= sample.at <= load.ended]
    if not before or not during:
        return Unknown("loading was over before it could be sampled")
    return max(0, max(during) - before[-1])
