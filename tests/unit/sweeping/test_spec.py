"""Specifications: what they come to, and that whatever is wrong is a sentence before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxmem import zoo
from onnxmem.errors import MissingDependency, UsageError
from onnxmem.sweeping.cells import distinct_names, make_cells
from onnxmem.sweeping.spec import read_spec
from onnxmem.sweeping.sweep import Where, make_spec


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with two models of one free dimension, and one of none."""
    for number, name in enumerate(("a.onnx", "b.onnx")):
        onnx.save(zoo.build("matmul", layers=number + 1, width=16), tmp_path / name)
    fixed = zoo.build("matmul", layers=1, width=8)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(fixed, tmp_path / "fixed.onnx")
    np.savez(tmp_path / "feeds.npz", x=np.zeros((5, 16), np.float32))
    np.savez(tmp_path / "other.npz", y=np.zeros((5, 16), np.float32))
    return tmp_path


def spec_of(folder: Path, text: str) -> Path:
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def test_the_product_of_a_specification(models: Path) -> None:
    text = """
        store = "nightly.sqlite"
        verbs = ["estimate", "plan", "measure"]
        modes = ["stock", "planned"]
        threads = 1
        [[models]]
        path = "?.onnx"
        dims = {batch = [1, 4, 16]}
        [[models]]
        path = "fixed.onnx"
        verbs = "measure"
        repeat = 2
    """
    spec = read_spec(spec_of(models, text))
    assert spec.store == models / "nightly.sqlite"
    cells = make_cells(spec).cells
    # Two models at three sizes, each estimated and measured in two modes and planned once; one measured in two.
    assert len(cells) == 2 * 3 * (2 + 1 + 2) + 2
    assert {cell.name for cell in cells} == {"a.onnx", "b.onnx", "fixed.onnx"}
    assert {cell.shapes["x"] for cell in cells if cell.name == "a.onnx"} == {(1, 16), (4, 16), (16, 16)}
    assert {cell.size for cell in cells if cell.name == "fixed.onnx"} == {"default"}
    assert {cell.settings.threads for cell in cells} == {1}
    assert {cell.settings.repeat for cell in cells if cell.name == "fixed.onnx"} == {2}
    assert len({cell.question for cell in cells}) == len(cells)


def test_what_is_asked_twice_is_one_cell(models: Path) -> None:
    both = '[[models]]\npath = "a.onnx"\n[[models]]\npath = ["a.onnx", "b.onnx"]\n'
    assert len(make_cells(read_spec(spec_of(models, both))).cells) == 2
    (models / "c.onnx").write_bytes((models / "a.onnx").read_bytes())
    found = make_cells(make_spec([str(models / "?.onnx")], None, {}))
    assert [cell.name for cell in found.cells] == ["a.onnx", "b.onnx"]
    assert found.notes == ("c.onnx is the same as a.onnx, which stands for both.",)


def test_a_dimension_that_some_models_have_not(models: Path) -> None:
    spec = make_spec([str(models / "*.onnx")], None, {"dims": {"batch": (1, 4)}})
    found = make_cells(spec)
    assert len(found.cells) == 2 * 2 + 1
    assert found.notes == ("Without a dimension 'batch', and so not at each of its numbers: fixed.onnx.",)


