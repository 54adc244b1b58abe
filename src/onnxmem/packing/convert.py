"""How do I change a model's file form without packing it? One file, weights beside it, or ONNX Runtime's own format."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from onnxmem.documents import Record, stored
from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.files import MAY_WRITE, clear_left_behind, partial_prefix, replacing, write_bytes
from onnxmem.folders import temporary_folder
from onnxmem.measurement.signature import read_signature
from onnxmem.model.external import external_location, make_external
from onnxmem.model.load import all_tensors, load_proto, refuse_package
from onnxmem.packing.blobs import SMALLEST
from onnxmem.packing.build import ORT_LIMIT, build
from onnxmem.result import Result
from onnxmem.units import format_bytes

TARGETS = {
    "onnx": "one .onnx file with everything in it",
    "external": "an .onnx file, and beside it one file of weights that can be mapped",
    "ort": "one .ort file with the optimized graph",
}
_PROTOBUF_LIMIT = 2**31
_PAGE = 4096


@dataclass(frozen=True)
class WrittenFile(Record):
    """A file, and its size."""

    path: Path = stored("path")
    size: int = stored("bytes")


@dataclass(frozen=True, kw_only=True)
class Converted(Result):
    """A model in another form: the file to load first, then what it needs beside it."""

    SCHEMA = "onnxmem.convert/1"

    model: str
    to: str
    files: tuple[WrittenFile, ...]

    def __repr__(self) -> str:
        return f"<Converted {self.model} to {', '.join(str(file.path) for file in self.files)}>"


def convert(
    model: str | os.PathLike[str], to: str, output: str | os.PathLike[str], *, force: bool = False
) -> Converted:
    """Write a model in another form: `convert("m.onnx", "external", "out/m.onnx")`."""
    source, target = Path(model), Path(output)
    if to not in TARGETS:
        raise UsageError(f"there is no form '{to}'", hint=f"known: {', '.join(TARGETS)}")
    if target.suffix != (".ort" if to == "ort" else ".onnx"):
        raise UsageError(f"'{target.name}' should end with {'.ort' if to == 'ort' else '.onnx'}")
    if target.exists() and not force:
        raise UsageError(f"there is a file '{target}' already", hint="--force replaces it")
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"'{target}' is the model itself", hint="choose another name")
    refuse_package(source)
    paths = _write(source, to, target)
    files = tuple(WrittenFile(path, path.stat().st_size) for path in paths)
    return Converted(model=source.name, to=to, files=files)


def _write(source: Path, to: str, target: Path) -> tuple[Path, ...]:
    size = read_signature(source).file_size
    if to == "ort":
        return (_to_ort(source, target, size),)
    proto = load_proto(source)
    if to == "onnx":
        return (_to_onnx(proto, source, target, size),)
    return _to_external(proto, source, target)


def _to_ort(source: Path, target: Path, size: int) -> Path:
    if size > ORT_LIMIT:
        raise ModelError(f"'{source.name}' has {format_bytes(size)}, and the ORT format ends at 2 GiB")
    with temporary_folder(beside=target) as folder:
        build(source, folder, "ort").replace(target)
    return target


def _to_onnx(proto: ModelProto, source: Path, target: Path, size: int) -> Path:
    if size >= _PROTOBUF_LIMIT:
        raise ModelError(f"'{source.name}' has {format_bytes(size)}, and one .onnx file holds less than 2 GiB")
    onnx.load_external_data_for_model(proto, str(source.parent))
    for tensor in all_tensors(proto):
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    write_bytes(target, proto.SerializeToString())
    return target


def _to_external(proto: ModelProto, source: Path, target: Path) -> tuple[Path, ...]:
    """The weights get a new name: until the model is replaced, the old one keeps its own.

    Weights that have no model, or not any more, are named by an unfinished one beside it, so that the call after a kill
    knows them.
    """
    with suppress(OSError):
        clear_left_behind(target.parent, partial_prefix(target), lambda left: _remove_weights(left, target))
    weights = _new_weights(target)
    try:
        with replacing(target) as model:
            model.write_bytes(_naming(weights).SerializeToString())
            _move_weights(proto, source, weights)
            model.write_bytes(proto.SerializeToString())
            old = target.with_name(f"{partial_prefix(target)}{secrets.token_hex(4)}{target.suffix}")
            with suppress(OSError):  # there is none, or the file system has no second names
                os.link(target, old)
    except BaseException:
        if not _is_named(weights, target):  # a signal may come when the model is there already
            weights.unlink(missing_ok=True)
        raise
    if old.exists():
        _remove_weights(old, target)
        old.unlink(missing_ok=True)
    return target, weights


def _new_weights(target: Path) -> Path:
    """An empty file that nobody else writes, also if another process makes the same model at this moment."""
    for name in (target.stem, f"{target.stem}-{secrets.token_hex(4)}"):
        weights = target.with_name(f"{name}.weights")
        try:
            weights.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"cannot write '{weights}': {error.strerror}", hint=MAY_WRITE) from error
        return weights
    raise UsageError(f"another process is writing '{target}'", hint="try again when it is done")


def _naming(weights: Path) -> ModelProto:
    """A model that says no more than where weights are."""
    model = ModelProto(ir_version=8)
    model.graph.node.add(op_type="Identity", input=["x"], output=["y"])
    make_external(model.graph.initializer.add(name="x", data_type=TensorProto.UINT8, dims=[0]), weights.name, 0, 0)
    return model


def _move_weights(proto: ModelProto, source: Path, to: Path) -> None:
    moved: list[tuple[TensorProto, int, int]] = []
    with to.open("wb") as file:
        for tensor in all_tensors(proto):
            content = _content(tensor, source.parent)
            if content is not None:
                # A page of its own, so that mapping one weight touches no other; zeros up to there.
                file.write(bytes(-file.tell() % _PAGE))
                moved.append((tensor, file.tell(), len(content)))
                file.write(content)
    for tensor, offset, length in moved:
        make_external(tensor, to.name, offset, length)


def _remove_weights(model: Path, target: Path) -> None:
    """Those of a model that is gone or never came to be, and which `target` does not name."""
    with suppress(OnnxmemError, OSError):  # another process may remove them at this moment
        names = _named_by(target)
        for left in read_signature(model).files[1:]:
            if left.suffix == ".weights" and left.stem.startswith(target.stem) and left.name not in names:
                left.unlink(missing_ok=True)


def _is_named(weights: Path, target: Path) -> bool:
    with suppress(OnnxmemError, OSError):
        return weights.name in _named_by(target)
    return False  # by whatever there is


def _named_by(model: Path) -> set[str]:
    """The names of its files; none if it is not there."""
    return {file.name for file in read_signature(model).files} if model.exists() else set()


def _content(tensor: TensorProto, folder: Path) -> bytes | None:
    """The bytes of a weight that is worth a place outside; None for small ones and for types without raw bytes."""
    if tensor.data_location == TensorProto.EXTERNAL:
        path, offset, length = external_location(tensor, folder)
        with path.open("rb") as file:
            file.seek(offset)
            return file.read() if length is None else file.read(length)
    if tensor.data_type == TensorProto.STRING:
        return None
    if not tensor.HasField("raw_data"):
        # Values in typed fields: the same as raw bytes, once they are read and written again.
        array = onnx.numpy_helper.to_array(tensor)
        if array.nbytes < SMALLEST:
            return None
        raw = onnx.numpy_helper.from_array(array, tensor.name)
        tensor.CopyFrom(raw)
    return tensor.raw_data if len(tensor.raw_data) >= SMALLEST else None
