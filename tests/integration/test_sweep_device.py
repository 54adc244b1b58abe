"""Cells of a sweep on a real GPU; without one they are skipped, and the sentence is tested instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmem.errors import OnnxmemError
from onnxmem.measurement.device import check_device
from onnxmem.sweeping.sweep import sweep


def _missing() -> str:
    try:
        check_device("cuda")
    except OnnxmemError as error:
        return str(error)
    return ""


@pytest.mark.cuda
@pytest.mark.skipif(bool(_missing()), reason=_missing())
def test_cells_on_a_gpu_tell_of_its_memory(model: Path, tmp_path: Path) -> None:
    found = sweep(
        model,
        verbs=("estimate", "measure", "release", "share", "compare"),
        modes=("stock", "planned"),
        device="cuda",
        runs=2,
        repeat=2,
        workers=(2,),
        store=tmp_path / "s.sqlite",
    )
    assert found.ok, found.failures
    assert [each.label.partition(",")[2] for each in found.maps] == [" cuda"] * 5
    # A CUDA context alone is more than such a model takes on the host.
    for each in found.maps:
        assert all(size is not None and size > 100 * 2**20 for row in each.rows for size in row.bytes), each
    assert "cores" in found.status.processors[0] and "driver" in found.status.processors[0]


@pytest.mark.skipif(not _missing(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_begun(model: Path, tmp_path: Path) -> None:
    with pytest.raises(OnnxmemError) as error:
        sweep(model, device="cuda", store=tmp_path / "s.sqlite")
    assert str(error.value) == _missing() and not (tmp_path / "s.sqlite").exists()
