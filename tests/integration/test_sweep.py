"""`onnxmem sweep` as it is typed: real processes, kills and Ctrl-C, failures as rows, and the history it leaves."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from onnxmem.sweeping.cell import Stage
from onnxmem.sweeping.cells import make_cells
from onnxmem.sweeping.embedded import Embedded
from onnxmem.sweeping.engine import Job
from onnxmem.sweeping.read import Filter, read_rows, read_status
from onnxmem.sweeping.sweep import make_spec, sweep

Run = Callable[..., tuple[int, str, str]]
FAST = ("--runs", "1", "--threads", "1")


@pytest.fixture
def models(tmp_path: Path, model: Path, chain: Path) -> Path:
    """Two small ones."""
    shutil.copy(model, tmp_path / "small.onnx")
    shutil.copy(chain, tmp_path / "chain.onnx")
    return tmp_path


def rows(path: Path) -> list[dict[str, Any]]:
    return list(read_rows(path, Filter()))


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def test_a_sweep_and_all_that_reads_it(run: Run, models: Path) -> None:
    command = ("sweep", "small.onnx", "chain.onnx", "--dim", "batch=1,4", "--verbs", "plan,measure", *FAST)
    code, out, _ = run(*command, "--store", "s.sqlite", "--dry-run")
    assert code == 0 and "8 cells to work out" in out and not (models / "s.sqlite").exists()
    code, out, err = run(*command, "--store", "s.sqlite", "--json")
    found = json.loads(out)
    assert code == 0 and found["status"]["finished"] == 8 and found["schema"] == "onnxmem.sweep/1", err
    (plans, peaks) = found["maps"]
    assert plans["sizes"] == ["batch=1", "batch=4"] and [row["model"] for row in peaks["rows"]] == [
        "small.onnx",
        "chain.onnx",
    ]
    # Again: nothing is worked out, and the figures are those of the first time.
    before = rows(models / "s.sqlite")
    code, out, _ = run(*command, "--store", "s.sqlite", "--dry-run")
    assert code == 0 and "All cells are finished: nothing to do." in out
    code, out, _ = run(*command, "--store", "s.sqlite")
    assert code == 0 and "All 8 cells are finished." in out and rows(models / "s.sqlite") == before
    # It is a history: what a check compares with is what the sweep measured.
    check = ("check", "small.onnx", "--dim", "batch=4", "--baseline", "history", "--history", "s.sqlite")
    code, out, err = run(*check, "--tolerance", "50%", *FAST, "--json")
    (checked,) = json.loads(out)["checks"]
    (measured,) = [r for r in before if (r["model"], r["verb"], r["size"]) == ("small.onnx", "measure", "batch=4")]
    assert code == 0 and checked["baseline"]["bytes"] == measured["bytes"], err
    assert "small.onnx, stock, x 4×64" in run("history", "s.sqlite")[1]
    code, out, _ = run("sweep", "status", "s.sqlite")
    assert code == 0 and "finished" in out and "Slowest" in out
    assert run("sweep", "show", "s.sqlite", "--model", "small.onnx", "--html", "page.html")[0] == 0
    assert run("sweep", "export", "s.sqlite", "-o", "cells.csv")[0] == 0
    assert len(list(csv.DictReader((models / "cells.csv").open()))) == 8
    assert "<svg" in (models / "page.html").read_text()


def test_mistakes_are_sentences(run: Run, models: Path) -> None:
    (models / "spec.toml").write_text('[[models]]\npath = "*.onnx"\n')
    (models / "store.sqlite").write_text("no")
    for arguments, said in (
        (("spec.toml", "--dim", "batch=1"), "--dim is for models that are typed"),
        (("small.onnx", "--dim", "batch=1,x"), "does not say which numbers a dimension takes"),
        (("small.onnx", "--verbs", "guess"), "there is no verb 'guess'"),
        (("small.onnx", "--modes", "fast"), "there is no mode 'fast'"),
        (("gone.onnx",), "there is no such file"),
        (("spec.toml", "--store", "store.sqlite"), "it is not an SQLite file"),
        (("spec.toml", "--store", "no/where.sqlite"), "there is no folder 'no'"),
        (("status", "gone.sqlite"), "there is no such file"),
        (("export", "store.sqlite", "-o", "cells.xls"), "there is no such format"),
        (("show", "store.sqlite"), "it is not an SQLite file"),
    ):
        code, out, err = run("sweep", *arguments)
        assert code == 2 and said in err and not out, (arguments, err)
    assert not (models / "sweep.sqlite").exists()


def test_failures_are_rows_with_reasons(run: Run, models: Path, unimplemented: Path) -> None:
    shutil.copy(unimplemented, models / "odd.onnx")
    (models / "spec.toml").write_text(
        'runs = 1\nthreads = 1\n[[models]]\npath = "odd.onnx"\n'
        '[[models]]\npath = "chain.onnx"\nmemory_limit = "40MiB"\n[[models]]\npath = "small.onnx"\ntime_limit = 0.05\n'
    )
    code, out, _ = run("sweep", "spec.toml")
    found = {row["model"]: (row["state"], row["reason"]) for row in rows(models / "sweep.sqlite")}
    assert found["odd.onnx"] == ("failed", "failed") and found["small.onnx"] == ("failed", "time limit")
    assert found["chain.onnx"] == ("failed", "out of memory")
    assert code == 3 and "3 failed" in out and "Telepathy" in out
    # They stay so; and once there is time, a second try is another result of the same cell.
    assert run("sweep", "spec.toml")[0] == 3 and {row["tries"] for row in rows(models / "sweep.sqlite")} == {1}
    (models / "spec.toml").write_text('runs = 1\nthreads = 1\n[[models]]\npath = "small.onnx"\n')
    assert run("sweep", "spec.toml", "--retry-failed")[0] == 0
    (only,) = rows(models / "sweep.sqlite")
    assert only["state"] == "finished" and only["tries"] == 2 and only["reason"] == ""


@pytest.mark.parametrize("retries", [0, 1])
def test_a_lost_worker_is_replaced_and_its_cell_tried_again(models: Path, retries: int) -> None:
    spec = make_spec([str(models / "small.onnx")], None, {"verbs": ("plan",), "dims": {"batch": (1, 2, 3)}})
    jobs = [Job(id=number, cell=cell) for number, cell in enumerate(make_cells(spec).cells)]
    before = {child.pid for child in psutil.Process().children()}

    def on_start(job: Job) -> None:
        if (job.id, job.tries) == (1, 1):
            (worker,) = [child for child in psutil.Process().children() if child.pid not in before]
            worker.kill()

    with Embedded(retries=retries) as engine:  # one worker, as for measurements
        found = {job.id: outcome for job, outcome in engine.run(jobs, Stage(True), on_start)}
    assert [found[k].state for k in (0, 2)] == ["finished"] * 2
    expected = ("finished", "", 2) if retries else ("failed", "lost", 1)
    assert (found[1].state, found[1].reason, found[1].tries) == expected
    assert {child.pid for child in psutil.Process().children()} <= before


def test_a_killed_sweep_goes_on_where_it_was(models: Path) -> None:
    given: dict[str, Any] = {"verbs": ("plan", "measure"), "dims": {"batch": (1, 2)}, "runs": 1, "threads": 1}
    store = models / "s.sqlite"
    names = [str(models / "small.onnx"), str(models / "chain.onnx")]
    program = f"from onnxmem import sweep; sweep({names!r}, store={str(store)!r}, **{given!r})"
    driver = subprocess.Popen([sys.executable, "-c", program])
    while driver.poll() is None and not (store.exists() and store.stat().st_size and _finished(store) >= 5):
        time.sleep(0.02)
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    _, alive = psutil.wait_procs(children, timeout=300)
    assert not alive, "children die with their parent"
    done = {row["size"] + row["model"] + row["verb"]: row["date"] for row in rows(store) if row["state"] == "finished"}
    assert len(done) >= 5
    found = sweep(names, store=store, **given)
    assert found.ok and found.status.cells == 8 and integrity(store) == "ok"
    after = {row["size"] + row["model"] + row["verb"]: row["date"] for row in rows(store)}
    assert len(after) == 8 and done.items() <= after.items(), "what was finished is not repeated"
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT document) FROM results").fetchone() == (4, 4)


def _finished(store: Path) -> int:
    try:
        return read_status(store).status.finished
    except Exception:
        return 0  # it is being made


def test_ctrl_c_keeps_what_is_there(models: Path) -> None:
    command = [sys.executable, "-m", "onnxmem", "sweep", "chain.onnx", "--dim", "batch=1,2,3,4,5,6", *FAST]
    child = subprocess.Popen(command, cwd=models, stderr=subprocess.PIPE, text=True)
    store = models / "sweep.sqlite"
    while not (store.exists() and store.stat().st_size and _finished(store) >= 1):
        assert child.poll() is None
        time.sleep(0.02)
    workers = psutil.Process(child.pid).children(recursive=True)
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130 and "of 6 cells are done and kept in 'sweep.sqlite'" in err and "interrupted" in err
    assert "the same command goes on from here" in err and not psutil.wait_procs(workers, timeout=300)[1]
    assert integrity(store) == "ok"


def test_nothing_is_left_of_cells_that_were_not_over(models: Path) -> None:
    """Their workers are killed while they have temporary folders of their own."""
    temporary = models / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "onnxmem", "sweep", "chain.onnx", "--runs", "1000000", "--threads", "1"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    child = subprocess.Popen(command, cwd=models, env=environment, stderr=subprocess.PIPE, text=True)
    # The measured process is there, and so is the folder it writes into.
    while len(psutil.Process(child.pid).children(recursive=True)) < 2 or not list(temporary.rglob("onnxmem.tmp-*")):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130, err
    # ONNX Runtime keeps a file of its own in the temporary directory.
    assert set(os.listdir(temporary)) <= {".ses"}


def test_measurements_at_a_time_have_their_own_cores(models: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        pytest.skip("there is one core")
    given: dict[str, Any] = {"dims": {"batch": (1, 2)}, "runs": 1, "store": models / "s.sqlite"}
    found = sweep([models / "small.onnx"], parallel=2, **given)
    assert found.ok and [text.rpartition(", ")[2] for text in found.status.processors] == [
        f"{cores // 2} core{'s' * (cores // 2 != 1)}"
    ]
    # With all cores for each it is another question.
    assert sweep([models / "small.onnx"], **given).status.cells == 2 and len(rows(models / "s.sqlite")) == 2
    with closing(sqlite3.connect(models / "s.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM cells").fetchone() == (4,)


def test_the_other_verbs(models: Path) -> None:
    given: dict[str, Any] = {"runs": 1, "threads": 1, "store": models / "s.sqlite"}
    found = sweep([models / "small.onnx"], verbs=("release", "share"), workers=(2,), **given)
    assert found.ok, found.failures
    assert {(row["verb"], row["mode"]) for row in rows(models / "s.sqlite")} == {
        ("release", "stock"),
        ("share", "stock"),
    }
    assert sweep([models / "small.onnx"], verbs=("compare",), modes=("stock", "tuned"), **given).ok
    (compared,) = rows(models / "s.sqlite")
    assert compared["mode"] == "stock,tuned" and compared["bytes"] > 0
