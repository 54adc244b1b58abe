"""However a process ends, its children end with it, and nothing is left in the temporary directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxmem import zoo
from onnxmem.measurement import probes
from onnxmem.process.child import has_ended

ROOT = Path(__file__).parents[2]
STOP = """
import os, signal, sys, time, onnxmem
def stop(progress):
    if progress.pid and progress.stage.startswith("first run"):
        os.kill(progress.pid, signal.SIGSTOP)
        print(progress.pid, flush=True)
        time.sleep(60)
"""
# What each prints is the process id of a child that is busy, or has been stopped in the middle of its work.
KINDS = {
    "measure": STOP + "onnxmem.measure(sys.argv[1], on_progress=stop)",
    "release": STOP + "onnxmem.release_ladder(sys.argv[1], on_progress=stop)",
    "share": """
import sys, time, onnxmem
def hold(pids):
    print(*pids, flush=True)
    time.sleep(60)
onnxmem.share(sys.argv[1], (2,), ("stock",), cold=False, on_hold=hold)
""",
    "isolated": """
import sys, threading, time, onnxmem
def make():
    global session
    session = onnxmem.IsolatedSession(sys.argv[1])
thread = threading.Thread(target=make)  # it ends before the session does
thread.start()
thread.join()
print(session.pid, flush=True)
time.sleep(60)
""",
    "run_child": """
import sys, tests.integration.sleeper as sleeper
from onnxmem.process.child import run_child
run_child("tests.integration.sleeper", sleeper.Nap(60.0, grandchild=True), on_tick=lambda: None)
""",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=128), path)
    return path


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    yield folder


def start(code: str, model: Path, temporary: Path) -> tuple[subprocess.Popen[str], list[int]]:
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code, str(model)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert pids and all(probes.sample(pid) for pid in pids)
    return parent, pids


def left(temporary: Path) -> list[Path]:
    """What is there of ours; ONNX Runtime leaves a file of its own."""
    return list(temporary.glob("onnxmem*"))


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(probes.sample(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(probes.sample(pid) for pid in pids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["SIGKILL", "SIGINT"])
def test_children_end_with_their_parent(kind: str, end: str, model: Path, temporary: Path) -> None:
    parent, pids = start(KINDS[kind], model, temporary)
    with parent:
        parent.send_signal(getattr(signal, end))
        try:
            assert parent.wait(60) != 0
        except subprocess.TimeoutExpired:
            parent.send_signal(signal.SIGABRT)  # where is it?
            raise
    assert gone(pids)
    if end == "SIGINT":
        assert not left(temporary)


@pytest.mark.parametrize(("end", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGKILL", -9)])
def test_what_the_command_line_leaves(end: str, code: int, model: Path, temporary: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "onnxmem", "measure", str(model), "--runs", "1000000"]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    with parent:
        assert parent.stderr is not None
        for line in parent.stderr:
            if "steady runs" in line:
                break
        assert left(temporary)
        parent.send_signal(getattr(signal, end))
        assert parent.wait(30) == code
    if end == "SIGKILL":
        assert left(temporary)
        subprocess.run([*command[:-1], "1"], env=environment, cwd=ROOT, check=True, capture_output=True)
    assert not left(temporary)


def test_a_grandchild_ends_with_a_child_that_ended_by_itself(temporary: Path) -> None:
    code = (
        "import sys, tests.integration.sleeper as sleeper\n"
        "from onnxmem.process.child import run_child\n"
        "run_child('tests.integration.sleeper', sleeper.Nap(1.0, grandchild=True))"
    )
    parent, pids = start(code, Path(), temporary)
    with parent:
        assert parent.wait(30) == 0
    assert gone(pids)


def test_a_child_that_another_thread_has_just_waited_for_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    look = os.waitid

    def late(*arguments: int) -> object:
        # The other thread has reaped it, and will say so in the next moment.
        os.waitpid(child.pid, 0)
        monkeypatch.setattr(os, "waitid", look)
        return look(*arguments)

    monkeypatch.setattr(os, "waitid", late)
    assert has_ended(child, 60)
    child.returncode = 3


def test_a_full_temporary_directory_is_a_sentence(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((4000, 128), np.float32))
    code = (
        "import onnxmem, resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "onnxmem.measure(sys.argv[1], inputs=sys.argv[2])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(model), str(tmp_path / "x.npz")], capture_output=True, text=True, check=False
    )
    assert "UsageError: the temporary directory" in done.stderr
