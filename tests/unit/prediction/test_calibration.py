"""What a process takes by itself is kept as long as the system holds its library as it did then."""

from __future__ import annotations

import os
from pathlib import Path

from onnxmem.prediction.calibration import FAULT_AROUND, calibration, calibration_file, touched_bytes


def test_a_touch_brings_its_page_and_no_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    page = os.sysconf("SC_PAGESIZE")
    once, often = touched_bytes(file, 1 << 20), touched_bytes(file, page)
    assert page <= once <= often == 1 << 20
    assert touched_bytes(None) == touched_bytes(tmp_path / "missing") == 0


def test_what_was_kept_without_a_look_at_the_library_is_used_as_it_is(cache: Path) -> None:
    assert cache in calibration_file().parents
    found = calibration()
    assert (found.touched, found.around) == (0, FAULT_AROUND)
