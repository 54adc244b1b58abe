"""`onnxmem explain` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("onnxmem"))


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_a_model_and_what_was_saved_of_it(matmul: Path, tmp_path: Path) -> None:
    picture = tmp_path / "parts.svg"
    done = run("explain", matmul, "--dim", "batch=64", "--runs", "2", "--json", "--picture", picture)
    assert done.returncode == 0, done.stderr
    fresh = json.loads(done.stdout)
    assert sum(part["bytes"] for part in fresh["parts"]) == fresh["peak_bytes"]
    assert fresh["unknown_fraction"] <= 0.05
    assert "libraries" in picture.read_text()
    saved = tmp_path / "saved.json"
    measured = run("measure", matmul, "--dim", "batch=64", "--runs", "2", "-o", saved)
    assert measured.returncode == 0 and "Do this next" in measured.stdout
    assert json.loads(saved.read_text())["findings"]
    again = run("explain", saved)
    assert again.returncode == 0 and "The parts of the peak" in again.stdout


def test_mistakes_are_one_sentence(matmul: Path, tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_text("{}")
    for arguments in (
        (tmp_path / "saved.json",),
        (tmp_path / "gone.json",),
        (matmul, "-o", tmp_path / "no" / "x.json"),
    ):
        done = run("explain", *arguments)
        assert done.returncode == 2 and done.stderr.startswith("onnxmem: ") and "Traceback" not in done.stderr
