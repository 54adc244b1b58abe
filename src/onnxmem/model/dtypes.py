"""Element types: their names and how many bits one element takes."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

# Bits in memory. Sub-byte types are packed, several to a byte; a tensor is rounded up to whole bytes.
_BITS = {
    "FLOAT": 32,
    "UINT8": 8,
    "INT8": 8,
    "UINT16": 16,
    "INT16": 16,
    "INT32": 32,
    "INT64": 64,
    "BOOL": 8,
    "FLOAT16": 16,
    "DOUBLE": 64,
    "UINT32": 32,
    "UINT64": 64,
    "COMPLEX64": 64,
    "COMPLEX128": 128,
    "BFLOAT16": 16,
    "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8,
    "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8,
    "FLOAT8E8M0": 8,
    "UINT4": 4,
    "INT4": 4,
    "FLOAT4E2M1": 4,
    "UINT2": 2,
    "INT2": 2,
}
# ONNX's enumeration says FLOAT and DOUBLE where everyone else says float32 and float64.
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
_ENUMERATED = {name: enumerated for enumerated, name in _NAMES.items()}


def dtype_name(elem_type: int) -> str:
    """An element type as people write it: float32, int4, string."""
    try:
        name = str(TensorProto.DataType.Name(elem_type))
    except ValueError:
        return f"type{elem_type}"
    return _NAMES.get(name, name.lower())


def bits(elem_type: int) -> int | None:
    """Bits per element, or None where an element has no fixed size (strings) or the type is not known."""
    try:
        return _BITS.get(TensorProto.DataType.Name(elem_type))
    except ValueError:
        return None


def dtype_bits(name: str) -> int | None:
    """The same for a name as people write it."""
    return _BITS.get(_ENUMERATED.get(name, name.upper()))


def tensor_bytes(elem_type: int, shape: Sequence[int]) -> int | None:
    """Bytes of a dense tensor in memory; None for element types without a fixed size."""
    width = bits(elem_type)
    # Python integers: a declared shape may multiply to more than 64 bits hold.
    count = 1
    for dim in shape:
        count *= dim
    return None if width is None else -(-count * width // 8)
