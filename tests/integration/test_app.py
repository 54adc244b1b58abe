"""The dashboard without a browser: verbs as jobs, what ends them, and the page as its server draws it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest

from onnxmem import zoo
from onnxmem.app import settings
from onnxmem.app.jobs import Job
from onnxmem.app.workspace import Workspace, close_all

WAIT = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("app") / "squeeze.onnx"
    onnx.save(zoo.build("squeezenet"), path)
    return path


def gone(pid: int | None) -> bool:
    return pid is None or not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def started(job: Job) -> list[psutil.Process]:
    """The job's process and, once it has one, that of the measurement."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if job.pid is not None and (inside := psutil.Process(job.pid).children(recursive=True)):
            return [psutil.Process(job.pid), *inside]
        time.sleep(0.05)
    raise AssertionError("it never began")


def test_a_job_returns_what_the_verb_prints(model: Path) -> None:
    job = Job(("estimate", str(model)))
    assert job.wait(WAIT) and job.document is not None
    assert job.document["schema"] == "onnxmem.estimate/1" and job.error == ""
    assert job.command == f"onnxmem estimate {model}"


def test_a_job_that_fails_says_why_and_what_to_do(model: Path) -> None:
    job = Job(("estimate", str(model), "--dim", "nonsense=3"))
    assert job.wait(WAIT) and job.document is None
    assert "nonsense" in job.error and job.hint


def test_an_answer_may_be_no(model: Path) -> None:
    """A budget that is not met is a result, with a sentence beside it."""
    job = Job(("check", str(model), "--budget", "1MiB"))
    assert job.wait(WAIT) and job.document is not None
    assert job.document["fits"] is False and job.error


def test_cancelling_ends_all_that_a_job_has_begun(model: Path) -> None:
    job = Job(("measure", str(model), "--runs", "100000"))
    processes = started(job)
    while not job.stages:
        assert not job.wait(0.1)
    job.cancel()
    assert job.wait(WAIT) and job.cancelled and job.error == "cancelled"
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def test_a_workspace_takes_its_jobs_and_files_along(model: Path) -> None:
    space = Workspace()
    folder = space.folder
    (folder / "upload.onnx").write_bytes(b"x")
    assert folder.stat().st_mode & 0o777 == 0o700
    job = space.ask("measure", str(model), "--runs", "100000")
    processes = started(job)
    space.close()
    assert job.ended and not folder.exists()
    psutil.wait_procs(processes, timeout=30)
    assert all(gone(each.pid) for each in processes)


def test_the_same_question_is_asked_once_and_another_file_is_another(model: Path, tmp_path: Path) -> None:
    space, path = Workspace(), tmp_path / "m.onnx"
    path.write_bytes(model.read_bytes())
    try:
        first = space.ask("estimate", str(path))
        assert space.ask("estimate", str(path)) is first and first.wait(WAIT)
        path.write_bytes(b"no model any more")
        second = space.ask("estimate", str(path))
        assert second is not first and second.wait(WAIT) and "not an ONNX model" in second.error
        # A size that was only passed by: nobody waits for it.
        passed = space.ask("estimate", str(model), "--dim", "batch=2")
        last = space.ask("estimate", str(model), "--dim", "batch=3")
        assert passed.wait(WAIT) and passed.cancelled
        assert last.wait(WAIT) and last.document is not None
    finally:
        space.close()


@pytest.fixture
def page(model: Path, main_module: None) -> Iterator[Any]:
    testing = pytest.importorskip("streamlit.testing.v1", reason="the package streamlit is not installed")
    before = settings.current()
    settings.configure(settings.Settings(models=(model,)))
    yield testing.AppTest.from_file(str(Path(settings.__file__).with_name("page.py")), default_timeout=WAIT)
    settings.configure(before)
    close_all()


def until(page: Any, text: str) -> str:
    """Draw the page until it says this: what it says then."""
    end = time.monotonic() + WAIT
    while True:
        page.run()
        assert not page.exception, page.exception
        said = " ".join(each.value for each in (*page.header, *page.markdown, *page.error, *page.info))
        if text in said:
            return said
        assert time.monotonic() < end, said
        time.sleep(0.2)


def test_the_page_estimates_and_compares_with_a_budget(page: Any) -> None:
    said = until(page, "The process will peak at")
    assert "Do this next" in said
    while page.metric[0].value == "…":  # it may have been drawn before the estimate was there
        until(page, "The process will peak at")
    peak, distance, saves, latency = page.metric[:4]
    assert peak.value.endswith("MiB") and distance.value == "—" and latency.value == "—"
    assert saves.label == "A plan saves"
    page.text_input(key="budget").set_value("1MiB").run()
    assert page.metric[1].value.endswith("above") and page.code[0].value.startswith("onnxmem check")
    page.text_input(key="budget").set_value("1 horse").run()
    assert "is not a size" in page.error[0].value


def test_the_page_survives_a_file_that_vanishes(page: Any, model: Path) -> None:
    until(page, "The process will peak at")
    moved = model.rename(model.with_suffix(".gone"))
    try:
        page.run()
        until(page, "there is no such file")
    finally:
        moved.rename(model)


_RACE = """
import sys, threading, time
from onnxmem.app.show import drawn, load_pandas
from onnxmem.report.sections import section
from tests.unit.report.samples import plan

import altair
chart = next(chart for chart in section(plan()).charts)
other = threading.Thread(target=load_pandas)
other.start()
while "pandas" not in sys.modules:
    time.sleep(0.001)
print(sorted(drawn(chart))[0])
other.join()
"""


def test_a_chart_waits_for_what_another_tab_is_loading() -> None:
    told = subprocess.run([sys.executable, "-c", _RACE], check=False, capture_output=True, text=True, timeout=WAIT)
    assert (told.returncode, told.stderr) == (0, ""), told.stderr[-500:]


@pytest.mark.parametrize(
    ("numbers", "code", "said"),
    [
        ([signal.SIGINT, signal.SIGINT], 130, ["onnxmem: interrupted"]),
        ([signal.SIGALRM], 3, ["onnxmem: not done within 1e+06 seconds", "hint: --time-limit SECONDS allows more"]),
    ],
    ids=["Ctrl-C twice", "time limit"],
)
def test_however_the_dashboard_ends_it_says_so_in_a_sentence(numbers: list[int], code: int, said: list[str]) -> None:
    pytest.importorskip("streamlit", reason="the package streamlit is not installed")
    command = [sys.executable, "-m", "onnxmem", "app", "--no-browser", "--port", "0", "--time-limit", "1000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert "the dashboard is at" in server.stderr.readline() and "Ctrl-C" in server.stderr.readline()
        for number in numbers:
            server.send_signal(number)
            time.sleep(0.05)
        assert server.stderr.read().splitlines() == said
    assert server.returncode == code
