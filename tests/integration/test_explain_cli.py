"""`onnxmem explain` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

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
