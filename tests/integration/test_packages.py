"""A package: what it says about itself, where it loads, and that no changed byte goes unnoticed."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import onnxmem
from onnxmem.errors import ModelError, OnnxmemError, RuntimeUnsupported, UsageError
from onnxmem.session.package import MANIFEST, Cpu, Manifest, Package, open_package, this_cpu, verify_package


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "copy"))


def test_it_tells_what_it_is(packed: Path) -> None:
    made = verify_package(packed).manifest
    assert made.mode == "prepacked"
    assert [file.name for file in made.files] == ["model.onnx", "weights.bin"]
    assert made.weights.raw == made.weights.packed == 4 * 512 * 512 * 4
    assert made.verified.reference == "stock"
    assert made.cpu == this_cpu()


def test_every_flipped_byte_of_a_manifest_is_noticed(copy: Path) -> None:
    original = (copy / MANIFEST).read_bytes()
    chosen = random.Random(0).sample(range(len(original)), 150)
    for position in chosen:
        spoiled = bytearray(original)
        spoiled[position] ^= 1 << (position % 8)
        (copy / MANIFEST).write_bytes(bytes(spoiled))
        with pytest.raises(OnnxmemError):
            open_package(copy)


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin"])
def test_a_flipped_byte_of_a_file_is_noticed(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 4
    (copy / name).write_bytes(bytes(content))
    if name != "model.onnx":
        open_package(copy)  # which looks at sizes only, and at what graphs load
    with pytest.raises(ModelError, match=rf"{name}' is damaged"):
        verify_package(copy)


def test_a_short_or_missing_file_is_noticed_on_opening(copy: Path) -> None:
    with (copy / "weights.bin").open("r+b") as file:
        file.truncate(4096)
    with pytest.raises(ModelError, match="4096 bytes instead of"):
        open_package(copy)
    (copy / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"has lost 'weights\.bin'"):
        open_package(copy)


def test_a_folder_that_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no package"):
        open_package(tmp_path)


def test_a_package_does_not_point_out_of_its_folder(copy: Path) -> None:
    made = open_package(copy).manifest
    outside = replace(made.files[0], name="../chain.onnx")
    (copy / MANIFEST).write_text(replace(made, files=(outside,)).text())
    with pytest.raises(ModelError, match="outside of its folder"):
        open_package(copy)


def test_another_onnx_runtime_or_cpu_is_refused_with_the_way_out(packed: Path) -> None:
    package = open_package(packed)
    made = package.manifest
    with pytest.raises(RuntimeUnsupported, match=rf"{made.onnxruntime}, and this is 1\.99\.0") as caught:
        package.check_here("1.99.0")
    assert "--repack" in caught.value.hint
    other = Cpu(made.cpu.machine, (*made.cpu.features, "avx1024"))
    with pytest.raises(RuntimeUnsupported, match="it has avx1024") as caught:
        package.check_here(made.onnxruntime, other)
    with pytest.raises(RuntimeUnsupported, match="it is riscv64"):
        package.check_here(made.onnxruntime, Cpu("riscv64", ()))
    package.check_here(made.onnxruntime)


def test_a_manifest_survives_being_written_and_read(packed: Path) -> None:
    made = open_package(packed).manifest
    assert Manifest.parse(made.text(), packed) == made
    assert Package(packed, made).size == sum(path.stat().st_size for path in open_package(packed).files)


def test_without_a_mode_a_package_is_measured_and_released_in_its_own(packed: Path, chain: Path) -> None:
    assert onnxmem.measure(packed, runs=1, nodes=False).scenario.mode == "prepacked"
    assert onnxmem.measure(packed, runs=1, nodes=False, mode="stock").scenario.mode == "stock"
    assert onnxmem.release_ladder(packed, runs=1).scenario.mode == "prepacked"
    assert onnxmem.release_ladder(chain, runs=1).scenario.mode == "stock"
    with pytest.raises(UsageError, match="mode 'ort' needs"):
        onnxmem.measure(chain, mode="ort")
