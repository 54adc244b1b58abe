"""Is this the model, asked for in the same way, of which an earlier process left plans?

A name is made of what decides what a run asks for: all of the model's file but the content of its large tensors, the
options, and the kernels that are here. Not all options can be read back from ONNX Runtime; a name that two sessions
share by mistake costs a plan that does not fit, which its first run finds out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from onnxmem.session.planned import cache
from onnxmem.session.planned.source import Read, fields, read_with

_SMALL = 4096
"""What is not larger counts with its content, what is larger with its size."""
_FEW = 100_000
"""A model of more fields takes too long to read: one with large tables in its attributes."""
_BLOCK = 1 << 16

# What can be large in a message, by the number of its field, and what is inside of that.
_TENSOR: dict[int, Any] = {}
_SPARSE: dict[int, Any] = {1: _TENSOR, 2: _TENSOR}
_GRAPH: dict[int, Any] = {5: _TENSOR, 15: _SPARSE}
_ATTRIBUTE: dict[int, Any] = {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE}
_NODE: dict[int, Any] = {5: _ATTRIBUTE}
_GRAPH[1] = _NODE
_MODEL: dict[int, Any] = {7: _GRAPH, 25: {7: _NODE}}

# Entries of a session's configuration that change its graph or its kernels.
_ENTRIES = (
    "session.disable_prepacking", "session.disable_quant_qdq", "session.enable_quant_qdq_cleanup",
    "session.disable_double_qdq_remover", "session.disable_aot_function_inlining", "session.x64quantprecision",
    "session.qdq_matmulnbits_accuracy_level", "session.use_device_allocator_for_initializers",
    "optimization.enable_gelu_approximation", "optimization.enable_cast_chain_elimination",
    "optimization.disable_specified_optimizers", "mlas.enable_gemm_fastmath_arm64_bfloat16", "mlas.disable_kleidiai",
)  # fmt: skip


def content_of(model: str | bytes | os.PathLike[str]) -> str:
    """A name for what is in a model's file but the content of its large tensors; empty if it cannot be read."""
    return read_with(_content, model) or ""


def name_of(content: str, options: Any, config: Mapping[str, str]) -> str:
    """A name for that in a session with these options and entries, on this machine."""
    from onnxmem.session.options import entries  # noqa: PLC0415

    kind = type(options)
    said = [f"{name}={getattr(options, name)!r}" for name in dir(kind) if isinstance(getattr(kind, name), property)]
    threads = len(os.sched_getaffinity(0))
    entered = sorted(entries(options, _ENTRIES).items())
    return cache.digest(content, said, entered, sorted(config.items()), threads, cache.machine())


def _content(read: Read, size: int) -> str:
    hashed = cache.Hash(digest_size=16)
    left = [_FEW]
    _hash(read, 0, size, _MODEL, hashed.update, left)
    return hashed.hexdigest()


def _hash(
    read: Read, start: int, end: int, inside: Mapping[int, Any], update: Callable[[bytes], None], left: list[int]
) -> None:
    """Hash a message: fields that are small as they are, of large ones their size and what is inside."""
    begin = start
    for number, first, last in fields(read, start, end):
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("too many fields")
        if last - first > _SMALL:
            _hash_all(read, begin, first, update)  # its size is in there
            if number in inside:
                _hash(read, first, last, inside[number], update, left)
            begin = last
    _hash_all(read, begin, end, update)


def _hash_all(read: Read, start: int, end: int, update: Callable[[bytes], None]) -> None:
    for begin in range(start, end, _BLOCK):
        update(read(begin, min(begin + _BLOCK, end)))
