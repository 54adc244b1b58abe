from __future__ import annotations

import os
from pathlib import Path

from onnxmem.measurement.cache import cached, drop

MIB = 2**20


def test_the_page_cache_can_be_emptied_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 * MIB))
    assert cached(path) == 1.0
    kept = drop([path])
    assert kept is not None or cached(path) < 0.05
