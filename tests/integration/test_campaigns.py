"""The campaigns in short: that they run, find what is planted, and find nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.files import PLANTED, READERS, target_of
from onnxmem.errors import OnnxmemError

ROOT = Path(__file__).parents[2]


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "campaigns.files", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)


# Those that need the same good files, or little: together they begin only once.
SHORT = (
    ("onnx graph", 120),
    ("problem plan feeds settings spec kept", 60),
    ("history store ort upload", 30),
    ("result baseline explain", 12),
    ("plans package", 20),
)


@pytest.mark.parametrize(("readers", "inputs"), SHORT)
def test_what_strangers_write_is_read_or_refused(readers: str, inputs: int) -> None:
    done = campaign(*readers.split(), "--inputs", str(inputs), "--first", "900000")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    for reader, line in zip(readers.split(), lines, strict=True):
        assert line.startswith(f"{reader}: {inputs} inputs") and "refused" in line and "read" in line


@pytest.mark.parametrize(
    ("reader", "number"),
    [("onnx", n) for n in (74, 95, 146, 159, 2255, 5015, 10676, 15499, 17476)]
    + [("feeds", 150), ("feeds", 278), ("history", 319)],
)
def test_what_was_found_stays_found(reader: str, number: int, tmp_path: Path) -> None:
    target = target_of(reader)
    path = target.make(number, tmp_path)
    try:
        target.read(path)
    except OnnxmemError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("reader", "said"), [("problem", "bug: IndexError"), ("graph", "files: 'opened"), ("kept", "bug: Wr")]
)
def test_a_planted_defect_is_found(reader: str, said: str) -> None:
    done = campaign(reader, "--planted", "--inputs", "200")
    assert done.returncode == 0 and said in done.stdout, done.stdout


def test_a_campaign_that_does_not_find_what_is_planted_says_so() -> None:
    done = campaign("kept", "--planted", "--inputs", "1")
    assert done.returncode == 1 and "1 inputs" in done.stdout


def test_all_readers_are_tried_in_short() -> None:
    tried = {reader for readers, _ in SHORT for reader in readers.split()}
    # Pages are drawn for seconds each, by what is tried in `result`; weights need PyTorch.
    assert tried == set(READERS) - {"page", "weights"} and set(PLANTED) <= set(READERS)
