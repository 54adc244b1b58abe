"""How do mapped weights come into memory before the first run, instead of during it?

Mapped files are read when they are first touched. A session that has them all as soon as it is loaded runs as fast the
first time as later, and what it grows by while running is what it computes with: whoever got through loading in a
small container gets through running. The pages are the file's own, shared with all processes that map it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from pathlib import Path

_POPULATE_READ = 22  # MADV_POPULATE_READ


def prefault(files: Collection[Path]) -> None:
    """Bring all that this process maps of these files into memory; where the system cannot, leave it for later."""
    wanted = {str(file.resolve()) for file in files}
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return  # not Linux
    libc = ctypes.CDLL(None)
    for line in maps.splitlines():
        *fields, path = line.split(maxsplit=5)
        if path in wanted:
            start, end = (int(part, 16) for part in fields[0].split("-"))
            # Linux before 5.14 says that it does not know it.
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _POPULATE_READ)
