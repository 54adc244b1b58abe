"""Weights stored more than once: the same bytes under several names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

from onnx import ModelProto, TensorProto, numpy_helper

from onnxmem.model.load import external_location, graph_tensors
from onnxmem.model.weights import is_constant, tensor_bytes

# Scalars and shape vectors repeat in every model; nobody saves memory by merging them.
_SMALLEST = 1024
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Duplicates:
    """Tensors with equal contents."""

    names: tuple[str, ...]
    size: int
    """Bytes of one copy."""

    @property
    def wasted(self) -> int:
        """Bytes that one copy for all would save."""
        return (len(self.names) - 1) * self.size


def find_duplicates(model: ModelProto, folder: Path) -> tuple[Duplicates, ...]:
    """Groups of equal weights, most wasteful first. Reads only what could be equal by type, shape and beginning."""
    names = {id(node.attribute[0].t): node.output[0] for node in model.graph.node if is_constant(node)}
    candidates = []
    for tensor in graph_tensors(model.graph):
        size = tensor_bytes(tensor.data_type, tensor.dims)
        if size is not None and size >= _SMALLEST:
            candidates.append(_Stored(tensor.name or names.get(id(tensor), ""), tensor, size, folder))
    groups = _split([candidates], lambda stored: (stored.tensor.data_type, tuple(stored.tensor.dims)))
    groups = _split(groups, lambda stored: stored.digest(4096))
    groups = _split(groups, lambda stored: stored.digest(stored.size))
    found = [Duplicates(tuple(stored.name for stored in group), group[0].size) for group in groups]
    return tuple(sorted(found, key=lambda group: -group.wasted))


@dataclass(frozen=True)
class _Stored:
    name: str
    tensor: TensorProto
    size: int
    folder: Path

    def digest(self, length: int) -> bytes:
        hasher = blake2b(digest_size=16)
        for chunk in self._content(length):
            hasher.update(chunk)
        return hasher.digest()

    def _content(self, length: int) -> Iterator[bytes]:
        if self.tensor.data_location == TensorProto.EXTERNAL:
            path, offset, _ = external_location(self.tensor, self.folder)
            with path.open("rb") as file:
                file.seek(offset)
                while length > 0 and (chunk := file.read(min(length, _CHUNK))):
                    length -= len(chunk)
                    yield chunk
        elif self.tensor.HasField("raw_data"):
            yield self.tensor.raw_data[:length]
        else:
            yield numpy_helper.to_array(self.tensor).tobytes()[:length]


def _split(groups: Iterable[list[_Stored]], key: Callable[[_Stored], Hashable]) -> list[list[_Stored]]:
    """Each group divided by `key`, keeping only the parts with more than one member."""
    parts = []
    for group in groups:
        keyed = sorted(((repr(key(stored)), index) for index, stored in enumerate(group)))
        for _, members in groupby(keyed, key=lambda item: item[0]):
            part = [group[index] for _, index in members]
            if len(part) > 1:
                parts.append(part)
    return parts
