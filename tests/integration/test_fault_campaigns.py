"""The campaigns of faults and plans in short: nothing is found but what is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.build import CannotBuild, build_library

ROOT = Path(__file__).parents[2]


def campaign(name: str, *words: str) -> str:
    """What it prints; its exit code says whether it found what it should, and nothing else."""
    command = [sys.executable, "-m", f"campaigns.{name}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kills_and_full_disks_leave_the_old_file_or_the_new_one() -> None:
    found = campaign("faults", "kills", "disks", "--times", "5", "--only", "convert, external")
    assert "kills: 5 faults" in found and "disks: 5 faults" in found


def test_a_file_that_is_neither_is_found() -> None:
    found = campaign("faults", "kills", "--times", "5", "--only", "convert, one file", "--planted")
    assert "convert, one file, turn" in found


@pytest.mark.parametrize("planted", [False, True])
def test_no_memory_is_an_exception_or_the_right_answer(planted: bool) -> None:
    try:
        build_library("failing_calls")
    except CannotBuild as error:
        pytest.skip(str(error))
    found = campaign("faults", "memory", "--times", *(["2", "--planted"] if planted else ["6"]))
    assert ("wrong outputs" in found) == planted


def test_a_session_whose_process_stops_can_be_closed() -> None:
    assert "interference: 1 faults" in campaign("faults", "interference", "--only", "isolated")


def test_plans_give_the_same_bits() -> None:
    assert "graphs: 12 graphs" in campaign("plans", "graphs", "--count", "12", "--first", "900000")


def test_a_wrong_rule_is_found() -> None:
    assert "different" in campaign("plans", "--planted", "--first", "50", "--count", "6")


def test_packages_give_the_same_bits() -> None:
    assert "packages: 5 the same" in campaign("plans", "packages", "--count", "5", "--first", "900000")


def test_a_wrong_rule_is_found_in_a_package() -> None:
    assert "Transpose" in campaign("plans", "packages", "--planted", "--count", "1", "--first", "3")


def test_wrong_stripes_and_a_rule_that_the_kernel_does_not_keep_to_are_found() -> None:
    found = campaign("plans", "rules", "tiles", "--planted", "--count", "5")
    assert "no, say: Hardmax" in found and "different" in found
