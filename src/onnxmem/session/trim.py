"""Does the C library give freed memory back to the system? Not by itself: it keeps it for the next malloc."""

from __future__ import annotations

import ctypes
import sys

from onnxmem.unknown import Unknown

# As in malloc.h.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8


def trim() -> bool | Unknown:
    """Give back what malloc holds and nobody uses; whether there was any. Unknown where the C library cannot do it.

    glibc returns whole free pages from all its arenas. A different malloc (musl's, or one that is preloaded) has its
    own rules, and this does not reach it.
    """
    if sys.platform != "linux":
        return Unknown(f"there is no malloc_trim on {sys.platform}")
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return Unknown("this C library has no malloc_trim (it is not glibc)")
    malloc_trim.argtypes, malloc_trim.restype = [ctypes.c_size_t], ctypes.c_int
    return bool(malloc_trim(0))


def keep_little() -> None:
    """Let this process's malloc keep next to nothing of what is freed: for servers with many threads and large blocks.

    Without it every thread has a heap of its own, and large blocks come from those once one of their size was freed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((_MMAP_THRESHOLD, 2**19), (_ARENA_MAX, 2)):
            mallopt(ctypes.c_int(parameter), ctypes.c_int(value))
