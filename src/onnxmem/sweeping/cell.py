"""One cell of a sweep: one question about one model at one size, and by what it is known again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.documents import Record, stored
from onnxmem.history.entry import Key, mode_name
from onnxmem.measurement.device import HOST
from onnxmem.session.modes import Setting
from onnxmem.sweeping.verbs import find_verb

_ON_DEVICE_SECONDS = 600.0
"""At least, where no time limit is given: to start on a GPU takes a while."""


class Stage(NamedTuple):
    """Cells that need the same kind of place, and so are worked out together."""

    runs: bool
    """Whether they run their models: then each has its cores to itself."""
    device: str = HOST


@dataclass(frozen=True, kw_only=True)
class Settings(Record):
    """How cells are run, besides their size and mode. A result depends on all of it."""

    threads: int | None = None
    device: str = HOST
    runs: int = 5
    repeat: int = 1
    seed: int = 0
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    options: Mapping[str, Setting] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    memory_limit: int | None = stored("memory_limit_bytes", default=None)
    workers: tuple[int, ...] = (1, 2)
    """How many processes share the model, for the verb `share`."""


@dataclass(frozen=True, kw_only=True)
class Cell(Record):
    """What is to be found out. `model` and `files` are where it lies; all else is what it is."""

    verb: str
    model: Path
    files: tuple[Path, ...]
    """All that the model is made of."""
    name: str
    """The model's file name, with as many of its folders as tell it from the others of the sweep."""
    sha256: str = stored("model_sha256")
    mode: str
    """Several, with commas between them, where the verb compares them; empty where none matters."""
    size: str
    """What was asked for: "batch=4"."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of all inputs, as they are fed."""
    inputs: Path | None = None
    """An .npz file with their arrays; without it they are generated."""
    inputs_sha256: str = ""
    settings: Settings
    onnxmem: str
    onnxruntime: str
    time_limit: float | None = stored("time_limit_seconds", default=None)

    @cached_property
    def question(self) -> str:
        """The same for cells whose results are the same, on the same processor."""
        return _hash({**self._about(), "onnxmem": self.onnxmem, "onnxruntime": self.onnxruntime, "sha256": self.sha256})

    @cached_property
    def subject(self) -> str:
        """The same from night to night, whatever the model's content and the versions are by then."""
        return _hash({**self._about(), "name": self.name})

    @cached_property
    def plain(self) -> Mapping[str, Any]:
        """Its document, made once: of many cells it takes a while."""
        return self.document()

    def _about(self) -> dict[str, Any]:
        return {name: self.plain[name] for name in ("verb", "mode", "shapes", "inputs_sha256", "settings")}

    @property
    def limit(self) -> float:
        """The seconds that it may take."""
        if self.time_limit is not None:
            return self.time_limit
        return max(find_verb(self.verb).seconds, 0.0 if self.settings.device == HOST else _ON_DEVICE_SECONDS)

    @property
    def stage(self) -> Stage:
        """With which others it is worked out. On a GPU even an estimate runs kernels, to see what they take."""
        return Stage(find_verb(self.verb).runs or self.settings.device != HOST, self.settings.device)

    @property
    def how(self) -> str:
        """Its mode, and where that runs if not on the CPU."""
        return mode_name(self.mode, self.settings.device)

    @property
    def label(self) -> str:
        """In a line."""
        return " ".join(part for part in (self.verb, self.name, self.how, self.size) if part)

    @property
    def key(self) -> Key:
        """As histories know it."""
        return Key(
            model=self.name,
            mode=self.how,
            shapes=self.shapes,
            threads=self.settings.threads,
            settings={**self.settings.options, **self.settings.config},
            by="estimate" if self.verb == "estimate" else "measurement",
        )


def _hash(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
