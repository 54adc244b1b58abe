"""Growth inside a block is seen, also when it is gone again at its end."""

from __future__ import annotations

import numpy as np

from onnxmem.checking.watching import Watch

MIB = 2**20


def test_memory_that_is_gone_again_counts() -> None:
    with Watch() as watch:
        np.ones(64 * MIB, np.uint8)
    assert isinstance(watch.growth, int) and 60 * MIB < watch.growth < 80 * MIB
    assert isinstance(watch.kept, int) and watch.kept < 16 * MIB
    assert watch.excess(100 * MIB) == ""
    said = watch.excess(32 * MIB)
    assert "and 32.0 MiB are allowed" in said and "at its end it was all given back" in said


def test_memory_that_stays_is_named_by_its_kind() -> None:
    with Watch() as watch:
        kept = np.ones(64 * MIB, np.uint8)
    assert kept[0] == 1 and 60 * MIB < watch.parts["arenas"] < 80 * MIB
    assert "arenas 64." in watch.excess(MIB)
