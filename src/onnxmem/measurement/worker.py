"""The measured process: `main` of this module, started by `trial.py`.

It loads and runs a model in named phases and does nothing else: all looking at memory is done by the parent, from
outside, while this process waits at the border of a phase; `protocol.py` has what they say to each other. It imports
as little as it can before the phase `import`, because all of it counts as somebody's memory.
"""

from __future__ import annotations

import os

try:
    with open("/proc/self/statm", "rb") as _file:  # noqa: PTH123  pathlib is not imported yet
        _BEFORE: int | None = int(_file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
except OSError:
    _BEFORE = None

import sys
import time
from collections.abc import Callable
from typing import Any

from onnxmem.measurement import protocol
from onnxmem.measurement.protocol import Message, Task


class _Stopped(Exception):
    """A phase failed; the parent knows why."""


class Worker:
    """One trial: start, import, inputs, load, first run, steady runs, release, trim."""

    def __init__(self, task: Task, out: int) -> None:
        self.task, self.out = task, out

    def send(self, message: Message) -> None:
        os.write(self.out, protocol.encode(message) + b"\n")

    def border(self, message: Message) -> None:
        """Tell the parent, and wait while it looks. If it is gone there is nobody to work for."""
        self.send(message)
        if not sys.stdin.buffer.readline():
            os._exit(1)

    def phase(self, name: str, work: Callable[[], object]) -> None:
        self.border(protocol.Begin(name))
        began = time.monotonic()
        try:
            work()
        except Exception as error:  # whatever a model, its runtime or its inputs can raise is a result
            seconds = time.monotonic() - began
            text = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
            lack = isinstance(error, MemoryError) or any(sign in text for sign in protocol.NO_MEMORY)
            refused = hasattr(error, "hint")
            kind = protocol.OUT_OF_MEMORY if lack else protocol.REFUSED if refused else protocol.FAILED
            hint = getattr(error, "hint", "")
            self.border(protocol.Failed(name, seconds, kind, type(error).__name__, text, hint))
            raise _Stopped from None
        self.border(protocol.End(name, time.monotonic() - began))

    def run(self) -> None:
        self.border(protocol.Begin(protocol.START))
        self.send(protocol.Started(_BEFORE))
        self.border(protocol.End(protocol.START, time.monotonic() - self.task.spawned))
        self.phase(protocol.IMPORT, self.import_runtime)
        self.send(self.imported())
        self.phase(protocol.INPUTS, self.read_inputs)
        self.phase(protocol.LOAD, self.load)
        self.run_steadily()
        if self.task.mode == "planned":
            self.send(self.planned())
        self.release()

    def release(self) -> None:
        self.phase(protocol.RELEASE, self.drop_all)
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415  it is there already

            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
            if trim:
                self.phase(protocol.TRIM, lambda: trim(0))

    def run_steadily(self) -> None:
        self.phase(protocol.FIRST_RUN, lambda: self.run_model(1))
        # Looking at outputs is not running, and hashing them is not what a caller does: between the phases.
        first = self.digest()
        for _ in range(self.task.rounds):
            self.phase(protocol.STEADY_RUNS, lambda: self.run_model(self.task.runs))
        shapes = {name: list(getattr(value, "shape", ())) for name, _, value in self.named_outputs()}
        self.send(protocol.Outputs([first, self.digest()], shapes, self.output_bytes()))
        if self.task.save is not None:
            self.send(self.save_outputs(self.task.save))
        if self.task.profile:
            self.send(protocol.Profiled(self.session.end_profiling()))

    def import_runtime(self) -> None:
        import gc  # noqa: PLC0415
        import hashlib  # noqa: PLC0415

        import numpy  # noqa: PLC0415
        import onnxruntime  # noqa: PLC0415

        from onnxmem.session.session import InferenceSession  # noqa: PLC0415

        if self.task.mode == "planned":
            import contextlib  # noqa: PLC0415

            # A session would import it while it loads: it is not the model's. Where it cannot be, the session says so.
            with contextlib.suppress(ImportError):
                from onnxmem.session.planned import planner as planned  # noqa: F401, PLC0415
        self.new_session = InferenceSession
        self.gc, self.sha256, self.numpy, self.ort = gc, hashlib.sha256, numpy, onnxruntime

    def imported(self) -> Message:
        return protocol.Imported("onnxruntime", self.ort.__version__)

    def read_inputs(self) -> None:
        self.feeds = self.arrays(self.task.feeds)

    def arrays(self, feeds: protocol.SavedFeeds) -> dict[str, Any]:
        return {name: self.numpy.load(path) for name, path in feeds}

    def load(self) -> None:
        options = self.ort.SessionOptions()
        options.log_severity_level = 3
        if self.task.threads is not None:
            options.intra_op_num_threads = self.task.threads
        self.session: Any = self.new_session(
            self.task.model,
            options,
            providers=self.providers(),
            mode=self.task.mode,
            settings=self.task.options,
            config=self.task.config,
            # What is measured is a first start, whatever earlier processes left.
            keep_plans=False if self.task.mode in (None, "planned") else None,
        )
        if self.task.device is not None:
            self.check_device()

    def providers(self) -> list[Any]:
        """What the session is to run on; nodes that a GPU cannot run are the CPU's."""
        from onnxmem.session.modes import CPU, CUDA  # noqa: PLC0415

        return [CPU] if self.task.device is None else [(CUDA, {"device_id": self.task.device}), CPU]

    def check_device(self) -> None:
        """What is measured must not be another one."""
        from onnxmem.session.choosing import refuse_fallback  # noqa: PLC0415

        refuse_fallback(self.session.get_providers())

    def run_model(self, times: int) -> None:
        for _ in range(times):
            # Outputs of the run before are gone by the time the next ones are made, as in a caller's loop.
            self.outputs = None
            began = time.perf_counter()
            self.outputs = self.infer()
            self.send(protocol.Ran(time.perf_counter() - began))

    def infer(self) -> Any:
        """One run, as a caller would make it. What it returns is kept until the next."""
        return self.session.run(None, self.feeds)

    def named_outputs(self) -> list[tuple[str, str, Any]]:
        """Name, type and value of what the last run returned."""
        described = self.session.get_outputs()
        return [(meta.name, meta.type, v) for meta, v in zip(described, self.outputs or (), strict=True)]

    def digest(self) -> str:
        """A hash of all outputs: names, types, shapes and bytes."""
        total = self.sha256()
        for name, kind, value in self.named_outputs():
            total.update(f"{name}\0{kind}\0{getattr(value, 'shape', '')}\0".encode())
            if self.is_plain(value):
                total.update(self.numpy.ascontiguousarray(value).reshape(-1).view(self.numpy.uint8).data)
            else:
                total.update(repr(value.tolist() if hasattr(value, "tolist") else value).encode())
        return str(total.hexdigest())

    def planned(self) -> Message:
        memory = self.session.memory.document()
        notes = [shape["reason"] for shape in memory["shapes"] if shape["reason"]]
        said = {**memory, "reason": memory["reason"] or None, "loaded_mode": self.session.loaded_mode, "notes": notes}
        return protocol.Planned(*(said[name] for name in protocol.Planned._fields))

    def output_bytes(self) -> int | None:
        """What the outputs take together; a sequence is a list of arrays."""
        values = [value for _, _, value in self.named_outputs()]
        arrays = [part for value in values for part in (value if isinstance(value, list) else [value])]
        return sum(array.nbytes for array in arrays) if all(map(self.is_plain, arrays)) else None

    def is_plain(self, value: object) -> bool:
        """Whether it is an array of numbers, whose bytes are all there is of it."""
        return isinstance(value, self.numpy.ndarray) and value.dtype != object

    def save_outputs(self, folder: str) -> Message:
        """Write the outputs down for whoever compares them. What is no plain array has no numbers to compare."""
        saved = []
        for number, (name, _, value) in enumerate(self.named_outputs()):
            path = f"{folder}/output-{number}.npy" if self.is_plain(value) else None
            if path:
                self.numpy.save(path, value, allow_pickle=False)
            saved.append((name, path))
        return protocol.Saved(saved)

    def drop_all(self) -> None:
        self.feeds = {}
        self.outputs = self.session = None
        self.gc.collect()


def main(worker: type[Worker] = Worker) -> None:
    """Do one task for the parent at the other end of stdin and stdout."""
    # Whatever prints on stdout from here on, a library or a kernel, must not end up between the messages.
    out = os.dup(1)
    os.dup2(2, 1)
    task: Task = protocol.decode(sys.stdin.buffer.readline())
    if task.rlimits:
        import resource  # noqa: PLC0415

        for name, value in task.rlimits.items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # noqa: PLW2901
            resource.setrlimit(kind, (value, value))
    try:
        worker(task, out).run()
    except _Stopped:
        sys.exit(3)
