"""A model file without the large weights in it: they stay where they are, as if the file were its own external data.

Protobuf knows no way to leave a field unread, and a file of weights would be in memory twice, as bytes and as a
message. So the fields that lead to weights are followed by hand, and the rest is copied as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.external import make_external

_LONGEST_VARINT = 10
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}
_INSIDE: Mapping[type, Mapping[str, type]] = {
    ModelProto: {"graph": GraphProto, "functions": FunctionProto},
    FunctionProto: {"node": NodeProto},
    GraphProto: {"node": NodeProto, "initializer": TensorProto},
    NodeProto: {"attribute": AttributeProto},
    AttributeProto: {"t": TensorProto, "tensors": TensorProto, "g": GraphProto, "graphs": GraphProto},
}
# By number instead of name, as they are written.
_FIELDS = {
    kind: {kind.DESCRIPTOR.fields_by_name[name].number: inner for name, inner in fields.items()}  # type: ignore[attr-defined]
    for kind, fields in _INSIDE.items()
}
_RAW_DATA = TensorProto.RAW_DATA_FIELD_NUMBER


def without_weights(path: Path, smallest: int = 1 << 16) -> bytes:
    """The model in a file, with weights of at least `smallest` bytes in it as external data in the same file."""
    with path.open("rb", buffering=0) as file:
        return _Weightless(file.fileno(), path.name, smallest).message(0, path.stat().st_size, ModelProto)


@dataclass(frozen=True)
class _Weightless:
    """Reads of a file what is no weight. Not by mapping it: the pages around each field would count as memory."""

    file: int
    name: str
    smallest: int

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self.file, end - start, start)

    def message(self, start: int, end: int, kind: type) -> bytes:
        """The message between these places in the file."""
        if kind is TensorProto:
            return self.tensor(start, end)
        parts, copied = [], start
        for number, field, content, after in self.fields(start, end):
            inner = _FIELDS[kind].get(number)
            if inner is not None and after - content >= self.smallest:
                message = self.message(content, after, inner)
                parts += [self.read(copied, field), _varint(number << 3 | _BYTES), _varint(len(message)), message]
                copied = after
        return b"".join([*parts, self.read(copied, end)])

    def tensor(self, start: int, end: int) -> bytes:
        for number, field, content, after in self.fields(start, end):
            if number == _RAW_DATA:
                tensor = TensorProto.FromString(self.read(start, field) + self.read(after, end))
                # Anything odd about it is for others to find.
                if tensor_bytes(tensor.data_type, tensor.dims) == after - content and not tensor.external_data:
                    make_external(tensor, self.name, content, after - content)
                    return bytes(tensor.SerializeToString())
        return self.read(start, end)

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """For each field of a message its number, where it begins, and where its content begins and ends."""
        field = start
        while field < end:
            head = self.read(field, min(field + 2 * _LONGEST_VARINT, end))
            tag, size = _read_varint(head, 0)
            wire, content = tag & 7, field + size
            if wire == _VARINT:
                after = field + _read_varint(head, size)[1]
            elif wire == _BYTES:
                length, size = _read_varint(head, size)
                content = field + size
                after = content + length
            elif wire in _FIXED:
                after = content + _FIXED[wire]
            else:
                raise DecodeError(f"wire type {wire}")
            if after > end:
                raise DecodeError("a field ends after its message")
            yield tag >> 3, field, content, after
            field = after


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position after it."""
    value = shift = 0
    for byte in data[position : position + _LONGEST_VARINT]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number has no end")


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
