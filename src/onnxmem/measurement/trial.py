"""One life of the measured process, as seen from outside: its phases, and how it ended."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from onnxmem.errors import UsageError
from onnxmem.measurement import probes, smaps
from onnxmem.measurement.limit import Limit
from onnxmem.measurement.probes import Peak, Reading, Sample, Sampler
from onnxmem.measurement.verdict import Verdict, judge
from onnxmem.unknown import Bytes, Unknown

PHASES = ("start", "import", "inputs", "load", "first run", "steady runs", "release", "trim", "exit")
"""`release` drops all references; `trim` then asks glibc to give back what it keeps of the freed heap."""
OnPhase = Callable[[str, int], None]
"""Called at the beginning of each phase with its name and the child's process id, while the child waits."""


@dataclass(frozen=True)
class Phase:
    """One phase: what the process took at its end and at most."""

    name: str
    completed: bool
    reading: Reading
    peak: Peak
    seconds: float
    began: float
    ended: float
    cgroup_peak: Bytes
    made_of: tuple[smaps.Kind, ...] | Unknown
    before: Bytes
    """RSS when the phase began."""

    @property
    def growth(self) -> Bytes:
        """Peak RSS in the phase − RSS before it."""
        if isinstance(self.peak.rss, Unknown):
            return self.peak.rss
        return self.before if isinstance(self.before, Unknown) else max(0, self.peak.rss - self.before)


@dataclass(frozen=True)
class Overhead:
    """What the instrument itself cost."""

    child_bytes: Bytes
    """Memory of the measured process that is ours: what it imports to be able to listen."""
    readings: int
    reading_seconds: float
    """All readings together; the child waits meanwhile, and no phase or run counts it."""
    samples: int
    sampler_seconds: float
    """Processor time for the timeline, on another core if there is one."""


@dataclass(frozen=True)
class Trial:
    """One life of the measured process."""

    phases: tuple[Phase, ...]
    verdict: Verdict
    latencies: tuple[float, ...]
    """Seconds of each steady run."""
    first_run: float | None
    outputs: tuple[str, ...]
    """Hashes of the outputs: of the first run and of the last."""
    output_shapes: Mapping[str, tuple[int, ...]]
    timeline: tuple[Sample, ...]
    overhead: Overhead
    limited_by: str | None
    onnxruntime: str | None
    profile: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All else that the process said."""

    def phase(self, name: str) -> Phase | None:
        """The phase of that name, if it was reached."""
        return next((phase for phase in self.phases if phase.name == name), None)


@dataclass
class _Log:
    """What is known so far; grows message by message."""

    began: float
    phases: list[Phase] = field(default_factory=list)
    current: str | None = "start"
    before: Bytes = field(default_factory=lambda: Unknown("the process had not begun"))
    refused: Unknown | None = None
    error: Mapping[str, Any] | None = None
    runs: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    readings: int = 0
    reading_seconds: float = 0.0


def run_trial(
    task: Mapping[str, Any],
    *,
    timeout: float,
    memory_limit: int | None,
    model_files: tuple[Path, ...],
    on_phase: OnPhase | None = None,
    worker: str = "onnxmem.measurement.worker",
) -> Trial:
    """Start a process for the task and watch it to its end. It has ended when this returns or raises, always."""
    with Limit(memory_limit) as limit, tempfile.TemporaryFile() as said:
        kills = limit.oom_kills()
        spawned = time.monotonic()
        child = _spawn(said, worker, memory_limit is not None)
        try:
            limit.admit(child.pid)
            log = _Log(spawned)
            whole = {**task, "rlimits": limit.rlimits, "parent": os.getpid(), "spawned": spawned}
            _answer(child, json.dumps(whole).encode())
            with Sampler(child.pid) as sampler:
                late = _listen(child, log, spawned + timeout, model_files, on_phase)
        finally:
            _kill_all(child)
        said.seek(0)
        tail = said.read()[-4000:].decode(errors="replace")
        killed = limit.oom_kills()
        oom = kills is not None and killed is not None and killed > kills
        late_after = timeout if late else None
        verdict = judge(log.current, log.error, child.returncode, tail, oom=oom, timeout=late_after)
    if log.error and log.error["kind"] == "refused":
        raise UsageError(log.error["message"], hint=log.error["hint"])
    _close(log, child.returncode, sampler.samples)
    phases = tuple(_sampled(phase, sampler) for phase in log.phases)
    steady, first = log.runs.get("steady runs", []), log.runs.get("first run", [])
    return Trial(
        phases,
        verdict,
        tuple(steady),
        first[0] if first else None,
        tuple(log.facts.get("outputs", ())),
        {name: tuple(shape) for name, shape in log.facts.get("shapes", {}).items()},
        sampler.samples,
        _overhead(log, sampler),
        limit.by,
        log.facts.get("onnxruntime"),
        log.facts.get("profile"),
        log.facts,
    )


def _spawn(said: IO[bytes], worker: str, limited: bool) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if limited:
        # NumPy's BLAS reserves a buffer for each core, which counts against the limit and is never used here.
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", worker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        env=environment,
        # A session, and so a process group, of its own: Ctrl-C reaches the parent alone, and one kill reaches all.
        start_new_session=True,
    )


def _listen(
    child: subprocess.Popen[bytes],
    log: _Log,
    deadline: float,
    model_files: tuple[Path, ...],
    on_phase: OnPhase | None,
) -> bool:
    """Take the child through its phases; True if it was too late for the rest."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def pump() -> None:
        assert child.stdout is not None
        with suppress(OSError, ValueError):
            for line in child.stdout:
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=pump, name="onnxmem-listener", daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if log.current:
                _look(child.pid, log, model_files, time.monotonic() - log.began, completed=False)
            return True
        if not line.endswith(b"\n"):  # nothing, or half a message: it has died
            break
        _hear(child, json.loads(line), log, model_files, on_phase)
    return _wait(child, log, deadline)


