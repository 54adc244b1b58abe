"""`onnxmem explain` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import onnxmem
from onnxmem import zoo
from onnxmem.explaining.explained import Explained
from onnxmem.model.model import Model
from onnxmem.prediction.predict import Subject
from onnxmem.schedule.scheduled import Question
from tests.integration.commands import typed


def test_a_model_and_what_was_saved_of_it(matmul: Path, tmp_path: Path) -> None:
    picture = tmp_path / "parts.svg"
    done = typed("explain", matmul, "--dim", "batch=64", "--runs", "2", "--json", "--picture", picture)
    assert done.returncode == 0, done.stderr
    fresh = json.loads(done.stdout)
    assert sum(part["bytes"] for part in fresh["parts"]) == fresh["peak_bytes"]
    assert fresh["unknown_fraction"] <= 0.05
    assert "libraries" in picture.read_text()
    saved = tmp_path / "saved.json"
    measured = typed("measure", matmul, "--dim", "batch=64", "--runs", "2", "-o", saved)
    assert measured.returncode == 0 and "Do this next" in measured.stdout
    assert json.loads(saved.read_text())["findings"]
    again = typed("explain", saved)
    assert again.returncode == 0 and "The parts of the peak" in again.stdout


def test_mistakes_are_one_sentence(matmul: Path, tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_text("{}")
    for arguments in (
        (tmp_path / "saved.json",),
        (tmp_path / "gone.json",),
        (matmul, "-o", tmp_path / "no" / "x.json"),
    ):
        done = typed("explain", *arguments)
        assert done.returncode == 2 and done.stderr.startswith("onnxmem: ") and "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--shape 1x3", "--shape x=1x3", "--seed 0", "--runs 5", "--mode planned"])
def test_what_was_measured_already_is_not_measured_otherwise(tmp_path: Path, option: str) -> None:
    (tmp_path / "saved.json").write_text("{}")
    flag, value = option.split()
    done = typed("explain", tmp_path / "saved.json", flag, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"onnxmem: {flag} is about measuring, and 'saved.json' was measured")


def test_a_package_is_explained_in_the_order_of_its_own_file(tmp_path: Path) -> None:
    source = tmp_path / "nas.onnx"
    onnx.save(zoo.build("nas"), source)
    shapes = {"image": (1, 3, 128, 128)}
    package = onnxmem.pack(source, tmp_path / "package", "external", shapes=shapes).folder
    found = onnxmem.measure(package, shapes=shapes, mode="external", runs=2, threads=2, nodes=False)
    explained = onnxmem.explain(found)
    assert explained.unknown / explained.peak <= 0.05
    subject = Explained.of(found).subject
    assert subject is not None
    expected = Subject.of(Model.open(source), Question(shapes=shapes), threads=2).packaged_runs
    assert subject.packaged_runs.first.peak == expected.first.peak
