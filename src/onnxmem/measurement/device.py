"""How much of a GPU's memory does a process take? The driver's management library (NVML) is asked, from outside.

It keeps no peak, so a thread looks every few milliseconds. In a container it may know processes by other numbers than
we do: then it is what the whole device has more than before the process began, and `method` says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from onnxmem.errors import RuntimeUnsupported, UsageError, missing_extra
from onnxmem.session.modes import CUDA
from onnxmem.unknown import Bytes, Unknown, known

HOST = "cpu"
DEVICE_MODES = ("stock", "tuned", "planned")
"""Ways of running that differ on a GPU; the others are about where the CPU's memory is."""
_INTERVAL = 0.01
_HINT = "nvidia-smi shows the GPUs there are"


def device_number(device: str) -> int | None:
    """The number of a CUDA device; None: the CPU."""
    kind, colon, number = device.partition(":")
    if device == HOST:
        return None
    if kind != "cuda" or (colon and not number.isdecimal()):
        raise UsageError(f"there is no device '{device}'", hint="known: cpu, cuda, and cuda:1 for the second one")
    return int(number or 0)


def check_device(device: str, *, onnxruntime: bool = True) -> None:
    """Raise, before any work, what is missing to run models there and to see what they take."""
    if onnxruntime:
        check_runtime(device)
    number = device_number(device)
    if number is not None:
        Gpu(number)


def check_runtime(device: str) -> None:
    """Raise RuntimeUnsupported unless this ONNX Runtime can run models there."""
    if device_number(device) is None:
        return
    from onnxruntime import get_available_providers  # noqa: PLC0415  measuring itself does without

    if CUDA not in get_available_providers():
        hint = "pip uninstall onnxruntime, and then pip install onnxruntime-gpu"
        raise RuntimeUnsupported(f"this ONNX Runtime is for the CPU: it has no {CUDA}", hint=hint)


class Gpu:
    """A GPU, and what a process takes of it."""

    def __init__(self, number: int) -> None:
        try:
            import pynvml  # noqa: PLC0415
        except ImportError as error:
            raise missing_extra("nvidia-ml-py", "cuda") from error
        self._nvml: Any = pynvml
        # The second: of a driver that is too old for a function.
        self._errors = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)
        try:
            pynvml.nvmlInit()
            self._handle = self._find(number)
            self.name = f"{pynvml.nvmlDeviceGetName(self._handle)}, driver {pynvml.nvmlSystemGetDriverVersion()}"
            self._before = self._all()
        except self._errors as error:
            raise RuntimeUnsupported(f"CUDA device {number} cannot be looked at: {error}", hint=_HINT) from error
        self._listed = False

    def used(self, pid: int) -> Bytes:
        """What the process takes now."""
        try:
            for each in self._processes():
                if each.pid == pid and each.usedGpuMemory is not None:
                    self._listed = True
                    return int(each.usedGpuMemory)
            # One that was listed has given everything back, its context too.
            return 0 if self._listed else max(0, self._all() - self._before)
        except self._errors as error:
            return Unknown(f"NVML does not tell: {error}")

    def shares(self, pids: Sequence[int]) -> list[Bytes]:
        """What each of these processes takes now; equal parts, where only all of them together can be seen."""
        taken = [self.used(pid) for pid in pids]
        if self._listed or not taken:
            return taken
        return [total if isinstance(total, Unknown) else total // len(pids) for total in taken]

    def _processes(self) -> list[Any]:
        try:
            return list(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        except self._errors:
            if self._listed:
                raise
            return []  # some drivers do not list them

    @property
    def method(self) -> str:
        """How it is measured."""
        whose = "of the process" if self._listed else "of the whole device, since before the process began"
        return f"NVML, {whose}; peaks sampled every {_INTERVAL * 1000:g} ms"

    def _find(self, number: int) -> Any:
        """CUDA counts those that it may see; NVML all of them."""
        count, visible = self._nvml.nvmlDeviceGetCount(), os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [str(each) for each in range(count)] if visible is None else visible.split(",")
        names = [name.strip() for name in names if name.strip()]
        if number >= len(names):
            raise RuntimeUnsupported(f"there is no CUDA device {number}", hint=_HINT)
        name = names[number]
        if name.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _all(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)


class GpuWatch:
    """Looks at what a process takes of a GPU from a thread; used as a context manager."""

    def __init__(self, gpu: Gpu, pid: int) -> None:
        self._gpu, self._pid = gpu, pid
        self._seen: list[tuple[float, Bytes]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="onnxmem-gpu-watch", daemon=True)

    def __enter__(self) -> GpuWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def read(self, since: float) -> tuple[Bytes, Bytes]:
        """What it takes now, and the most that was seen since a moment (`time.monotonic()`)."""
        now = self._gpu.used(self._pid)
        seen = known(size for at, size in self._seen.copy() if at >= since)
        return now, max([*seen, now]) if isinstance(now, int) else now

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            at = time.monotonic()
            self._seen.append((at, self._gpu.used(self._pid)))
