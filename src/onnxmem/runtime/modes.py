"""Ways to load and run a model: a name, what it is good for, and the session options that make it.

Only names and settings, nothing is imported: the measured process reads this table before anything else is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxmem.errors import UsageError


@dataclass(frozen=True)
class Mode:
    """One way to load and run."""

    name: str
    about: str
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Attributes of onnxruntime's SessionOptions; enumerations by the name of the value."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Its configuration entries."""
    suffix: str = ""
    """The only kind of file it works with, if there is one."""


MODES = (
    Mode("stock", "as ONNX Runtime comes: inline weights in the heap, external ones mapped and then packed"),
    Mode(
        "tuned",
        "without memory pattern and same-size reuse, which cost more than they save",
        options={"enable_mem_pattern": False, "enable_mem_reuse": False},
    ),
    Mode("ort", "an .ort file, already optimized, read into memory", suffix=".ort"),
)


def find_mode(name: str) -> Mode:
    """The mode of that name."""
    for mode in MODES:
        if mode.name == name:
            return mode
    raise UsageError(f"there is no mode '{name}'", hint=f"known: {', '.join(mode.name for mode in MODES)}")


def check_mode(name: str, model: Path) -> Mode:
    """The mode of that name, if it can load this file."""
    mode = find_mode(name)
    if mode.suffix and model.suffix != mode.suffix:
        raise UsageError(f"mode '{name}' loads {mode.suffix} files, and '{model.name}' is none")
    return mode
