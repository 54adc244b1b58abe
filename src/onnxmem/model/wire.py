"""A model file without the large weights in it: they stay where they are, as if the file were its own external data.

Protobuf knows no way to leave a field unread, and a file of weights would be in memory twice, as bytes and as a
message. So the fields that lead to weights are followed by hand, and the rest is copied as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from google.protobuf.descriptor import Descriptor
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
_WINDOW = 4096
"""So much is read at once: most fields are small, and the next one is in it, too."""
_LARGE = 1 << 16


def without_weights(path: Path, smallest: int = 1 << 16) -> bytes:
    """The model in a file, with weights of at least `smallest` bytes in it as external data in the same file."""
    with path.open("rb", buffering=0) as file:
        return _Weightless(file.fileno(), path.name, smallest).message(0, path.stat().st_size, ModelProto)


def has_more_messages(path: Path, most: int) -> bool:
    """Whether a file has more than so many nodes, tensors, dimensions and what else takes memory of its own.

    One takes two bytes in a file, and two hundred as a message.
    """
    with path.open("rb", buffering=0) as file:
        size, reader = path.stat().st_size, _Weightless(file.fileno(), path.name, _LARGE)
        # Almost all files are too small for so many, without their weights: only others are walked to the last field.
        return all(reader.messages(0, size, ModelProto.DESCRIPTOR, smallest, most) > most for smallest in (_LARGE, 0))


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

    def messages(self, start: int, end: int, kind: Descriptor, smallest: int, most: int) -> int:
        """How many messages there are within one, or at least `most`; those below `smallest` have as many as fit."""
        inside, count = _messages_in(kind), 0
        for number, _, content, after in self.fields(start, end):
            inner = inside.get(number)
            if inner is not None:
                size = after - content
                within = size // 2 if size < max(smallest, 2) else self.messages(content, after, inner, smallest, most)
                count += 1 + within
                if count > most:
                    break
        return count

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """For each field of a message its number, where it begins, and where its content begins and ends."""
        field, window, at = start, b"", start
        while field < end:
            if field + 2 * _LONGEST_VARINT > at + len(window) < end:
                window, at = self.read(field, min(field + _WINDOW, end)), field
            tag, position = _read_varint(window, field - at)
            wire, content = tag & 7, at + position
            if wire == _VARINT:
                after = at + _read_varint(window, position)[1]
            elif wire == _BYTES:
                length, position = _read_varint(window, position)
                content = at + position
                after = content + length
            elif wire in _FIXED:
                after = content + _FIXED[wire]
            else:
                raise DecodeError(f"wire type {wire}")
            if after > end:
                raise DecodeError("a field ends after its message")
            yield tag >> 3, field, content, after
            field = after


@cache
def _messages_in(kind: Descriptor) -> Mapping[int, Descriptor]:
    return {field.number: field.message_type for field in kind.fields if field.message_type is not None}


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
