"""The smallest ONNX models there can be: one node between two copies. Written by hand, because `onnx` takes 10 MiB.

    input 0 ─ Concat ─▶ the node ─ Concat ─▶ output
    input 1 ──────────────┘

What the first Concat makes dies in the node, and what the node makes lives within the run: the two can share a place.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_IR = 8
_CONTRIB = "com.microsoft"
# As in TensorProto, by the names that profiles have.
_TYPES = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "double": 11}
_VARINT, _BYTES, _FIXED = 0, 2, 5
_MOST_SIGNIFICANT = 0x80
_FLOAT, _INT = 1, 2  # of AttributeProto


def tiny_model(
    op: str,
    types: Sequence[str],
    dying: Sequence[int],
    *,
    attributes: Mapping[str, float] | None = None,
    contrib: bool = False,
    opset: int = 17,
) -> bytes:
    """A model of one node whose inputs have these types, and any shapes. Those in `dying` are one and the same tensor.

    Its inputs are called x0, x1 and so on, by position.
    """
    first = dying[0]
    read = ["dying" if position in dying else f"x{position}" for position in range(len(types))]
    nodes = [
        _node("Concat", [f"x{first}"], "dying", {"axis": 0}),
        _node(op, read, "made", attributes or {}, _CONTRIB if contrib else ""),
        _node("Concat", ["made"], "output", {"axis": 0}),
    ]
    fed = [position for position in range(len(types)) if position == first or position not in dying]
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, b"tiny"),
            *(_field(11, _value(f"x{position}", types[position])) for position in fed),
            _field(12, _value("output", types[first])),
        ]
    )
    opsets = [_field(1, b"") + _number(2, opset), _field(1, _CONTRIB.encode()) + _number(2, 1)]
    return _number(1, _IR) + _field(7, graph) + b"".join(_field(8, each) for each in opsets)


def _node(op: str, inputs: Sequence[str], output: str, attributes: Mapping[str, float], domain: str = "") -> bytes:
    written = [_field(1, name.encode()) for name in inputs] + [_field(2, output.encode()), _field(4, op.encode())]
    for name, value in attributes.items():
        if isinstance(value, int):
            content = _number(3, value) + _number(20, _INT)
        else:
            content = _varint(2 << 3 | _FIXED) + struct.pack("<f", value) + _number(20, _FLOAT)
        written.append(_field(5, _field(1, name.encode()) + content))
    return b"".join(written) + (_field(7, domain.encode()) if domain else b"")


def _value(name: str, dtype: str) -> bytes:
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, _TYPES[dtype])))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= _MOST_SIGNIFICANT:
        written.append(value & ~_MOST_SIGNIFICANT & 0xFF | _MOST_SIGNIFICANT)
        value >>= 7
    return bytes([*written, value])
