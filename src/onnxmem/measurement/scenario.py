"""What is to be measured: which model, fed with what, loaded and run how, and within which limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from onnxmem.documents import Record, stored
from onnxmem.errors import UsageError
from onnxmem.measurement.device import device_number
from onnxmem.session.modes import Setting
from onnxmem.session.package import mode_for


@dataclass(frozen=True)
class Scenario(Record):
    """One measurement, before it is made."""

    model: Path
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    inputs: Path | None = None
    """An .npz file with an array for each input; without it they are generated."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """What generated inputs may hold: [low, high) by input."""
    seed: int = 0
    mode: str = "stock"
    runs: int = 5
    """Steady runs, after the first. Below two the memory pattern's block, taken in the second run, may be missed."""
    threads: int | None = None
    """Threads inside an operator; by default one for each processor core."""
    device: str = "cpu"
    """Where it runs: `cpu`, `cuda`, or `cuda:1` for another GPU than the first."""
    options: Mapping[str, Setting] = field(default_factory=dict)
    """SessionOptions on top of the mode's; enumerations by the name of the value: "ORT_DISABLE_ALL"."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Session configuration entries on top of the mode's."""
    time_limit: float = stored("timeout_seconds", default=600.0)
    memory_limit: int | None = stored("memory_limit_bytes", default=None)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """What a verb is to run, from its arguments: of those that are called like a field here, all that were given.

        The mode is the one asked for, if it can load this model; else a package's own, and for all others stock.
        """
        given = {each.name: arguments[each.name] for each in fields(cls) if arguments.get(each.name) is not None}
        return cls(**{**given, "mode": mode_for(arguments.get("mode"), Path(arguments["model"]))})

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", Path(self.model))
        object.__setattr__(self, "inputs", None if self.inputs is None else Path(self.inputs))
        for name in ("shapes", "ranges"):
            plain = {key: tuple(value) for key, value in getattr(self, name).items()}
            object.__setattr__(self, name, plain)
        for what, number, least in (("runs", self.runs, 1), ("time_limit", self.time_limit, 0)):
            # Turned around, so that NaN is refused too.
            if not number >= least:
                raise UsageError(f"{what} must be at least {least}; it is {number}")
        check_threads(self.threads)
        check_memory_limit(self.memory_limit, self.device)


def check_threads(threads: int | None) -> None:
    """Refuse numbers of threads with which a run would never end: they all spin while they wait for each other."""
    most = max(64, 4 * (os.cpu_count() or 1))
    if threads is not None and not 1 <= threads <= most:
        raise UsageError(f"threads must be between 1 and {most}; it is {threads}", hint="leave it out for all cores")


def check_memory_limit(limit: int | None, device: str) -> None:
    """Refuse limits within which nothing can run."""
    number = device_number(device)
    if limit is not None and number is not None:
        raise UsageError("a memory limit is for the CPU's memory, and CUDA does not start within one")
    if limit is not None and limit < 1:
        raise UsageError(f"a memory limit of {limit} bytes leaves nothing")
    if limit is not None and limit > sys.maxsize:
        raise UsageError(f"a memory limit of {limit} bytes is more than any process can have")
