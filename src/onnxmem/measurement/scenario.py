"""What is to be measured: which model, fed with what, loaded and run how, and within which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxmem.errors import UsageError

Setting = bool | int | float | str


@dataclass(frozen=True)
class Scenario:
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
    options: Mapping[str, Setting] = field(default_factory=dict)
    """SessionOptions on top of the mode's; enumerations by the name of the value: "ORT_DISABLE_ALL"."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Session configuration entries on top of the mode's."""
    timeout: float = 600.0
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", Path(self.model))
        object.__setattr__(self, "inputs", None if self.inputs is None else Path(self.inputs))
        for what, number, least in (("runs", self.runs, 1), ("threads", self.threads, 1), ("timeout", self.timeout, 0)):
            # Turned around, so that NaN is refused too.
            if number is not None and not number >= least:
                raise UsageError(f"{what} must be at least {least}; it is {number}")
        if self.memory_limit is not None and self.memory_limit < 1:
            raise UsageError(f"a memory limit of {self.memory_limit} bytes leaves nothing")

    def document(self) -> dict[str, Any]:
        """What decides the result, as JSON."""
        return {
            "mode": self.mode,
            "runs": self.runs,
            "threads": self.threads,
            "seed": self.seed,
            "inputs": None if self.inputs is None else self.inputs.name,
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            "options": dict(self.options),
            "config": dict(self.config),
            "timeout_seconds": self.timeout,
            "memory_limit_bytes": self.memory_limit,
        }
