"""The child of `benchmarks.cuda`: one model in one mode, told on its input what to do, answering in lines of JSON.

    python -m benchmarks.cuda_worker MODEL CASE MODE [PROVIDER OPTIONS AS JSON]

`stock`; `same`: arena_extend_strategy=kSameAsRequested; `tuned`: that, with memory pattern and reuse off; `planned`.
Commands: `load`, `run N`, `memory`; it ends when its input does.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import time
from itertools import islice
from typing import Any

import onnxruntime as ort

from benchmarks import cuda_models

MODES = ("stock", "same", "tuned", "planned")


class Gpu:
    """What is in use on device 0, of all processes, as the driver says."""

    def __init__(self) -> None:
        try:
            self._driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError:
            self._driver = None
            return
        context = ctypes.c_void_p()
        for code in (
            self._driver.cuInit(0),
            self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            self._driver.cuCtxSetCurrent(context),
        ):
            if code:
                raise RuntimeError(f"the CUDA driver answers {code}")

    @property
    def name(self) -> str:
        if self._driver is None:
            return ""
        text = ctypes.create_string_buffer(100)
        self._driver.cuDeviceGetName(text, 100, 0)
        return text.value.decode()

    def used(self) -> int:
        """Bytes; 0 without a GPU."""
        if self._driver is None:
            return 0
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if code := self._driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
            raise RuntimeError(f"the CUDA driver answers {code}")
        return total.value - free.value


def providers(mode: str, more: dict[str, Any]) -> list[Any]:
    """What a session is asked to run on; the CPU, to rehearse where there is no GPU."""
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return ["CPUExecutionProvider"]
    options = {"device_id": 0, "cudnn_conv_algo_search": "HEURISTIC", **more}
    if mode in ("same", "tuned"):
        options["arena_extend_strategy"] = "kSameAsRequested"
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]


def make(path: str, mode: str, more: dict[str, Any]) -> Any:
    """A session in a mode."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if mode == "tuned":
        options.enable_mem_pattern = options.enable_mem_reuse = False
    if mode != "planned":
        return ort.InferenceSession(path, options, providers=providers(mode, more))
    import onnxmem  # noqa: PLC0415

    return onnxmem.InferenceSession(path, options, providers=providers(mode, more))


class Worker:
    """A session and what was measured of it."""

    def __init__(self, path: str, case: str, mode: str, more: dict[str, Any]) -> None:
        self.path, self.case, self.mode, self.more = path, cuda_models.find(case), mode, more
        self.gpu = Gpu()
        self.before = self.gpu.used()

    def load(self) -> dict[str, Any]:
        self.session = make(self.path, self.mode, self.more)
        self.feeds = cuda_models.feeds(self.session, self.case)
        self.loaded = self.gpu.used()
        return {"loaded": self.loaded - self.before}

    def run(self, times: int) -> dict[str, Any]:
        """Run so often: milliseconds of each, and a hash of all outputs of the last one or, of new shapes, of all."""
        taken, digest = [], hashlib.sha256()
        for number, feed in enumerate(islice(self.feeds, times)):
            start = time.perf_counter()
            outputs = self.session.run(None, feed)
            taken.append((time.perf_counter() - start) * 1e3)
            if number == times - 1 or len(self.case.shapes) > 1:
                for output in outputs:
                    digest.update(output.tobytes())
        return {"ms": taken, "sha": digest.hexdigest()[:12]}

    def memory(self) -> dict[str, Any]:
        answer = {"growth": self.gpu.used() - self.loaded, "providers": self.session.get_providers()}
        if self.mode == "planned":
            memory = self.session.memory
            names = ("reason", "arena_bytes", "plan_bytes", "bound_bytes", "device_bytes", "regions")
            counts = [name for name in vars(memory) if name.startswith(("runs_", "shapes_"))]
            answer |= {name: _plain(getattr(memory, name)) for name in (*names, *counts)}
            answer["shapes"] = [
                (each.replayed, each.deviated, each.reason, str(each.last_deviation)) for each in memory.shapes[:2]
            ]
        return answer


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str) else None


def main() -> None:
    path, case, mode, *more = sys.argv[1:]
    worker = Worker(path, case, mode, json.loads(more[0]) if more else {})
    for line in sys.stdin:
        command, *arguments = line.split()
        answer = getattr(worker, command)(*map(int, arguments))
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
    os._exit(0)  # what is measured is over; nothing of it is to be taken down in order


if __name__ == "__main__":
    main()