def test_names_that_tell_models_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "x" / "model.onnx", tmp_path / "y" / "model.onnx", tmp_path / "net.onnx"]
    assert list(distinct_names(paths).values()) == ["x/model.onnx", "y/model.onnx", "net.onnx"]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("verbs = [", "is not a TOML file", ""),
        ("", "it names no models", "[[models]]"),
        ("models = 3", "'models' cannot be '3'", "[[models]]"),
        ('[[models]]\nverbs = "measure"', "'models[0]' has no 'path'", "path ="),
        ('[[models]]\npath = "no/*.onnx"', "there is no such file", ""),
        (f'[[models]]\npath = "{"n" * 300}"', "there is no such file", ""),
        ('[[models]]\npath = "**x"', "'**x', no pattern of paths", ""),
        ('[[models]]\npath = "gone.onnx"', "'gone.onnx', and there is no such file", ""),
        ('[[models]]\npath = "a.onnx"\nmode = "stock"', "there is no key 'models[0].mode'", "did you mean 'modes'"),
        ('[[models]]\npath = "a.onnx"\nmodes = "fast"', "'models[0].modes' cannot be 'fast'", "one of stock"),
        ('verbs = ["guess"]\n[[models]]\npath = "a.onnx"', "'verbs' cannot be", "one of estimate"),
        ('[[models]]\npath = "a.onnx"\ndims = {batch = [0]}', "'models[0].dims' cannot be", "{batch = [1, 4, 16]}"),
        ('[[models]]\npath = "a.onnx"\ndims = {rows = [1]}', "no model has a free dimension 'rows'", "batch"),
        ('[[models]]\npath = "a.onnx"\nshapes = {y = [1, 16]}', "a.onnx: the model has no input 'y'", "it has: x"),
        ('[[models]]\npath = "a.onnx"\nmodes = "mapped"', "a.onnx: mode 'mapped' needs", "onnxmem pack"),
        ('[[models]]\npath = "a.onnx"\nverbs = "compare"', "compare needs two modes", "stock,planned"),
        ('[[models]]\npath = "a.onnx"\nthreads = 100000', "threads must be between 1 and", ""),
        ('[[models]]\npath = "a.onnx"\ntime_limit = 0', "'models[0].time_limit' cannot be '0'", "seconds"),
        ('[[models]]\npath = "spec.toml"', "spec.toml", ""),
        ('[[models]]\npath = "."', "it is a folder", "/*.onnx"),
        ('[[models]]\npath = "a.onnx"\ndevice = "tpu"', "there is no device 'tpu'", "cuda:1"),
        (
            '[[models]]\npath = "a.onnx"\ndevice = "cuda"\nverbs = "plan"',
            "plan is about the CPU's memory",
            "leave it",
        ),
        (
            '[[models]]\npath = "a.onnx"\ndevice = "cuda"\nverbs = "estimate"\nmodes = "external"',
            "mode 'external' ",
            "",
        ),
        ('device = "cuda"\n[[models]]\npath = "a.onnx"\nmemory_limit = "1GiB"', "a memory limit is for the CPU", ""),
        ('[[models]]\npath = "a.onnx"\ninputs = "gone.npz"', "'gone.npz', and there is no such file", ""),
        ('[[models]]\npath = "b.onnx"\ninputs = "other.npz"', "b.onnx: 'other.npz' has no array for input 'x'", "y"),
        (
            '[[models]]\npath = "a.onnx"\ninputs = "feeds.npz"\ndims = {batch = 2}',
            "a.onnx: inputs have their own sizes",
            "leave out dims",
        ),
        (
            'options = {enable_mem_pattern = false}\nmodes = ["stock", "planned"]\nverbs = "compare"\n'
            '[[models]]\npath = "a.onnx"',
            "compare does not know what session options change",
            "measure",
        ),
    ],
)
def test_whatever_is_wrong_is_a_sentence(models: Path, text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        make_cells(read_spec(spec_of(models, text)))
    assert said in str(error.value) and hint in error.value.hint and "\n" not in str(error.value)


def test_estimates_are_of_onnx_files(models: Path) -> None:
    (models / "m.ort").write_bytes((models / "a.onnx").read_bytes())
    with pytest.raises(UsageError, match=r"estimate reads \.onnx files"):
        make_cells(make_spec([str(models / "m.ort")], None, {"verbs": ("estimate",), "modes": ("ort",)}))
    with pytest.raises(UsageError, match="does not know what session options change"):
        given = {"verbs": ("estimate",), "options": {"enable_mem_pattern": False}}
        make_cells(make_spec([str(models / "a.onnx")], None, given))


def test_a_key_knows_all_that_a_result_depends_on(models: Path) -> None:
    def cells(**given: object) -> tuple[str, str]:
        (cell,) = make_cells(make_spec([str(models / "a.onnx")], None, given)).cells
        return cell.question, cell.subject

    usual = cells()
    assert cells() == usual
    others = [cells(threads=1), cells(runs=2), cells(modes=("tuned",)), cells(dims={"batch": (7,)}), cells(seed=1)]
    assert len({usual, *others}) == 6 and len({subject for _, subject in (usual, *others)}) == 6
    # Another content is another question about the same.
    onnx.save(zoo.build("matmul", layers=3, width=16), models / "a.onnx")
    assert cells()[0] != usual[0] and cells()[1] == usual[1]


def test_arrays_are_part_of_the_key(models: Path) -> None:
    spec = spec_of(models, 'verbs = ["plan", "measure"]\n[[models]]\npath = "a.onnx"\ninputs = "feeds.npz"\n')
    planned, before = make_cells(read_spec(spec)).cells
    assert before.inputs == models / "feeds.npz" and before.size == "feeds.npz" and before.shapes == {"x": (5, 16)}
    assert planned.shapes == before.shapes
    np.savez(models / "feeds.npz", x=np.ones((5, 16), np.float32))
    _, after = make_cells(read_spec(spec)).cells
    assert after.question != before.question
    (generated,) = make_cells(make_spec([str(models / "a.onnx")], None, {"dims": {"batch": (5,)}})).cells
    assert generated.shapes == after.shapes and generated.question != after.question


def test_a_device_is_another_cell_that_is_worked_out_last(models: Path) -> None:
    text = 'verbs = ["plan", "measure"]\n[[models]]\npath = "a.onnx"\n'
    on_gpu = '[[models]]\npath = "a.onnx"\nverbs = ["measure", "share", "estimate"]\ndevice = "cuda:1"\n'
    cells = make_cells(read_spec(spec_of(models, text + on_gpu))).cells
    assert [cell.stage for cell in sorted(cells, key=lambda cell: cell.stage)] == [
        (False, "cpu"),
        (True, "cpu"),
        *[(True, "cuda:1")] * 3,  # even an estimate runs kernels there
    ]
    assert [cell.how for cell in cells] == ["", "stock", *["stock on cuda:1"] * 3]
    assert [cell.limit for cell in cells] == [60.0, 600.0, 600.0, 3600.0, 600.0]
    assert cells[1].key.mode == "stock" and cells[2].key.mode == "stock on cuda:1"


def test_external_weights_are_part_of_the_key(models: Path) -> None:
    proto = onnx.load(models / "a.onnx")
    path = models / "big.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="big.bin", size_threshold=0)
    (before,) = make_cells(make_spec([str(path)], None, {})).cells
    assert [file.name for file in before.files] == ["big.onnx", "big.bin"]
    content = bytearray((models / "big.bin").read_bytes())
    content[0] ^= 1
    (models / "big.bin").write_bytes(content)
    (after,) = make_cells(make_spec([str(path)], None, {})).cells
    assert after.question != before.question


def test_where_it_runs_is_checked() -> None:
    for given, said in (
        ({"engine": "slurm"}, "there is no engine 'slurm'"),
        ({"address": "host:1"}, "--address is about a cluster"),
        ({"retries": -1}, "retries must be at least 0"),
    ):
        with pytest.raises(UsageError, match=said):
            Where(**given)
    with pytest.raises(UsageError, match="10000 measurements at a time need 10000 cores"):
        Where(parallel=10000).open()


def test_without_ray_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match="this needs the package 'ray'") as error:
        Where(engine="ray").open()
    assert error.value.hint == "pip install ray"
