"""The campaign over other places in short: its rows, those that need no place of their own, and what is planted."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from campaigns.everywhere import ROWS, attempt
from campaigns.places import CannotBeHad, Place, Refused
from scripts import dist

ROOT = Path(__file__).parents[2]


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "campaigns.everywhere", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_planned_runs_are_stock_ones_with_few_threads_and_many() -> None:
    done = campaign("threads 1", "threads 64")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count("the same bit for bit") == 2 and "2 rows run, 0 failed, 0 not run" in done.stdout


def test_a_native_module_that_lacks_a_symbol_is_found() -> None:
    done = campaign("here", "--planted")
    assert done.returncode == 0 and "undefined symbol" in done.stdout, done.stdout
    assert "1 rows run, 1 failed, 0 not run" in done.stdout


def test_rows_are_chosen_by_how_their_names_begin() -> None:
    listed = campaign("--list", "python", "onnxruntime 1.24").stdout.splitlines()
    assert [line[:20].strip() for line in listed] == [*(f"python 3.{n}" for n in range(11, 15)), "onnxruntime 1.24"]
    assert len(campaign("--list").stdout.splitlines()) == len(ROWS) - 1  # `here` is no other place
    assert "there is no row 'python 2'" in campaign("python 2").stderr


def test_a_row_that_cannot_be_made_is_no_failure_and_a_wheel_that_cannot_be_installed_is(tmp_path: Path) -> None:
    def nowhere(_: Path) -> Place:
        raise CannotBeHad("there is no Python 9 here")

    def refused(_: Path) -> Place:
        raise Refused("cannot be installed: no such release")

    row = ROWS["python 3.11"]
    assert attempt(row._replace(make=nowhere), tmp_path) == ("–", "not run: there is no Python 9 here", None)
    assert attempt(row._replace(make=refused), tmp_path).ok is False


def test_tests_of_rows_are_there() -> None:
    tests = {test for row in ROWS.values() if row.module[0] == "pytest" for test in row.tests}
    for test in tests:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text() if name else (ROOT / path).exists()


def test_what_is_no_part_of_the_project_does_not_get_into_an_sdist(tmp_path: Path) -> None:
    sources = [path for path in (ROOT / "src").rglob("*") if path.is_file()][:3]
    path = tmp_path / "onnxmem-1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, source in enumerate(sources):
            archive.add(source, f"onnxmem-1/src/__pycache__/{number}.pyc")
    with pytest.raises(dist.Refused, match=r"has src/__pycache__/0\.pyc in it, and 2 more"):
        dist.check_sdist(path)


def test_an_interpreter_is_the_one_that_was_asked_for() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = dist.interpreter(version)
    assert found is None or dist.version_of([os.fspath(found)]).startswith(f"{version}.")
    assert dist.interpreter("3.99") is None
