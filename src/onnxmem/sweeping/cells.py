"""Which cells does a specification ask for? Every model is looked at: whatever cannot work is an error here."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxmem.environment import package_version
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.measurement.device import DEVICE_MODES, HOST
from onnxmem.measurement.feeds import make_feeds, shapes_of_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Signature, read_signature
from onnxmem.model.bindings import free_dimensions
from onnxmem.prediction.predict import MODES as PREDICTED
from onnxmem.session.package import mode_for
from onnxmem.session.stored_files import content_hash
from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.spec import Group, Spec
from onnxmem.sweeping.verbs import Verb, find_verb

_AS_IT_IS = "default"
"""The size of a model of which none is asked for."""


@dataclass(frozen=True)
class _Looked:
    """A model that was looked at."""

    path: Path
    name: str
    signature: Signature
    sha256: str


@dataclass(frozen=True)
class _Size:
    """What a model is fed: what that is called, and the shapes that it comes to."""

    label: str
    shapes: Mapping[str, tuple[int, ...]]
    inputs: Path | None = None
    inputs_sha256: str = ""


@dataclass(frozen=True)
class Cells:
    """All cells of a specification, each once."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    """What was left out of the product, and why."""


def make_cells(spec: Spec, on_model: Callable[[Path], None] | None = None) -> Cells:
    """The product of models, sizes, modes and verbs, in this order; `on_model` is called before each is read."""
    paths = list(dict.fromkeys(path for group in spec.groups for path in group.models))
    names = distinct_names(paths)
    looked: dict[Path, _Looked] = {}
    for group in spec.groups:
        for path in group.models:
            if path not in looked:
                if on_model:
                    on_model(path)
                looked[path] = _look(path, names[path], group)
    found: dict[str, Cell] = {}
    notes: dict[str, None] = {}
    for group in spec.groups:
        missing = _missing_dims(group, looked)
        notes |= dict.fromkeys(missing)
        for path in group.models:
            try:
                for cell in _cells_of(looked[path], group):
                    first = found.setdefault(cell.question, cell)
                    if first.name != cell.name:
                        notes[f"{cell.name} is the same as {first.name}, which stands for both."] = None
            except UsageError as error:
                raise UsageError(f"{_at(group)}{names[path]}: {error}", hint=error.hint) from error
    return Cells(tuple(found.values()), tuple(notes))


def distinct_names(paths: Sequence[Path]) -> dict[Path, str]:
    """File names, with as many folders before them as tell them apart: many models are called model.onnx."""
    names = {}
    for path in paths:
        parts = Path(os.path.abspath(path)).parts  # noqa: PTH100  a link keeps its own name
        others = [Path(os.path.abspath(other)).parts for other in paths if other != path]  # noqa: PTH100
        length = 1
        while length < len(parts) and any(other[-length:] == parts[-length:] and other != parts for other in others):
            length += 1
        names[path] = "/".join(parts[-length:])
    return names


def _at(group: Group) -> str:
    return f"{group.place}: " if group.place else ""


def _look(path: Path, name: str, group: Group) -> _Looked:
    try:
        signature = read_signature(path)
        return _Looked(path, name, signature, content_hash(signature.files))
    except OnnxmemError as error:
        hint = f"name the models in it: '{path}/*.onnx'" if path.is_dir() and not error.hint else error.hint
        raise UsageError(f"{_at(group)}{error}", hint=hint) from error
    except OSError as error:
        raise UsageError(f"{_at(group)}cannot read '{path}': {error.strerror}") from error


def _missing_dims(group: Group, looked: Mapping[Path, _Looked]) -> Iterator[str]:
    """A dimension that no model has is an error; one that some have not is left out for these, and said."""
    known = {path: free_dimensions(looked[path].signature.shapes) for path in group.models}
    for dim in group.dims:
        without = [looked[path].name for path, names in known.items() if dim not in names]
        if len(without) == len(known):
            every = dict.fromkeys(name for names in known.values() for name in names)
            raise UsageError(
                f"{_at(group)}no model has a free dimension '{dim}'", hint=f"they have: {', '.join(every) or 'none'}"
            )
        if without:
            more = f" and {len(without) - 3} more" if len(without) > 3 else ""
            yield f"Without a dimension '{dim}', and so not at each of its numbers: {', '.join(without[:3])}{more}."


def _cells_of(model: _Looked, group: Group) -> Iterator[Cell]:
    sizes = list(_fed(model, group) if group.inputs else _sizes(model, group))
    versions = {"onnxmem": package_version("onnxmem"), "onnxruntime": package_version("onnxruntime")}
    for size in sizes:
        for name in group.verbs:
            verb = find_verb(name)
            for mode in _modes(verb, model, group):
                yield Cell(
                    verb=name,
                    model=model.path,
                    files=model.signature.files,
                    name=model.name,
                    sha256=model.sha256,
                    mode=mode,
                    size=size.label,
                    shapes=size.shapes,
                    inputs=size.inputs,
                    inputs_sha256=size.inputs_sha256,
                    settings=group.settings,
                    time_limit=group.time_limit,
                    **versions,
                )


def _fed(model: _Looked, group: Group) -> Iterator[_Size]:
    """Those of arrays that were given."""
    if group.dims or group.shapes != ({},) or group.settings.ranges:
        raise UsageError("inputs have their own sizes and contents", hint="leave out dims, shapes and ranges")
    names = distinct_names(group.inputs)
    for path in group.inputs:
        feeds = make_feeds(model.signature, Scenario(model.path, inputs=path))
        shapes = {name: array.shape for name, array in feeds.arrays.items()}
        yield _Size(names[path], shapes, path, content_hash([path]))


def _sizes(model: _Looked, group: Group) -> Iterator[_Size]:
    """Those of inputs that will be generated."""
    known = free_dimensions(model.signature.shapes)
    dims = {name: numbers for name, numbers in group.dims.items() if name in known}
    for given in group.shapes:
        shapes = _named(given, model) if isinstance(given, str) else given
        for numbers in itertools.product(*dims.values()):
            chosen = dict(zip(dims, numbers, strict=True))
            scenario = Scenario(model.path, shapes=shapes, dims=chosen, ranges=group.settings.ranges)
            parts = [f"{name} {'×'.join(map(str, shape))}" for name, shape in shapes.items()]
            parts += [f"{name}={number}" for name, number in chosen.items()]
            yield _Size(", ".join(parts) or _AS_IT_IS, shapes_of_feeds(model.signature, scenario))


def _named(text: str, model: _Looked) -> Mapping[str, tuple[int, ...]]:
    """A shape without the name of its input."""
    names = [each.name for each in model.signature.inputs]
    if len(names) != 1:
        raise UsageError(f"'{text}' does not say which of its {len(names)} inputs it is the shape of",
                         hint=f"write it as {names[0] if names else 'input'}={text}")  # fmt: skip
    return {names[0]: tuple(int(dim) for dim in re.split("[x×,]", text))}


def _modes(verb: Verb, model: _Looked, group: Group) -> tuple[str, ...]:
    """The modes of the cells of one size; an error if the verb cannot be asked of this model in one of them."""
    settings = group.settings
    if settings.device != HOST and not verb.device_label:
        raise UsageError(f"in a sweep {verb.name} is about the CPU's memory, and not that of '{settings.device}'",
                         hint="leave it out for this model, or ask it without a device")  # fmt: skip
    if not verb.runs and (model.path.is_dir() or model.path.suffix == ".ort"):
        raise UsageError(f"{verb.name} reads .onnx files, and this is none", hint="leave it out for this model")
    if (settings.options or settings.config) and not verb.options:
        raise UsageError(f"{verb.name} does not know what session options change", hint="measure it")
    if verb.modes == "none":
        return ("",)
    # Only share writes the model in the form that a mode reads; for all others it must be there.
    modes = tuple(dict.fromkeys(
        mode if mode and verb.name == "share" else mode_for(mode, model.path) for mode in group.modes
    ))  # fmt: skip
    predicted = PREDICTED if settings.device == HOST else DEVICE_MODES
    for mode in modes:
        if verb.name == "estimate" and mode not in predicted:
            raise UsageError(f"mode '{mode}' cannot be predicted", hint=f"predicted are {', '.join(predicted)}")
    if verb.modes == "each":
        return modes
    if len(modes) < 2:
        raise UsageError(f"{verb.name} needs two modes or more", hint="for example --modes stock,planned")
    return (",".join(modes),)
