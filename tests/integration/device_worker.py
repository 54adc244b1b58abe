"""Measured processes of a GPU, where there is none: they run on the CPU."""

from __future__ import annotations

from typing import Any

from onnxmem.measurement import worker
from onnxmem.releasing.worker import LadderWorker


class OnCpu(LadderWorker):
    """A trial on a device that is not there, which then is released step by step."""

    def providers(self) -> list[Any]:
        assert self.task.device == 1
        return ["CPUExecutionProvider"]

    def check_device(self) -> None:
        assert self.session.get_providers() == ["CPUExecutionProvider"]


def main() -> None:
    """Do one task for the parent."""
    worker.main(OnCpu)
