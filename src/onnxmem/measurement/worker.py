"""The measured process: `python -P -m onnxmem.measurement.worker`.

It loads and runs a model in named phases and does nothing else: all looking at memory is done by the parent, from
outside, while this process waits at the border of a phase. What it says goes to the parent as lines of JSON, one for
each border, so that whatever kills it takes only the phase it was in:

    ← {"model": …}                                   the task
    → {"begin": "load"}               ← (a line)     go on
    → {"end": "load", "seconds": …}   ← (a line)     go on
    → {"run": 3, "seconds": …}                       no answer

It imports as little as it can before the phase `import`, because all of it counts as somebody's memory.
"""

from __future__ import annotations

import os

try:
    with open("/proc/self/statm", "rb") as _file:  # noqa: PTH123  pathlib is not imported yet
        _BEFORE: int | None = int(_file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
except OSError:
    _BEFORE = None

import json
import sys
import time
from typing import Any

from onnxmem.process.orphan import die_with

# What failed allocations look like as text: from Python, C++, the loader, ONNX Runtime's arena, NumPy's BLAS, PyTorch.
NO_MEMORY = (
    "MemoryError",
    "bad_alloc",
    "annot allocate memory",
    "ailed to allocate memory",
    "Memory allocation still",
    "can't allocate memory",
)


class _Stopped(Exception):
    """A phase failed; the parent knows why."""


class Worker:
    """One life: start, import, inputs, load, first run, steady runs, release, trim."""

    def __init__(self, task: dict[str, Any], out: int) -> None:
        self.task, self.out = task, out
        self.series: list[tuple[str, dict[str, Any]]] = []

    def say(self, message: dict[str, Any]) -> None:
        os.write(self.out, json.dumps(message).encode() + b"\n")

    def border(self, message: dict[str, Any]) -> None:
        """Tell the parent, and wait while it looks. If it is gone there is nobody to work for."""
        self.say(message)
        if not sys.stdin.buffer.readline():
            os._exit(1)

    def phase(self, name: str, work: Any) -> None:
        self.border({"begin": name})
        began = time.monotonic()
        try:
            facts = work() or {}
        except Exception as error:  # whatever a model, its runtime or its inputs can raise is a result
            seconds = time.monotonic() - began
            text = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
            lack = isinstance(error, MemoryError) or any(sign in text for sign in NO_MEMORY)
            kind = "out of memory" if lack else "refused" if hasattr(error, "hint") else "failed"
            what = {"kind": kind, "type": type(error).__name__, "message": text, "hint": getattr(error, "hint", "")}
            self.border({"end": name, "seconds": seconds, "error": what})
            raise _Stopped from None
        self.border({"end": name, "seconds": time.monotonic() - began, **facts})

    def run(self) -> None:
        self.border({"begin": "start"})
        self.border({"end": "start", "seconds": time.monotonic() - self.task["spawned"], "rss_before_bytes": _BEFORE})
        self.phase("import", self.import_runtime)
        self.phase("inputs", self.read_inputs)
        self.phase("load", self.load)
        if self.task.get("series"):
            self.run_series()
        else:
            self.run_steadily()
        if self.task.get("mode") == "planned":
            self.say({"planned": self.planned()})
        self.let_go()

    def let_go(self) -> None:
        self.phase("release", self.release)
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415  it is there already

            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
            if trim:
                self.phase("trim", lambda: {"trimmed": trim(0)})

    def run_steadily(self) -> None:
        self.phase("first run", lambda: self.run_model(1))
        # Looking at outputs is not running, and hashing them is not what a caller does: between the phases.
        first = self.digest()
        for _ in range(self.task.get("rounds", 1)):
            self.phase("steady runs", lambda: self.run_model(self.task["runs"]))
        self.say({"outputs": [first, self.digest()], "shapes": self.shapes()})
        if self.task.get("save"):
            self.save_outputs(self.task["save"])
        if self.task["profile"]:
            self.say({"profile": self.session.end_profiling()})

    def run_series(self) -> None:
        """Inputs of several sizes, one after the other, in this one process: a phase for each."""
        for name, feeds in self.series:
            self.feeds = feeds
            self.phase(f"run {name}", lambda: self.run_model(1 + self.task["runs"]))

    def import_runtime(self) -> dict[str, Any]:
        import gc  # noqa: PLC0415
        import hashlib  # noqa: PLC0415

        import numpy  # noqa: PLC0415
        import onnxruntime  # noqa: PLC0415

        from onnxmem.session.session import InferenceSession  # noqa: PLC0415

        if self.task["mode"] == "planned":
            import contextlib  # noqa: PLC0415

            # A session would import it while it loads: it is not the model's. Where it cannot be, the session says so.
            with contextlib.suppress(ImportError):
                from onnxmem.session.planned import planner as planned  # noqa: F401, PLC0415
        self.new_session = InferenceSession
        self.gc, self.sha256, self.numpy, self.ort = gc, hashlib.sha256, numpy, onnxruntime
        return {"onnxruntime": onnxruntime.__version__}

    def read_inputs(self) -> None:
        self.feeds = self.arrays(self.task["feeds"])
        self.series = [(name, self.arrays(feeds)) for name, feeds in self.task.get("series", ())]

    def arrays(self, feeds: list[tuple[str, str]]) -> dict[str, Any]:
        return {name: self.numpy.load(path) for name, path in feeds}

    def load(self) -> None:
        options = self.ort.SessionOptions()
        options.log_severity_level = 3
        if self.task["threads"] is not None:
            options.intra_op_num_threads = self.task["threads"]
        self.session: Any = self.new_session(
            self.task["model"],
            options,
            providers=["CPUExecutionProvider"],
            mode=self.task["mode"],
            settings=self.task["options"],
            config=self.task["config"],
        )

    def run_model(self, times: int) -> None:
        for number in range(times):
            # Outputs of the run before are gone by the time the next ones are made, as in a caller's loop.
            self.outputs = None
            began = time.perf_counter()
            self.outputs = self.infer()
            self.say({"run": number, "seconds": time.perf_counter() - began})

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
            if isinstance(value, self.numpy.ndarray) and value.dtype != object:
                total.update(self.numpy.ascontiguousarray(value).reshape(-1).view(self.numpy.uint8).data)
            else:
                total.update(repr(value.tolist() if hasattr(value, "tolist") else value).encode())
        return str(total.hexdigest())

    def planned(self) -> dict[str, Any]:
        """What the plan took, and how runs were served; or why there was none."""
        memory = self.session.memory

        def number(value: Any) -> int | None:
            return value if isinstance(value, int) else None  # Unknown: there was no plan

        return {
            "loaded_mode": self.session.loaded_mode,
            "reason": memory.reason or None,
            "arena_bytes": number(memory.arena_bytes),
            "plan_bytes": number(memory.plan_bytes),
            "lower_bound_bytes": number(memory.bound_bytes),
            "runs_recorded": memory.runs_recorded,
            "runs_replayed": memory.runs_replayed,
            "runs_deviated": memory.runs_deviated,
            "runs_from_heap": memory.runs_from_heap,
            "notes": [shape.reason for shape in memory.shapes if shape.reason],
        }

    def shapes(self) -> dict[str, Any]:
        return {name: list(getattr(value, "shape", ())) for name, _, value in self.named_outputs()}

    def save_outputs(self, folder: str) -> None:
        """Write the outputs down for whoever compares them. What is no plain array has no numbers to compare."""
        saved = []
        for number, (name, _, value) in enumerate(self.named_outputs()):
            plain = isinstance(value, self.numpy.ndarray) and value.dtype != object
            path = f"{folder}/output-{number}.npy" if plain else None
            if path:
                self.numpy.save(path, value, allow_pickle=False)
            saved.append((name, path))
        self.say({"saved": saved})

    def release(self) -> None:
        self.feeds, self.series = {}, []
        self.outputs = self.session = None
        self.gc.collect()


def main(life: type[Worker] = Worker) -> None:
    """Do one task for the parent at the other end of stdin and stdout."""
    # Whatever prints on stdout from here on, a library or a kernel, must not end up between the messages.
    out = os.dup(1)
    os.dup2(2, 1)
    task = json.loads(sys.stdin.buffer.readline())
    die_with(task["parent"])
    limits = task["rlimits"]
    if limits:
        import resource  # noqa: PLC0415

        for name, value in limits.items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # noqa: PLW2901
            resource.setrlimit(kind, (value, value))
    try:
        life(task, out).run()
    except _Stopped:
        sys.exit(3)


if __name__ == "__main__":
    main()
