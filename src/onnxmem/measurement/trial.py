"""One trial: a fresh process that loads and runs a model, as seen from outside. Its phases, and how it ended."""

from __future__ import annotations

import queue
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxmem.documents import Record, inlined, stored
from onnxmem.errors import UsageError
from onnxmem.folders import temporary_file
from onnxmem.measurement import probes, protocol, smaps
from onnxmem.measurement.device import Gpu, GpuWatch
from onnxmem.measurement.limit import Limit
from onnxmem.measurement.probes import Peak, Reading, Sample, Sampler
from onnxmem.measurement.protocol import EXIT, START, Failed, Planned, Released, Task
from onnxmem.measurement.verdict import Verdict, judge
from onnxmem.process.child import end_child, has_ended, send_line, start_child
from onnxmem.unknown import Bytes, Unknown, combine, known, subtract

OnPhase = Callable[[str, int], None]
"""Called at the beginning of each phase with its name and the child's process id, while the child waits."""


@dataclass(frozen=True, kw_only=True)
class Phase(Record):
    """One phase: what the process took at its end and at most. Times count from the start of the process."""

    name: str
    completed: bool
    reading: Reading = inlined()
    """At its end; `peak_rss` is the most in this phase."""
    peak_exact: bool
    """True if the kernel kept it; False if it is only the largest sample, and a short peak may have been missed."""
    peak_method: str
    seconds: float
    began: float = stored("began_seconds")
    ended: float = stored("ended_seconds")
    cgroup_peak: Bytes = stored("cgroup_peak_bytes")
    made_of: tuple[smaps.Kind, ...] | Unknown
    before: Bytes = stored("before_rss_bytes")
    """RSS when the phase began."""
    device: Bytes | None = stored("device_bytes", default=None)
    """What the process took on the device at its end; None if it runs on the CPU."""
    peak_device: Bytes | None = stored("peak_device_bytes", default=None)
    """The most that was seen there in the phase."""
    before_device: Bytes | None = stored("before_device_bytes", default=None)

    @property
    def peak(self) -> Peak:
        """The most that was resident in the phase."""
        return Peak(self.reading.peak_rss, self.peak_exact, self.peak_method)

    @property
    def growth(self) -> Bytes:
        """Peak RSS in the phase − RSS before it."""
        return combine(lambda grown: max(0, grown), subtract(self.peak.rss, self.before))

    def derived(self) -> Mapping[str, Any]:
        """Its growth."""
        return {"growth_bytes": self.growth}


@dataclass(frozen=True, kw_only=True)
class Overhead(Record):
    """What the instrument itself cost."""

    child_bytes: Bytes
    """Memory of the measured process that is ours: what it imports to be able to listen."""
    readings: int
    reading_seconds: float
    """All readings together; the child waits meanwhile, and no phase or run counts it."""
    samples: int
    sampler_seconds: float
    """Processor time for the timeline, on another core if there is one."""


