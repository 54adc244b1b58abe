"""How do mapped weights come into memory before the first run, instead of during it?

Mapped files are read when they are first touched. A session that has them as soon as it is loaded runs as fast the
first time as later, and what it grows by while running is what it computes with: whoever got through loading in a
small container gets through running. The pages are the file's own, shared with all processes that map it. Only what
every run reads is fetched, which the package says: not a table that a run looks a few rows up in.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path

Range = tuple[int, int]
"""Offset and length in a file."""

_POPULATE_READ = 22  # MADV_POPULATE_READ
_PAGE = mmap.PAGESIZE


def prefault(file: Path, ranges: Sequence[Range]) -> None:
    """Bring what this process maps of these ranges into memory; where the system cannot, leave it for later."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return  # not Linux
    libc, name = ctypes.CDLL(None), str(file.resolve())
    for line in maps.splitlines():
        if not line.endswith(name):
            continue
        addresses, _, offset, _ = line.split(maxsplit=3)
        start, end = (int(part, 16) for part in addresses.split("-"))
        first = int(offset, 16)
        for begin, length in ranges:
            low = max(begin // _PAGE * _PAGE, first)
            high = min(-(-(begin + length) // _PAGE) * _PAGE, first + end - start)
            if low < high:
                # Linux before 5.14 says that it does not know it.
                libc.madvise(ctypes.c_void_p(start + low - first), ctypes.c_size_t(high - low), _POPULATE_READ)
