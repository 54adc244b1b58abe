"""The campaign that puts a service under load, in short: it runs, finds what is planted, and finds nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "campaigns.load", "gunicorn", "--workers", "2", "--minutes", "0.08", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=1800)


def test_every_answer_is_stocks() -> None:
    done = campaign()
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "answers compared" in done.stdout and "found" not in done.stdout


def test_planted_defects_are_found() -> None:
    done = campaign("--planted")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "wrong: an answer that is not stock's" in done.stdout and "growth: by" in done.stdout
