"""The campaigns in short: that they run, find what is planted, and find nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.files import TARGETS
from onnxmem.errors import OnnxmemError

ROOT = Path(__file__).parents[2]


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "campaigns.files", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)


@pytest.mark.parametrize(
    ("reader", "inputs"), [("onnx", 120), ("problem", 60), ("plan", 60), ("result", 8), ("feeds", 60), ("history", 30)]
)
def test_what_strangers_write_is_read_or_refused(reader: str, inputs: int) -> None:
    done = campaign(reader, "--inputs", str(inputs), "--first", "900000")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{reader}: {inputs} inputs" in done.stdout and "refused" in done.stdout


@pytest.mark.parametrize(
    ("reader", "number"),
    [("onnx", n) for n in (74, 95, 146, 159, 2255, 5015, 10676, 15499, 17476)] + [("feeds", 150), ("feeds", 278)],
)
def test_what_was_found_stays_found(reader: str, number: int, tmp_path: Path) -> None:
    target = TARGETS[reader]
    path = target.make(number, tmp_path)
    try:
        target.read(path)
    except OnnxmemError as error:
        assert str(error).isprintable()


def test_a_planted_defect_is_found() -> None:
    done = campaign("--planted", "--inputs", "200")
    assert done.returncode == 0 and "bug: IndexError" in done.stdout
