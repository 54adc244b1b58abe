"""Growth inside a block is seen, also when it is gone again at its end."""

from __future__ import annotations

import mmap

import numpy as np

from onnxmem.checking.watching import Watch

MIB = 2**20


def touched(size: int) -> np.ndarray:
    """Memory of its own: malloc could take it from a hole that an earlier test left in the heap."""
    array = np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    array[:] = 1
    return array


def test_memory_that_is_gone_again_counts() -> None:
    with Watch() as watch:
        touched(64 * MIB)
    assert isinstance(watch.growth, int) and 60 * MIB < watch.growth < 80 * MIB
    assert isinstance(watch.kept, int) and watch.kept < 16 * MIB
    assert watch.excess(100 * MIB) == ""
    said = watch.excess(32 * MIB)
    assert "and 32.0 MiB are allowed" in said and "at its end it was all given back" in said


def test_memory_that_stays_is_named_by_its_kind() -> None:
    with Watch() as watch:
        kept = touched(64 * MIB)
    assert kept[0] == 1 and 60 * MIB < watch.parts["arenas"] < 80 * MIB
    assert "arenas 64." in watch.excess(MIB)
