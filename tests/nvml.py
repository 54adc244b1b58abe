"""NVML, played: as much of `pynvml` as is called. What a process takes of the GPU is what a function says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class NVMLError(Exception):
    """As NVML's."""


class MismatchError(Exception):
    """As NVML's where the driver is too old for a function."""


class Nvml(ModuleType):
    """One GPU of 10 GB, on which other processes have a tenth."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = MismatchError
    others = 10**9

    def __init__(self, processes: Callable[[], dict[int, int | None]], used: Callable[[], int] | None = None) -> None:
        """What processes take by number, as far as they are listed, and what is in use altogether."""
        super().__init__("pynvml")
        self._processes = processes
        self._used = used or (lambda: sum(filter(None, processes().values())))
        self.asked: list[Any] = []
        self.broken = ""
        self.lists = True

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise NVMLError(self.broken)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self.asked.append(index)
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:  # noqa: N802
        self.asked.append(name)
        return name

    def nvmlDeviceGetName(self, _: Any) -> str:  # noqa: N802
        return "NVIDIA Played"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetMemoryInfo(self, _: Any) -> Any:  # noqa: N802
        self.nvmlInit()
        return SimpleNamespace(used=self.others + self._used(), total=10**10)

    def nvmlDeviceGetComputeRunningProcesses(self, _: Any) -> list[Any]:  # noqa: N802
        self.nvmlInit()
        if not self.lists:
            raise MismatchError
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self._processes().items()]


def play(patch: pytest.MonkeyPatch, nvml: Nvml) -> Nvml:
    """Let it be what `import pynvml` finds."""
    patch.setitem(sys.modules, "pynvml", nvml)
    patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml
