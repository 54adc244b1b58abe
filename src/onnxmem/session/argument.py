"""An input or output of a model: what ONNX Runtime calls a NodeArg, and does not let anybody make."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Argument:
    """It has the attributes of a NodeArg."""

    name: str
    type: str
    shape: list[int | str | None]
