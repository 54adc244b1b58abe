"""A model with fixed shapes → a package of it with tiles, made the first time and kept in the user's cache folder.

It is made in a process of its own: searching and comparing take memory that the caller's process is not to have.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import onnxruntime

from onnxmem.commands import path_word
from onnxmem.documents import Record
from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.folders import private_cache
from onnxmem.model.bindings import free_dimensions, input_shapes
from onnxmem.model.load import load_proto
from onnxmem.process.child import run_child
from onnxmem.session.package import MANIFEST, is_package, open_package, this_cpu

_FORMAT = 1


@dataclass(frozen=True)
class CacheTask(Record):
    """A package to be made."""

    model: Path
    folder: Path


def tiled_package(model: str | bytes | os.PathLike[str]) -> Path:
    """The folder of a package with tiles of this model; UsageError, if it has free shapes, for which there are none."""
    if isinstance(model, bytes):
        raise UsageError("tile=True is for a model in a file, and this one is in bytes", hint="give its path")
    path = Path(model)
    named = quote(path_word(path))
    if is_package(path):
        if open_package(path).manifest.tile is None:
            raise UsageError(
                f"the package '{path}' was made without tiles",
                hint=f"onnxmem pack --repack -o {named} --tile",
            )
        return path
    if path.suffix == ".ort":
        raise UsageError(f"tile=True is for .onnx files, and '{path.name}' is in ORT format")
    folder = _folder(path)
    if not _is_fresh(folder, path):
        free = free_dimensions(input_shapes(load_proto(path)))
        if free:
            raise UsageError(
                f"tile=True is for fixed input shapes, and '{path.name}' has free ones: {', '.join(free)}",
                hint=f"onnxmem pack {named} -o FOLDER --tile --shape … makes a package for the shapes that matter",
            )
        _make(path, folder)
    return folder


def _folder(model: Path) -> Path:
    facts = [_FORMAT, str(model.absolute()), onnxruntime.__version__, this_cpu().document()]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    # A package that somebody else has put there would be run.
    return private_cache() / f"tiled-{model.stem}-{name}"


def _is_fresh(folder: Path, model: Path) -> bool:
    """Whether there is a package that is younger than all files of the model, which are of the size they were."""
    try:
        made = (folder / MANIFEST).stat().st_mtime_ns
        sources = open_package(folder).manifest.source.files
        files = [(model.parent / source.name if number else model, source) for number, source in enumerate(sources)]
        return all(f.stat().st_size == s.size and f.stat().st_mtime_ns < made for f, s in files)
    except (OSError, OnnxmemError):
        return False


def _make(model: Path, folder: Path) -> None:
    ended = run_child("onnxmem.packing.cached", CacheTask(model.absolute(), folder))
    if ended.code:
        raise ModelError(f"'{model.name}' cannot be tiled: {ended.last_line}")
