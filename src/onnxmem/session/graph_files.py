"""Which files does a graph keep its weights in? ONNX Runtime reads what it names, and a package vouches for its own.

Read by hand, as `planned/source.py` does and for its reason: `onnx` takes 10 MiB, and sessions do without.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from onnxmem.errors import ModelError
from onnxmem.session.planned.source import Read, fields
from onnxmem.session.stored_files import FileState

_MODEL, _TRAINING, _FUNCTION, _GRAPH, _NODE, _ATTRIBUTE, _SPARSE, _TENSOR, _ENTRY = range(9)
# By the numbers of fields: what of a message leads to tensors, and to where they are. All that may, so that it does not
# matter which of two that contradict each other ONNX Runtime would believe.
_INSIDE: Final = {
    _MODEL: {7: _GRAPH, 20: _TRAINING, 25: _FUNCTION},
    _TRAINING: {1: _GRAPH, 2: _GRAPH},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {13: _ENTRY},
}
_KEY, _VALUE = 1, 2
_LOCATION = b"location"
_SMALL = 1 << 16
"""Read at once: most of them do not even have the word in them."""
_LONGEST_NAME = 4096


def check_locations(graph: Path, state: FileState, names: Collection[str]) -> None:
    """An error, if a graph keeps weights in a file of another name than these."""
    if graph.name.endswith(".ort"):  # as ONNX Runtime tells them apart; such a file has its weights in it
        return
    for name in _locations_of(str(graph), state):
        if name not in names:
            shown = name[:80]
            raise ModelError(f"'{graph}' keeps weights in '{shown}', which is no file of its package")


@lru_cache(maxsize=64)
def _locations_of(graph: str, state: FileState) -> frozenset[str]:
    """Opening a package is asked for several times on the way to a session."""
    try:
        descriptor = os.open(graph, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            found = set(_locations(lambda start, end: os.pread(descriptor, end - start, start), 0, size, _MODEL))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ModelError(f"cannot read '{graph}': {error.strerror}") from error
    except (ValueError, IndexError, RecursionError) as error:
        raise ModelError(f"'{graph}' is damaged: it is not an ONNX model", hint="pack the model again") from error
    return frozenset(name.decode(errors="replace") for name in found)


def _locations(read: Read, start: int, end: int, kind: int) -> Iterator[bytes]:
    inside = _INSIDE[kind]
    for number, first, last in fields(read, start, end):
        inner = inside.get(number)
        if inner == _ENTRY:
            yield from _location(read, first, last)
        elif inner is not None and last - first > _SMALL:
            yield from _locations(read, first, last, inner)
        elif inner is not None and _LOCATION in (content := read(first, last)):
            yield from _locations(_reader(content), 0, len(content), inner)


def _location(read: Read, start: int, end: int) -> Iterator[bytes]:
    """The value of an entry, if its key is the one; all of them, if it has several."""
    parts = list(fields(read, start, end))
    if any(number == _KEY and read(first, last) == _LOCATION for number, first, last in parts):
        for number, first, last in parts:
            if number == _VALUE:
                yield read(first, min(last, first + _LONGEST_NAME))


def _reader(content: bytes) -> Read:
    return lambda start, end: content[start:end]
