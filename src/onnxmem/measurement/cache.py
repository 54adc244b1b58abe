"""How long does loading take when the file is not in memory yet? The page cache is asked to forget it."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from onnxmem.unknown import Unknown

# A page that another process has just touched may come back; more than this, and the cache was not cold.
_WARM = 0.05


def drop(files: Iterable[Path]) -> Unknown | None:
    """Make the system forget these files' pages; Unknown says why it did not."""
    if not hasattr(os, "posix_fadvise"):
        return Unknown(f"{sys.platform} has no posix_fadvise")
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            # Only what is on the disk can be dropped.
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            return Unknown(f"the page cache keeps '{file.name}': {error.strerror}")
        finally:
            os.close(handle)
        if cached(file) > _WARM:
            return Unknown(f"the page cache keeps '{file.name}' (another process maps it, or it is in a memory disk)")
    return None


def cached(file: Path) -> float:
    """Which part of a file is in the page cache, 0 to 1; nothing is read to find out."""
    size = file.stat().st_size
    if not size:
        return 0.0
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        there = (ctypes.c_ubyte * pages)()
        first = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), there)
        del first  # or the mapping could not be closed
        return 1.0 if failed else sum(value & 1 for value in bytes(there)) / pages
