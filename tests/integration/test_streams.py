"""Streams that are closed, or whose disk is full: the work is done, or it is said why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import complaints


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in which `onnxmem` is this one."""
    (folder / "p.csv").write_text("id,lower,upper,size\na,0,2,10\n")
    program = f'onnxmem() {{ "{sys.executable}" -m onnxmem "$@"; }}; {line}'
    return subprocess.run(["sh", "-c", program], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_reason_to_fail(tmp_path: Path, closed: str) -> None:
    done = shell(f"onnxmem plan p.csv -o r.md {closed}", tmp_path)
    assert done.returncode == 0 and "unexpected" not in done.stdout
    assert "10 B" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize("options", ["plan p.csv --json", "--help"])
def test_a_full_disk_is_said_once(tmp_path: Path, options: str) -> None:
    done = shell(f"onnxmem {options} >/dev/full", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaints(done.stderr) == [
        "onnxmem: cannot write the output: the disk is full",
        "hint: write it where there is room",
    ]


def test_what_cannot_be_said_changes_no_exit_code(tmp_path: Path) -> None:
    assert shell("onnxmem plan nowhere.csv 2>/dev/full", tmp_path).returncode == 2