def _hear(
    child: subprocess.Popen[bytes],
    message: dict[str, Any],
    log: _Log,
    model_files: tuple[Path, ...],
    on_phase: OnPhase | None,
) -> None:
    if "begin" in message:
        log.current = message["begin"]
        if on_phase:
            on_phase(log.current, child.pid)
        if log.current != "start":  # which began with the process, and so did its peak
            log.refused = probes.reset_peak(child.pid)
            log.began = time.monotonic()
        _answer(child)
    elif "end" in message:
        log.error = message.get("error")
        log.facts.update(message)
        _look(child.pid, log, model_files, message["seconds"], completed=log.error is None)
        if log.error is None:
            log.current = None
        _answer(child)
    elif "run" in message:
        log.runs.setdefault(log.current or "", []).append(message["seconds"])
    else:
        log.facts.update(message)


def _look(pid: int, log: _Log, model_files: tuple[Path, ...], seconds: float, *, completed: bool) -> None:
    """Read everything about the waiting child and write down the phase."""
    began = time.monotonic()
    reading = probes.read(pid)
    made_of = smaps.classify(model_files, pid)
    if log.refused is None:
        peak = Peak(reading.peak_rss, True, "VmHWM, reset before the phase")
    else:
        peak = Peak(log.refused, False, log.refused.reason)
    assert log.current is not None
    log.phases.append(
        Phase(
            log.current,
            completed,
            reading,
            peak,
            seconds,
            log.began,
            began,
            probes.cgroup_peak(pid),
            made_of,
            log.before,
        )
    )
    log.before = reading.rss
    log.readings += 1
    log.reading_seconds += time.monotonic() - began


def _wait(child: subprocess.Popen[bytes], log: _Log, deadline: float) -> bool:
    """The child has closed its end: wait until it is gone."""
    if log.current is None:
        log.current, log.began = "exit", time.monotonic()
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


def _close(log: _Log, code: int, samples: tuple[Sample, ...]) -> None:
    """Write down the phase that has no end of its own: the exit, or the one in which the process died."""
    now = time.monotonic()
    if log.current is None or (log.phases and log.phases[-1].name == log.current):
        return
    if log.current == "exit" and code == 0:
        # Here 0 is not a guess: a process that has been waited for has nothing.
        reading = Reading(0, 0, 0, 0, 0, 0, 0, Unknown("the process has ended"), at=now, source="waitpid")
        completed = True
    else:
        gone = Unknown("the process ended in this phase")
        last = next((s for s in reversed(samples) if s.at >= log.began), None)
        known: tuple[Bytes, Bytes, Bytes] = (last.rss, last.anon, last.file) if last else (gone, gone, gone)
        rss, anon, file = known
        reading = Reading(rss, gone, gone, anon, file, gone, gone, gone, at=now, source="last sample")
        completed = False
    gone = Unknown("the process has ended")
    peak = Peak(gone, False, "the process ended in this phase")
    ended = now - log.began
    log.phases.append(Phase(log.current, completed, reading, peak, ended, log.began, now, gone, gone, log.before))


def _sampled(phase: Phase, sampler: Sampler) -> Phase:
    """The phase, with the largest sample for a peak that the kernel does not tell."""
    if isinstance(phase.peak.rss, int):
        return phase
    seen = [s.rss for s in sampler.samples if phase.began <= s.at <= phase.ended]
    if isinstance(phase.reading.rss, int) and phase.reading.source != "waitpid":
        seen.append(phase.reading.rss)
    if not seen:
        return phase
    every = f"sampled every {sampler.interval * 1000:g} ms, because {phase.peak.method}"
    return replace(phase, peak=Peak(max(seen), False, every))


def _overhead(log: _Log, sampler: Sampler) -> Overhead:
    before, start = log.facts.get("rss_before_bytes"), next((p for p in log.phases if p.name == "start"), None)
    rss = start.reading.rss if start else Unknown("the process did not start")
    own: Bytes = Unknown("the process could not read its own memory")
    if isinstance(rss, int) and before is not None:
        own = max(0, rss - before)
    return Overhead(own, log.readings, log.reading_seconds, len(sampler.samples), sampler.seconds)


def _answer(child: subprocess.Popen[bytes], line: bytes = b"") -> None:
    assert child.stdin is not None
    with suppress(OSError):  # it has died: its end of the pipe says so, and the verdict why
        child.stdin.write(line + b"\n")
        child.stdin.flush()


def _kill_all(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it has started."""
    if child.poll() is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL) if hasattr(os, "killpg") else child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()
