"""One result in a history: what it is about, where and when it was made, and what it took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from onnxmem.documents import Record, stored
from onnxmem.environment import Environment
from onnxmem.history.figures import Figures
from onnxmem.measurement.device import HOST
from onnxmem.measurement.scenario import Scenario
from onnxmem.session.modes import Setting

ON = " on "
"""Between a mode and the device that it runs on."""
_WORDS = {"model": "of", "mode": "in mode", "shapes": "with inputs", "threads": "with threads", "by": "by"}


@dataclass(frozen=True, kw_only=True)
class Key(Record):
    """What a result is about: two results compare if these are the same. The model's content may have changed."""

    model: str
    """Its file's name: the same in every checkout."""
    mode: str
    shapes: Mapping[str, tuple[int, ...]]
    """Of all inputs, as they were fed."""
    threads: int | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Session options and configuration entries on top of the mode's."""
    by: str = "measurement"
    """`measurement` or `estimate`."""

    @property
    def label(self) -> str:
        """In a line: the model, the mode, the shapes, and what else is not as usual."""
        parts = [self.model, self.mode, self.sizes]
        parts += [f"threads {self.threads}"] if self.threads is not None else []
        parts += [f"{name}={value}" for name, value in self.settings.items()]
        parts += ["estimated"] if self.by == "estimate" else []
        return ", ".join(part for part in parts if part)

    @property
    def sizes(self) -> str:
        """The shapes in a line: "x 1×3×640×640"."""
        return ", ".join(f"{name} {'×'.join(map(str, shape)) or 'scalar'}" for name, shape in self.shapes.items())

    @property
    def identity(self) -> str:
        """The same text for the same question, in whatever order its inputs are named."""
        return json.dumps(self.document(), sort_keys=True)

    def differences(self, other: Key) -> tuple[str, ...]:
        """What the other is about instead, in words; nothing if they compare."""
        differ = [each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name)]
        return tuple(f"{_WORDS.get(name, name)} {other._written(name)}" for name in differ)

    def _written(self, name: str) -> str:
        value = getattr(self, name)
        if name == "shapes":
            return self.sizes or "none"
        if name == "settings":
            return ", ".join(f"{key}={setting}" for key, setting in value.items()) or "none"
        return "of all cores" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a result comes from: if it differs from another's, one of these is why."""

    sha256: str
    onnxmem: str
    onnxruntime: str
    machine: str
    commit: str | None

    def changes(self, later: Origin) -> tuple[str, ...]:
        """What is not the same later, in words."""
        pairs = (("onnxruntime", "ONNX Runtime"), ("onnxmem", "onnxmem"), ("machine", "machine"))
        found = ["another model file"] if self.sha256 and self.sha256 != later.sha256 else []
        for name, said in pairs:
            before, after = getattr(self, name), getattr(later, name)
            found += [f"{said} {before} → {after}"] if before != after else []
        return (*found, *([f"commit {short(later.commit)}"] if later.commit and later.commit != self.commit else []))


@dataclass(frozen=True, kw_only=True)
class Entry(Record):
    """One result of a history."""

    key: Key
    figures: Figures
    date: str
    sha256: str = stored("model_sha256")
    """Of the model's files; empty where nobody took it."""
    onnxmem: str
    onnxruntime: str
    machine: str
    commit: str | None = None
    """Of the repository it was made in; `-dirty` if files had been changed."""
    passed: bool = True
    """Whether it was within its budget, and had not grown."""

    def changes(self, later: Entry) -> tuple[str, ...]:
        """What else was changed until a later result, which may be why that took more."""
        return self._origin.changes(later._origin)

    @property
    def _origin(self) -> Origin:
        return Origin(**{each.name: getattr(self, each.name) for each in fields(Origin)})


def key_of(scenario: Scenario, shapes: Mapping[str, tuple[int, ...]], by: str) -> Key:
    """What a result of this scenario is about."""
    return Key(
        model=scenario.model.name,
        mode=mode_name(scenario.mode, scenario.device),
        shapes=shapes,
        threads=scenario.threads,
        settings={**scenario.options, **scenario.config},
        by=by,
    )


def mode_name(mode: str, device: str) -> str:
    """A mode, and where it runs if that is not the CPU."""
    return mode if device == HOST else f"{mode}{ON}{device}"


def machine(environment: Environment) -> str:
    """The machine in a few words: what memory depends on besides versions."""
    return machine_name(environment.cpu, environment.cores)


def machine_name(cpu: str, cores: int, gpu: str = "") -> str:
    """The same of its parts."""
    named = f"{cpu}, {cores} core{'s' * (cores != 1)}"
    return f"{gpu}, {named}" if gpu else named


def short(commit: str) -> str:
    """A commit as people write it."""
    name, dash, dirty = commit.partition("-")
    return f"{name[:10]}{dash}{dirty}"