@dataclass(frozen=True, kw_only=True)
class Trial(Record):
    """One measured process, from its start to its end."""

    phases: tuple[Phase, ...]
    verdict: Verdict
    latencies: tuple[float, ...] = stored("latencies_seconds")
    """Seconds of each steady run."""
    first_run: float | None = stored("first_run_seconds")
    outputs: tuple[str, ...] = stored("outputs_sha256", default=())
    """Hashes of the outputs: of the first run and of the last."""
    output_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    output_bytes: Bytes = field(default_factory=lambda: Unknown("it was not measured"))
    """What the outputs of the last run take together."""
    timeline: tuple[Sample, ...]
    overhead: Overhead
    limited_by: str | None
    framework: str | None = None
    """`onnxruntime` or `torch`; None if it was not imported."""
    framework_version: str | None = None
    planned: Planned | None = None
    released: Released | None = None
    profile: str | None = None
    device: str | None = None
    """The GPU that it ran on."""
    device_method: str | None = None
    """How its memory there was measured."""
    saved: tuple[tuple[str, str | None], ...] = ()
    """Names of outputs, and the files they were written to."""

    @property
    def onnxruntime(self) -> str | None:
        """The version of ONNX Runtime, if that ran it."""
        return self.framework_version if self.framework == "onnxruntime" else None

    @property
    def latency(self) -> float | None:
        """The median of its steady runs, in seconds."""
        return statistics.median(self.latencies) if self.latencies else None

    @property
    def highest(self) -> Bytes:
        """Peak RSS over all phases."""
        return max(known(phase.peak.rss for phase in self.phases), default=Unknown("no peak is known"))

    def phase(self, name: str) -> Phase | None:
        """The phase of that name, if it was reached."""
        return next((phase for phase in self.phases if phase.name == name), None)

    @property
    def device_highest(self) -> Bytes:
        """The most that was seen on the device."""
        return max(known(map(_peak_device, self.phases)), default=Unknown("nothing was seen on the device"))

    def growth(self, first: str, *more: str) -> Bytes:
        """Peak RSS in these phases − RSS before the first of them."""
        return self._growth(lambda phase: phase.peak.rss, lambda phase: phase.before, first, *more)

    def device_growth(self, first: str, *more: str) -> Bytes:
        """The same on the device."""
        return self._growth(_peak_device, lambda phase: _there(phase.before_device), first, *more)

    def _growth(
        self, peak_of: Callable[[Phase], Bytes], before: Callable[[Phase], Bytes], first: str, *more: str
    ) -> Bytes:
        start = self.phase(first)
        if start is None:
            return Unknown(f"the phase '{first}' was not reached")
        phases = [start, *(phase for name in more if (phase := self.phase(name)))]
        if not self.verdict.ok and (broken := next((phase for phase in phases if not phase.completed), None)):
            # What it had taken until then is in the phases; as a result it would look like little.
            return Unknown(f"the phase '{broken.name}' was not completed")
        peak: Bytes = max(known(map(peak_of, phases)), default=Unknown("no peak is known"))
        return combine(lambda grown: max(0, grown), subtract(peak, before(start)))


def _there(size: Bytes | None) -> Bytes:
    return Unknown("it runs on the CPU") if size is None else size


def _peak_device(phase: Phase) -> Bytes:
    return _there(phase.peak_device)


def run_trial(
    task: Task,
    *,
    timeout: float,
    memory_limit: int | None = None,
    model_files: tuple[Path, ...] = (),
    on_phase: OnPhase | None = None,
    worker: str = "onnxmem.measurement.worker",
) -> Trial:
    """Start a process for the task and watch it to its end. It has ended when this returns or raises, always."""
    # NumPy's BLAS reserves a buffer for each core, which counts against a limit and is never used here.
    environment = {} if memory_limit is None else {"OPENBLAS_NUM_THREADS": "1"}
    gpu = None if task.device is None else Gpu(task.device)
    if gpu is not None:
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts them
    with Limit(memory_limit) as limit, temporary_file() as output, ExitStack() as while_watched:
        kills = limit.oom_kills()
        spawned = time.monotonic()
        pipe = subprocess.PIPE
        child = start_child(worker, environment=environment, stdin=pipe, stdout=pipe, stderr=output)
        try:
            limit.admit(child.pid)
            watched = while_watched.enter_context(GpuWatch(gpu, child.pid)) if gpu else None
            watch = _Watch(child, spawned, model_files, on_phase, watched)
            send_line(child, protocol.encode(task._replace(rlimits=limit.rlimits, spawned=spawned)))
            with Sampler(child.pid) as sampler:
                late = watch.listen(spawned + timeout)
        finally:
            code = end_child(child)
        output.seek(0)
        tail = output.read()[-4000:].decode(errors="replace")
        killed = limit.oom_kills()
        oom = kills is not None and killed is not None and killed > kills
    failure = watch.failure
    if failure is not None and failure.kind == protocol.REFUSED:
        raise UsageError(failure.message, hint=failure.hint)
    verdict = judge(watch.current, failure, code, tail, oom=oom, limit=memory_limit, timeout=timeout if late else None)
    trial = watch.trial(verdict, code, sampler, limit.by)
    return trial if gpu is None else replace(trial, device=gpu.name, device_method=gpu.method)


