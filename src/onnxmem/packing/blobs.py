"""Where does each weight of a built model lie, and each packed form of it? ONNX Runtime's notes, read and rewritten.

A packed form is noted beside its weight's offset and length: `prepacked_0` = `key|offset;length;checksum|…`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import onnx
from onnx import GraphProto, ModelProto, TensorProto

from onnxmem.errors import ModelError, RuntimeUnsupported
from onnxmem.files import replacing
from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.external import external_location
from onnxmem.model.load import all_tensors
from onnxmem.session.package import WEIGHTS, Weights
from onnxmem.units import format_bytes

PREFIX = "prepacked_"
# Kernels load packed weights with instructions that fault on anything less (64 bytes are one AVX-512 register).
ALIGNMENT = 64
# What begins with a page shares none with its neighbour, which may never be touched.
_PAGE = 4096
_CHUNK = 4 * 2**20
# Smaller weights stay in the graph: a page each would take more than it saves.
SMALLEST = 1024
# Operators that read a few rows of their first inputs.
_LOOKUPS = ("Gather", "GatherElements", "GatherND", "GatherBlockQuantized", "EmbedLayerNormalization")


@dataclass(frozen=True)
class Blob:
    """One piece of a weights file."""

    offset: int
    length: int
    packed: bool


def blobs_of(tensor: TensorProto, folder: Path) -> Iterator[Blob]:
    """The raw weight, and then its packed forms, in the order of the notes; they are checked to lie in the file."""
    path, offset, length = external_location(tensor, folder)
    size = path.stat().st_size
    yield Blob(offset, size - offset if length is None else length, False)
    for entry in tensor.external_data:
        if not entry.key.startswith(PREFIX):
            continue
        for place in entry.value.split("|")[1:]:
            try:
                start, count = (int(number) for number in place.split(";")[:2])
            except ValueError as error:
                raise RuntimeUnsupported(
                    "this ONNX Runtime notes packed weights in a way onnxmem cannot read"
                ) from error
            if start + count > size:
                raise ModelError(
                    f"'{path}' is truncated: a packed form of '{tensor.name}' ends at byte {start + count}"
                )
            yield Blob(start, count, True)


def align(model: Path, weights: Path) -> bool:
    """Move the blobs of a weights file to where kernels can read them; whether any had to be.

    ONNX Runtime aligns raw weights, but puts packed ones right behind them wherever that is. At an odd place the
    kernel that reads them crashes.
    """
    proto = onnx.load_model(model, load_external_data=False)
    stored = _stored(proto)
    blobs = _blobs(stored, model.parent)
    if all(blob.offset % ALIGNMENT == 0 for blob in blobs):
        return False
    with replacing(weights) as temporary:
        moved = _copy(weights, temporary, blobs)
    for tensor in stored:
        _rewrite(tensor, moved)
    with replacing(model) as temporary:
        temporary.write_bytes(proto.SerializeToString())
    return True


def adopt(model: Path, into: Path) -> None:
    """Let a built model read its weights, packed ones too, from the file of the one at `into`, in whose folder it ends.

    What is not in that file yet is added to it; what is, exists once, whichever model it was written for.
    """
    weights = into.parent / WEIGHTS
    places: dict[tuple[int, bytes], int] = {}
    if weights.exists():
        for blob in _blobs(_stored(onnx.load_model(into, load_external_data=False)), into.parent):
            places.setdefault((blob.length, _digest(weights, blob)), blob.offset)
    proto = onnx.load_model(model, load_external_data=False)
    stored = _stored(proto)
    moved: dict[int, int] = {}
    if stored:
        source = model.parent / WEIGHTS
        weights.touch()
        with weights.open("r+b") as target, source.open("rb") as old:
            for blob in _blobs(stored, model.parent):
                key = (blob.length, _digest(source, blob))
                if key not in places:
                    places[key] = _append(target, old, blob)
                moved[blob.offset] = places[key]
    for tensor in stored:
        _rewrite(tensor, moved)
    with replacing(into.parent / model.name) as temporary:
        temporary.write_bytes(proto.SerializeToString())


def _stored(proto: ModelProto) -> list[TensorProto]:
    return [tensor for tensor in all_tensors(proto) if tensor.data_location == TensorProto.EXTERNAL]


def _blobs(stored: list[TensorProto], folder: Path) -> list[Blob]:
    """Each of them once, in the order of the file."""
    blobs = {blob for tensor in stored for blob in blobs_of(tensor, folder)}
    return sorted(blobs, key=lambda blob: (blob.offset, blob.length))


def _digest(file: Path, blob: Blob) -> bytes:
    total, left = hashlib.sha256(), blob.length
    with file.open("rb") as content:
        content.seek(blob.offset)
        while left and (chunk := content.read(min(left, _CHUNK))):
            total.update(chunk)
            left -= len(chunk)
    return total.digest()


def drop_orphans(model: Path, inputs: Collection[str]) -> bool:
    """Remove what is listed as an input, but is none of the model's `inputs` and no weight; whether there was any.

    Old models list their weights among the inputs, as defaults that a caller may override. Where the optimizer has no
    more use for one it removes the weight, but leaves it listed, and every caller would have to feed it.
    """
    proto = onnx.load_model(model, load_external_data=False)
    known = {*inputs, *(tensor.name for tensor in proto.graph.initializer)}
    orphans = [value for value in proto.graph.input if value.name not in known]
    for value in orphans:
        proto.graph.input.remove(value)
    if orphans:
        with replacing(model) as temporary:
            temporary.write_bytes(proto.SerializeToString())
    return bool(orphans)


def _copy(source: Path, target: Path, blobs: list[Blob]) -> dict[int, int]:
    """Copy the blobs one after the other, aligned: the new offset by the old one."""
    with source.open("rb") as old, target.open("wb") as new:
        return {blob.offset: _append(new, old, blob) for blob in blobs}


def _append(new: IO[bytes], old: IO[bytes], blob: Blob) -> int:
    """Copy a blob to the end of another file, aligned, and say where it is."""
    step = _PAGE if blob.length >= _PAGE else ALIGNMENT
    at = -(-os.fstat(new.fileno()).st_size // step) * step
    new.truncate(at)
    new.seek(at)
    os.lseek(old.fileno(), blob.offset, os.SEEK_SET)
    left = blob.length
    while left:
        sent = os.sendfile(new.fileno(), old.fileno(), None, left)
        if not sent:
            raise ModelError(f"'{old.name}' is truncated")
        left -= sent
    return at


def _rewrite(tensor: TensorProto, moved: dict[int, int]) -> None:
    for entry in tensor.external_data:
        if entry.key == "offset":
            entry.value = str(moved[int(entry.value)])
        elif entry.key.startswith(PREFIX):
            key, *places = entry.value.split("|")
            fields = [place.split(";") for place in places]
            entry.value = "|".join([key, *(";".join([str(moved[int(old)]), *rest]) for old, *rest in fields)])


def drop_packed(tensor: TensorProto) -> None:
    """Forget where packed forms of a weight are."""
    kept = [entry for entry in tensor.external_data if not entry.key.startswith(PREFIX)]
    del tensor.external_data[:]
    tensor.external_data.extend(kept)


def describe_weights(model: Path) -> tuple[Weights, tuple[str, ...]]:
    """The bytes by place, and what is not in the file, with the reason. A file that is too short is an error."""
    if model.suffix == ".ort":
        # One flatbuffer: all weights are in the file, and the graph around them is small.
        return Weights(raw=model.stat().st_size, packed=0, inline=0), ()
    proto = onnx.load_model(model, load_external_data=False)
    raw = packed = inline = large = 0
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            blobs = list(blobs_of(tensor, model.parent))
            raw += sum(blob.length for blob in blobs if not blob.packed)
            packed += sum(blob.length for blob in blobs if blob.packed)
        else:
            size = tensor_bytes(tensor.data_type, tensor.dims) or 0
            inline += size
            large += size if size >= SMALLEST else 0
    weights = Weights(raw=raw, packed=packed, inline=inline)
    if not large:
        return weights, ()
    note = (
        f"{format_bytes(large)} of weights stay inside the graph, where ONNX Runtime keeps them: one copy per process"
    )
    return weights, (note,)


def always_read(model: Path, *, packed_only: bool = False) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths of the weights in the file that every run reads, and reads whole, in the form it uses.

    Not what only a branch or a loop may read, and not a table in which a run looks something up. What is not packed may
    be there for loading alone: of two weights that are equal ONNX Runtime uses the packed form of one for both.
    """
    if model.suffix == ".ort":
        return ()
    graph = onnx.load_model(model, load_external_data=False).graph
    wanted = {name for node in graph.node if node.op_type not in _LOOKUPS for name in node.input}
    blobs = []
    for tensor in _outside(graph, wanted):
        raw, *packed = blobs_of(tensor, model.parent)
        blobs.extend(packed or ([] if packed_only else [raw]))
    parts: list[tuple[int, int]] = []
    for blob in sorted(blobs, key=lambda blob: blob.offset):
        last, length = parts[-1] if parts else (0, 0)
        # What lies between two parts of one page is read with them anyway, but may not be mapped.
        if parts and blob.offset <= last + length + (0 if packed_only else _PAGE):
            parts[-1] = (last, max(length, blob.offset + blob.length - last))
        else:
            parts.append((blob.offset, blob.length))
    return tuple(parts)


def leave_tables_on_disk(model: Path) -> None:
    """Let the system forget what it has in memory of tables, just written, in which runs look something up.

    A run that reads a row of a mapped file gets what lies around it in one piece in the page cache, which after writing
    is up to 2 MiB: a few rows would bring the whole table. Read again from the disk, it lies there in small pieces.
    """
    if model.suffix == ".ort" or not hasattr(os, "posix_fadvise"):  # which macOS has not
        return
    graph = onnx.load_model(model, load_external_data=False).graph
    looked_up = {name for node in graph.node if node.op_type in _LOOKUPS for name in node.input}
    whole = {name for node in graph.node if node.op_type not in _LOOKUPS for name in node.input}
    for tensor in _outside(graph, looked_up - whole):
        path, offset, length = external_location(tensor, model.parent)
        # It only costs memory where the system refuses; the package is whole.
        with suppress(OSError), path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), offset, length or 0, os.POSIX_FADV_DONTNEED)


def _outside(graph: GraphProto, names: Collection[str]) -> Iterator[TensorProto]:
    """Those weights that lie in a file of their own."""
    for tensor in graph.initializer:
        if tensor.name in names and tensor.data_location == TensorProto.EXTERNAL:
            yield tensor
