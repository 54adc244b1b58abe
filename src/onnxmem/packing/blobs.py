"""Where does each weight of a built model lie, and each packed form of it? ONNX Runtime's notes, read and rewritten.

A packed form is noted beside its weight's offset and length: `prepacked_0` = `key|offset;length;checksum|…`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from onnxmem.errors import ModelError, RuntimeUnsupported
from onnxmem.files import replacing
from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.external import external_location
from onnxmem.model.load import all_tensors
from onnxmem.session.package import Weights
from onnxmem.units import format_bytes

PREFIX = "prepacked_"
# Kernels load packed weights with instructions that fault on anything less (64 bytes are one AVX-512 register).
ALIGNMENT = 64
# What begins with a page shares none with its neighbour, which may never be touched.
_PAGE = 4096
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
    stored = [tensor for tensor in all_tensors(proto) if tensor.data_location == TensorProto.EXTERNAL]
    blobs = list(dict.fromkeys(blob for tensor in stored for blob in blobs_of(tensor, model.parent)))
    if all(blob.offset % ALIGNMENT == 0 for blob in blobs):
        return False
    with replacing(weights) as temporary:
        moved = _copy(weights, temporary, blobs)
    for tensor in stored:
        _rewrite(tensor, moved)
    with replacing(model) as temporary:
        temporary.write_bytes(proto.SerializeToString())
    return True


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
    moved = {}
    with source.open("rb") as old, target.open("wb") as new:
        at = 0
        for blob in sorted(blobs, key=lambda blob: (blob.offset, blob.length)):
            step = _PAGE if blob.length >= _PAGE else ALIGNMENT
            at = -(-at // step) * step
            new.seek(at)
            new.flush()
            os.lseek(old.fileno(), blob.offset, os.SEEK_SET)
            left = blob.length
            while left:
                sent = os.sendfile(new.fileno(), old.fileno(), None, left)
                if not sent:
                    raise ModelError(f"'{source}' is truncated")
                left -= sent
            moved[blob.offset] = at
            at += blob.length
        new.truncate(at)
    return moved


def _rewrite(tensor: TensorProto, moved: dict[int, int]) -> None:
    for entry in tensor.external_data:
        if entry.key == "offset":
            entry.value = str(moved[int(entry.value)])
        elif entry.key.startswith(PREFIX):
            key, *places = entry.value.split("|")
            fields = [place.split(";") for place in places]
            entry.value = "|".join([key, *(";".join([str(moved[int(old)]), *rest]) for old, *rest in fields)])


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


def always_read(model: Path) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths of the weights in the file that every run reads, and reads whole, in the form it uses.

    Not what only a branch or a loop may read, and not a table in which a run looks something up.
    """
    if model.suffix == ".ort":
        return ()
    graph = onnx.load_model(model, load_external_data=False).graph
    wanted = {name for node in graph.node if node.op_type not in _LOOKUPS for name in node.input}
    blobs = []
    for tensor in graph.initializer:
        if tensor.name in wanted and tensor.data_location == TensorProto.EXTERNAL:
            raw, *packed = blobs_of(tensor, model.parent)
            blobs.extend(packed or [raw])
    parts: list[tuple[int, int]] = []
    for blob in sorted(blobs, key=lambda blob: blob.offset):
        last, length = parts[-1] if parts else (0, 0)
        # What lies between two parts of one page is read with them anyway.
        if parts and blob.offset <= last + length + _PAGE:
            parts[-1] = (last, max(length, blob.offset + blob.length - last))
        else:
            parts.append((blob.offset, blob.length))
    return tuple(parts)
