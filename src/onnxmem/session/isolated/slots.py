"""Shared memory for tensors: anonymous files, mapped by both processes and gone with the last of them.

Named segments (`multiprocessing.shared_memory`) would outlive a killed process in /dev/shm and need a third process to
watch over them. A memfd has no name: its descriptor is handed to the other side, and when both are dead so is it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmem.errors import RuntimeUnsupported

ALIGNMENT = 64
_SMALLEST = 64 * 1024

Bytes = npt.NDArray[np.uint8]


class Slot:
    """One piece of shared memory; `descriptor` is open until it has been handed over."""

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
        """A slot that the other side has made."""
        slot = cls(number, size, descriptor)
        slot.handed_over()
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
        return os.memfd_create("onnxmem", os.MFD_CLOEXEC)
    if os.name != "posix":
        raise RuntimeUnsupported("isolated sessions need a POSIX system: memory is shared by passing file descriptors")
    with tempfile.TemporaryFile(prefix="onnxmem-") as file:
        return os.dup(file.fileno())