class _Watch:
    """The parent's side of the protocol; what is known grows message by message."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        spawned: float,
        model_files: tuple[Path, ...],
        on_phase: OnPhase | None,
        gpu: GpuWatch | None,
    ) -> None:
        self.child, self.spawned, self.model_files, self.on_phase = child, spawned, model_files, on_phase
        self.gpu = gpu
        self.current: str | None = START
        self.failure: Failed | None = None
        self._began = spawned
        self._before: Bytes = Unknown("the process had not begun")
        self._before_device: Bytes = 0
        self._no_reset: Unknown | None = None
        self._phases: list[Phase] = []
        self._runs: dict[str, list[float]] = {}
        self._interpreter: Bytes = Unknown("the process did not start")
        self._told: dict[str, Any] = {}
        """Fields of the trial that the child has told."""
        self._readings, self._reading_seconds = 0, 0.0

    def listen(self, deadline: float) -> bool:
        """Take the child through its phases; True if it was too late for the rest."""
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def pump() -> None:
            assert self.child.stdout is not None
            with suppress(OSError, ValueError):
                for line in self.child.stdout:
                    lines.put(line)
            lines.put(b"")

        threading.Thread(target=pump, name="onnxmem-listener", daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                if self.current:
                    self._look(time.monotonic() - self._began, completed=False)
                return True
            if not line.endswith(b"\n"):  # nothing, or half a message: it has died
                break
            self._hear(protocol.decode(line))
        if self.current is None:
            self.current, self._began = EXIT, time.monotonic()
        return not has_ended(self.child, max(0.0, deadline - time.monotonic()))

    def _hear(self, message: protocol.Message) -> None:
        match message:
            case protocol.Begin(phase):
                self.current = phase
                if self.on_phase:
                    self.on_phase(phase, self.child.pid)
                if phase != START:  # which began with the process, and so did its peak
                    self._no_reset = probes.reset_peak(self.child.pid)
                    self._began = time.monotonic()
                send_line(self.child)
            case protocol.End(_, seconds):
                self._look(seconds, completed=True)
                self.current = None
                send_line(self.child)
            case Failed(_, seconds):
                self.failure = message
                self._look(seconds, completed=False)
                send_line(self.child)
            case protocol.Ran(seconds):
                self._runs.setdefault(self.current or "", []).append(seconds)
            case protocol.Started(rss):
                self._interpreter = Unknown("the process could not read its own memory") if rss is None else rss
            case Planned() | Released():
                self._told[type(message).__name__.lower()] = message
            case _:
                self._told |= zip(message._fields, message, strict=True)

    def _look(self, seconds: float, *, completed: bool) -> None:
        """Read everything about the waiting child and write down the phase."""
        began = time.monotonic()
        pid, reading = self.child.pid, probes.read(self.child.pid)
        method = "VmHWM, reset before the phase"
        if self._no_reset is not None:
            reading, method = replace(reading, peak_rss=self._no_reset), self._no_reset.reason
        self._write(
            reading,
            began,
            completed=completed,
            seconds=seconds,
            peak_exact=self._no_reset is None,
            peak_method=method,
            cgroup_peak=probes.cgroup_peak(pid),
            made_of=smaps.classify(self.model_files, pid),
            **self._look_at_device(),
        )
        self._readings += 1
        self._reading_seconds += time.monotonic() - began

    def _look_at_device(self) -> dict[str, Bytes]:
        if self.gpu is None:
            return {}
        now, peak = self.gpu.read(self._began)
        before, self._before_device = self._before_device, now
        return {"device": now, "peak_device": peak, "before_device": before}

    def _write(self, reading: Reading, ended: float, **figures: Any) -> None:
        assert self.current is not None
        reading = replace(reading, at=reading.at - self.spawned)
        began, ended = self._began - self.spawned, ended - self.spawned
        phase = Phase(name=self.current, reading=reading, began=began, ended=ended, before=self._before, **figures)
        self._phases.append(phase)
        self._before = reading.rss

    def trial(self, verdict: Verdict, code: int, sampler: Sampler, limited_by: str | None) -> Trial:
        """All of it, after the end."""
        samples = tuple(replace(seen, at=round(seen.at - self.spawned, 4)) for seen in sampler.samples)
        self._close(code, samples)
        phases = tuple(_sampled(phase, samples, sampler.interval) for phase in self._phases)
        if self._told.get("output_bytes", 0) is None:
            self._told["output_bytes"] = Unknown("an output is no plain array, whose size is known")
        return Trial(
            phases=phases,
            verdict=verdict,
            latencies=tuple(self._runs.get(protocol.STEADY_RUNS, ())),
            first_run=next(iter(self._runs.get(protocol.FIRST_RUN, ())), None),
            timeline=samples,
            overhead=Overhead(
                child_bytes=self._own_bytes(),
                readings=self._readings,
                reading_seconds=self._reading_seconds,
                samples=len(samples),
                sampler_seconds=sampler.seconds,
            ),
            limited_by=limited_by,
            **{"output_bytes": Unknown("no run was completed"), **self._told},
        )

    def _close(self, code: int, samples: tuple[Sample, ...]) -> None:
        """Write down the phase that has no end of its own: the exit, or the one in which the process died."""
        now = time.monotonic()
        if self.current is None or (self._phases and self._phases[-1].name == self.current):
            return
        ended_well = self.current == EXIT and code == 0
        gone = Unknown("the process has ended" if ended_well else "the process ended in this phase")
        if ended_well:
            # Here 0 is not a guess: a process that has been waited for has nothing.
            reading = Reading(0, 0, 0, 0, 0, 0, 0, gone, at=now, source="waitpid")
        else:
            last = next((seen for seen in reversed(samples) if seen.at >= self._began - self.spawned), None)
            known: tuple[Bytes, Bytes, Bytes] = (last.rss, last.anon, last.file) if last else (gone, gone, gone)
            rss, anon, file = known
            reading = Reading(rss, gone, gone, anon, file, gone, gone, gone, at=now, source="last sample")
        gone = Unknown("the process has ended")
        # The driver takes back what a process had.
        there = {"device": 0} if self.gpu is not None and ended_well else {}
        self._write(
            reading,
            now,
            completed=ended_well,
            seconds=now - self._began,
            peak_exact=False,
            peak_method="the process ended in this phase",
            cgroup_peak=gone,
            made_of=gone,
            **there,
        )

    def _own_bytes(self) -> Bytes:
        started = self._phases[0].reading.rss if self._phases else self._interpreter
        return combine(lambda grown: max(0, grown), subtract(started, self._interpreter))


def _sampled(phase: Phase, samples: tuple[Sample, ...], interval: float) -> Phase:
    """The phase, with the largest sample for a peak that the kernel does not tell."""
    if isinstance(phase.peak.rss, int):
        return phase
    seen = [sample.rss for sample in samples if phase.began <= sample.at <= phase.ended]
    if isinstance(phase.reading.rss, int) and phase.reading.source != "waitpid":
        seen.append(phase.reading.rss)
    if not seen:
        return phase
    every = f"sampled every {interval * 1000:g} ms, because {phase.peak_method}"
    return replace(phase, reading=replace(phase.reading, peak_rss=max(seen)), peak_method=every)
