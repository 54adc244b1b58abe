"""What cells will take: by prediction where there is one, and never nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from onnxmem import zoo
from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.cells import make_cells
from onnxmem.sweeping.needs import memory_need, memory_needs
from onnxmem.sweeping.sweep import make_spec

MIB = 2**20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(zoo.build("matmul", layers=2, width=64), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def cells(path: Path, *batches: int, **given: object) -> tuple[Cell, ...]:
    return make_cells(make_spec([str(path)], None, {"dims": {"batch": batches}, "threads": 1, **given})).cells


def test_a_larger_size_needs_more(path: Path) -> None:
    small, large = map(memory_need, cells(path, 1, 10**6))
    # At least the activations of a layer: a million rows of 64 floats.
    assert small < 1024 * MIB and large - small > 10**6 * 64 * 4


def test_all_sizes_count_as_the_largest_unless_that_has_no_room(path: Path) -> None:
    small, large = cells(path, 1, 10**6)
    names: list[str] = []
    assert len(set(memory_needs([small, large], 10**15, names.append).values())) == 1 and names == ["net.onnx"]
    found = memory_needs([small, large], 1024 * MIB)
    assert found[small.question] < 1024 * MIB < found[large.question]


def test_a_limit_several_workers_and_a_device(path: Path) -> None:
    (usual,) = cells(path, 1)
    settings = usual.settings
    limited = replace(usual, settings=replace(settings, memory_limit=10 * MIB))
    several = replace(usual, verb="share", settings=replace(settings, workers=(1, 8)))
    on_gpu = replace(usual, settings=replace(settings, device="cuda"))
    assert memory_need(limited) < memory_need(usual) < memory_need(on_gpu)
    assert memory_need(several) - memory_need(usual) > 3 * (memory_need(usual) - memory_need(limited))
    assert memory_need(replace(usual, verb="plan")) < memory_need(usual)


def test_what_cannot_be_predicted_counts_by_its_files(path: Path) -> None:
    (usual,) = cells(path, 1)
    path.write_bytes(b"no model" * MIB)
    assert memory_need(usual) >= 5 * 8 * MIB
