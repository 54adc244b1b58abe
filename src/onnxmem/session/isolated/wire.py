"""What ONNX Runtime takes and gives, as it travels: tensors as bytes in shared memory, all else in the message.

    tensor     {"dtype", "shape", "at"}      its bytes lie at offset `at` of the slot
    strings    {"strings", "at", "ends"}     UTF-8, one after the other, and where each ends
    sequence   {"list": [...]}
    map        {"keys": [...], "values": [...]}
    the rest   {"plain": value}              None and plain numbers

Nothing is pickled: what arrives can only ever become one of these.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmem.errors import RuntimeUnsupported, UsageError

# Strings in Python may hold lone surrogates; they must survive the journey like everything else.
_TEXT = ("utf-8", "surrogatepass")
ALIGNMENT = 64
_SMALLEST = 64 * 1024

Bytes = npt.NDArray[np.uint8]


class Slot:
    """One piece of shared memory: an anonymous file, mapped by both processes and gone with the last of them.

    Named segments (`multiprocessing.shared_memory`) would outlive a killed process in /dev/shm and need a third process
    to watch over them. A memfd has no name: its descriptor, open until then, is handed to the other side.
    """

    def __init__(self, number: int, size: int, descriptor: int) -> None:
        self.number, self.size, self.descriptor = number, size, descriptor
        self._map = mmap.mmap(descriptor, size)

    @classmethod
    def new(cls, number: int, needed: int) -> Slot:
        """A slot for at least so many bytes. Pages cost nothing until they are written."""
        size = max(_SMALLEST, 1 << (needed - 1).bit_length()) if needed else _SMALLEST
        descriptor = _anonymous_file()
        try:
            os.ftruncate(descriptor, size)
            return cls(number, size, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def adopt(cls, number: int, size: int, descriptor: int) -> Slot:
        """A slot that the other side has made; its descriptor is closed, whatever happens."""
        if descriptor < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        try:
            slot = cls(number, size, descriptor)
        finally:
            os.close(descriptor)
        slot.descriptor = -1
        return slot

    def handed_over(self) -> None:
        """Close the descriptor: the mapping lives on without it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def view(self) -> Bytes:
        """The memory as bytes. The arrays made from one view keep the memory mapped, even when the slot is dropped."""
        return np.frombuffer(self._map, np.uint8)

    def fits(self, needed: int) -> bool:
        """Whether so many bytes belong here: they fit, and what is kept alive with them is not many times as much."""
        return needed <= self.size and self.size <= max(_SMALLEST, 4 * needed)


def aligned(size: int) -> int:
    """The size, rounded up so that what follows is aligned."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def write(target: Bytes, offset: int, array: npt.NDArray[Any]) -> None:
    """Copy an array, whatever its strides, into shared memory: the one copy on its way."""
    place = np.ndarray(array.shape, array.dtype, target, offset)
    np.copyto(place, array)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("onnxmem", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)  # it has no name, but whoever may look at the process's descriptors can open it
        return descriptor
    if os.name != "posix":
        raise RuntimeUnsupported("isolated sessions need a POSIX system: memory is shared by passing file descriptors")
    with tempfile.TemporaryFile(prefix="onnxmem-") as file:
        return os.dup(file.fileno())


class Parcel:
    """Values being packed: their descriptions now, their bytes into a slot once it is known how many there are."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[tuple[int, npt.NDArray[Any]]] = []

    def add(self, value: Any, name: str) -> dict[str, Any]:
        """Describe a value; `name` is for the error if it cannot travel."""
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            return self._strings(array, name) if array.dtype.kind in "OUS" else self._tensor(array, name)
        if isinstance(value, list | tuple):
            return {"list": [self.add(item, name) for item in value]}
        if isinstance(value, Mapping):
            keys = [self.add(key.item() if isinstance(key, np.generic) else key, name) for key in value]
            return {"keys": keys, "values": [self.add(item, name) for item in value.values()]}
        if value is None or isinstance(value, bool | int | float):
            return {"plain": value}
        if isinstance(value, str):
            return {"plain_text": self._strings(np.array([value], object), name)}
        if hasattr(value, "numpy") and getattr(value, "is_tensor", bool)():
            return self.add(value.numpy(), name)  # an OrtValue
        raise UsageError(
            f"'{name}' is a {type(value).__name__}, which cannot be passed to another process",
            hint="pass numpy arrays, or lists and dicts of them",
        )

    def write(self, target: Bytes) -> None:
        """Copy all the bytes to their places."""
        for at, array in self._pieces:
            write(target, at, array)

    def _tensor(self, array: npt.NDArray[Any], name: str) -> dict[str, Any]:
        if np.dtype(array.dtype.str) != array.dtype:
            # Types that numpy learns from packages (bfloat16, float8 …) have no portable spelling.
            raise UsageError(f"'{name}' has the type {array.dtype}, which cannot be passed to another process")
        return {"dtype": array.dtype.str, "shape": array.shape, "at": self._place(array)}

    def _strings(self, array: npt.NDArray[Any], name: str) -> dict[str, Any]:
        encoded = []
        for item in array.ravel().tolist():
            if not isinstance(item, str | bytes):
                raise UsageError(f"'{name}' is an array of objects, among them a {type(item).__name__}, not of strings")
            encoded.append(item.encode(*_TEXT) if isinstance(item, str) else item)
        ends = np.cumsum([len(item) for item in encoded], dtype=np.int64)
        at = self._place(np.frombuffer(b"".join(encoded), np.uint8))
        return {"strings": array.shape, "at": at, "ends": self._place(ends)}

    def _place(self, array: npt.NDArray[Any]) -> int:
        at = self.size
        self.size += aligned(array.nbytes)
        self._pieces.append((at, array))
        return at


def unpack(description: dict[str, Any], source: Bytes) -> Any:
    """The value again. Tensors are views of `source`: no copy."""
    if "dtype" in description:
        return np.ndarray(description["shape"], np.dtype(description["dtype"]), source, description["at"])
    if "strings" in description:
        return _unpack_strings(description, source)
    if "list" in description:
        return [unpack(item, source) for item in description["list"]]
    if "keys" in description:
        keys = [unpack(key, source) for key in description["keys"]]
        values = [unpack(item, source) for item in description["values"]]
        return dict(zip(keys, values, strict=True))
    if "plain_text" in description:
        return _unpack_strings(description["plain_text"], source)[0]
    return description["plain"]


def _unpack_strings(description: dict[str, Any], source: Bytes) -> npt.NDArray[Any]:
    shape = tuple(description["strings"])
    strings = np.empty(shape, object)
    count = strings.size
    if count:
        ends = np.ndarray(count, np.int64, source, description["ends"])
        text = source[description["at"] : description["at"] + int(ends[-1])].tobytes()
        starts = [0, *ends[:-1].tolist()]
        strings.ravel()[:] = [text[a:b].decode(*_TEXT) for a, b in zip(starts, ends.tolist(), strict=True)]
    return strings
