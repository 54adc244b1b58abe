"""Weights stored more than once: the same bytes under several names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, numpy_helper

from onnxmem.documents import Record, stored
from onnxmem.errors import ModelError
from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.external import external_location
from onnxmem.model.load import subgraphs_of
from onnxmem.model.weights import is_constant

# Scalars and shape vectors repeat in every model; nobody saves memory by merging them.
_SMALLEST = 1024
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Duplicates(Record):
    """Tensors with equal contents."""

    names: tuple[str, ...]
    size: int = stored("bytes")
    """Bytes of one copy."""

    @property
    def wasted(self) -> int:
        """Bytes that one copy for all would save."""
        return (len(self.names) - 1) * self.size


def find_duplicates(model: ModelProto, folder: Path) -> tuple[Duplicates, ...]:
    """Groups of equal weights, most wasteful first. Reads only what could be equal by type, shape and beginning."""
    candidates = []
    for name, tensor in _named_tensors(model.graph):
        size = tensor_bytes(tensor.data_type, tensor.dims)
        if size is not None and size >= _SMALLEST:
            candidates.append(_Stored(name, tensor, size, folder))
    groups = _split([candidates], lambda stored: (stored.tensor.data_type, tuple(stored.tensor.dims)))
    groups = _split(groups, lambda stored: stored.digest(4096))
    groups = _split(groups, lambda stored: stored.digest(stored.size))
    found = [Duplicates(tuple(stored.name for stored in group), group[0].size) for group in groups]
    return tuple(sorted(found, key=lambda group: -group.wasted))


def _named_tensors(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Every stored tensor under the name by which the graph knows it: a Constant node's is its output's."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    yield from ((sparse.values.name, sparse.values) for sparse in graph.sparse_initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield node.output[0] if is_constant(node) else attribute.t.name or node.name, attribute.t
        for subgraph in subgraphs_of(node):
            yield from _named_tensors(subgraph)


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
            try:
                array = numpy_helper.to_array(self.tensor)
            except (ValueError, TypeError) as error:
                raise ModelError(f"the data of '{self.name}' do not fit its type and shape") from error
            # Back to a tensor, because raw data packs what arrays do not: two 4-bit numbers to a byte.
            yield numpy_helper.from_array(array).raw_data[:length]


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
