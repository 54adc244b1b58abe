"""How the child of an isolated session ends: killed, closed, with its parent, or left alone in a fork."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxmem import IsolatedSession, SessionClosed, SessionError, SessionLost
from onnxmem.errors import ModelError, UsageError
from onnxmem.session.isolated.channel import Load, Loaded
from onnxmem.session.isolated.process import Child
from tests.helpers import alive, python, wait_until_gone

X = np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32)


def test_a_killed_child_loses_its_calls_and_the_next_one_starts_another(session: IsolatedSession) -> None:
    expected = session.run(None, {"x": X})[0]
    first = session.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with pytest.raises(SessionLost, match="killed") as caught:
        session.run(None, {"x": X})
    assert isinstance(caught.value, RuntimeError) and "new process" in caught.value.hint
    assert np.array_equal(session.run(None, {"x": X})[0], expected)
    assert session.pid not in (None, first) and not alive(first)


def test_another_child_is_started_wherever_the_process_is(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    with IsolatedSession(model.name) as session:
        monkeypatch.chdir("/")
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(SessionLost):
            session.run(None, {"x": X})
        assert session.run(None, {"x": X})[0].shape == (3, 64)


def test_a_child_that_stops_answering_is_ended_when_its_time_is_over(session: IsolatedSession) -> None:
    first = session.pid
    assert first is not None and session._child is not None
    os.kill(first, signal.SIGSTOP)
    session._child._time_limit = 1.0  # only now: a busy machine may take longer to load a model
    with pytest.raises(SessionLost, match="did not answer within 1 seconds and was ended"):
        session.run(None, {"x": X})
    assert not alive(first)
    assert session.run(None, {"x": X})[0].shape == (3, 64)


def test_a_child_killed_in_the_middle_of_calls_fails_all_of_them(session: IsolatedSession) -> None:
    raised: list[BaseException] = []
    large = np.zeros((50000, 64), np.float32)
    calls = [0, 0, 0]

    def work(number: int) -> None:
        try:
            while True:
                calls[number] += 1
                session.run(None, {"x": large})
        except SessionLost as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    while min(calls) < 2:
        time.sleep(0.01)
    pid = session.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    before: list[int] = []
    while calls != before:  # until every thread is waiting
        before = list(calls)
        time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join(10)
    assert len(raised) == 3
    assert session.run(None, {"x": X})[0].shape == (3, 64)


def test_a_child_killed_while_loading_is_one_clear_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Child.load

    def killed(self: Child, request: Load) -> Loaded:
        self.process.kill()
        return load(self, request)

    monkeypatch.setattr(Child, "load", killed)
    with pytest.raises(SessionLost, match="while loading"):
        IsolatedSession(model)


def test_close_ends_the_process_and_can_be_repeated(model: Path) -> None:
    session = IsolatedSession(model)
    pid = session.pid
    assert alive(pid)
    session.close()
    assert not alive(pid) and session.pid is None and session.closed
    session.close()
    with pytest.raises(SessionClosed, match="closed"):
        session.run(None, {"x": X})


@pytest.mark.parametrize("when", ["it starts", "it has started", "it is looked for"])
def test_a_handler_of_signals_may_close_what_it_interrupted(
    session: IsolatedSession, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    faulthandler.dump_traceback_later(120, exit=True)  # pytest would wait for ever
    started: list[int] = []

    def close(*_: Any) -> None:
        session.close()

    def load(self: Child, request: Load) -> Loaded:
        started.append(self.process.pid)
        if when == "it starts":
            signal.raise_signal(signal.SIGUSR1)
        loaded = original(self, request)
        if when == "it has started":
            signal.raise_signal(signal.SIGUSR1)
        return loaded

    original, before = Child.load, signal.signal(signal.SIGUSR1, close)
    monkeypatch.setattr(Child, "load", load)
    try:
        if when == "it is looked for":
            with session._lock:
                signal.raise_signal(signal.SIGUSR1)
        else:
            assert session.pid is not None
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises(SessionLost):
                session.run(None, {"x": X})
        with pytest.raises(SessionClosed):
            session.run(None, {"x": X})
        assert session.closed and session.pid is None and not any(map(alive, started))
    finally:
        signal.signal(signal.SIGUSR1, before)
        faulthandler.cancel_dump_traceback_later()


def test_a_handler_of_signals_may_run_it_while_another_child_is_started(
    session: IsolatedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    outputs: list[np.ndarray] = []

    def run(*_: Any) -> None:
        outputs.extend(session.run(None, {"x": X}))

    def load(self: Child, request: Load) -> Loaded:
        started.append(self.process.pid)
        if len(started) == 1:
            signal.raise_signal(signal.SIGUSR1)
        return original(self, request)

    original, before = Child.load, signal.signal(signal.SIGUSR1, run)
    monkeypatch.setattr(Child, "load", load)
    try:
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(SessionLost):
            session.run(None, {"x": X})
        outputs.extend(session.run(None, {"x": X}))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(outputs) == 2 and np.array_equal(outputs[0], outputs[1])
    assert [pid for pid in started if alive(pid)] == [session.pid]
    session.close()
    assert not any(map(alive, started))


def test_a_fork_closes_it_though_another_thread_of_the_parent_was_at_it(session: IsolatedSession) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with session._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        session.close()
        os._exit(0)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert session.run(None, {"x": X})[0].shape == (3, 64)


def test_close_wakes_calls_of_other_threads(session: IsolatedSession) -> None:
    pid = session.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            session.run(None, {"x": X})
        except SessionClosed as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    threading.Timer(0.2, os.kill, (pid, signal.SIGCONT)).start()
    session.close()
    thread.join(10)
    assert len(raised) == 1 and not alive(pid)


def test_what_cannot_be_loaded_leaves_no_process(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(UsageError, match="no such file"):
        IsolatedSession(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="Protobuf"):
        IsolatedSession(broken)
    with pytest.raises(UsageError, match="no session option 'foo'") as caught:
        IsolatedSession(model, {"foo": 1})
    assert "intra_op_num_threads" in caught.value.hint
    with pytest.raises(UsageError, match="graph_optimization_level"):
        IsolatedSession(model, {"graph_optimization_level": "ORT_FASTER"})
    with pytest.raises(UsageError, match="mapping"):
        IsolatedSession(model, ort.SessionOptions())
    with pytest.raises(UsageError, match="path"):
        IsolatedSession(model.read_bytes())  # type: ignore[arg-type]
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert not [pid for pid in children if b"isolated_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_fork_cannot_use_it_and_does_not_end_it(session: IsolatedSession) -> None:
    child = os.fork()
    if child == 0:
        try:
            session.run(None, {"x": X})
        except SessionError:
            session.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert session.run(None, {"x": X})[0].shape == (3, 64)


def test_outputs_stay_as_they_are_in_a_fork(session: IsolatedSession) -> None:
    x = np.resize(X, (2000, 64))
    kept = session.run(None, {"x": x})
    before = kept[0].copy()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(told, 1)
        os._exit(0 if np.array_equal(kept[0], before) else 1)
    del kept
    for factor in (2, 3):
        assert not np.array_equal(session.run(None, {"x": x * np.float32(factor)})[0], before)
    os.write(tell, b"1")
    for end in (told, tell):
        os.close(end)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "fork",
    ["-1", "os.fork()"],
    ids=["alone", "with a fork that holds its descriptors"],
)
def test_no_orphan_and_no_file_when_the_parent_is_killed(model: Path, fork: str) -> None:
    code = f"""
        session = onnxmem.IsolatedSession(model)
        kept = session.run(None, {{"x": x}})
        fork = {fork}
        if fork != 0:
            print(session.pid, fork, flush=True)
        time.sleep(60)
        os._exit(0)
    """
    with python(code, model) as parent:
        assert parent.stdout is not None
        pid, holder = map(int, parent.stdout.readline().split())
        shared = _shared_files(parent.pid) | _shared_files(pid)
        parent.kill()
        assert wait_until_gone(pid, 5)
        if holder > 0:
            os.kill(holder, signal.SIGKILL)  # which has outlived it
        parent.stdout.close()
    # Whatever they share has no name that could be left behind.
    assert shared
    assert all(name.endswith("(deleted)") for name in shared), shared


def _shared_files(pid: int) -> set[str]:
    """The files in memory that a process has open or mapped."""
    opened = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closing what it handed over
            opened.add(str(path.readlink()))
    mapped = {line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    return {name for name in opened | mapped if name.startswith(("/memfd:", "/dev/shm/"))}


@pytest.mark.parametrize(
    ("handled", "fate"),
    [("SIGPIPE, signal.SIG_DFL", "SIGKILL"), ("SIGCHLD, signal.SIG_IGN", "ended")],
    ids=["SIGPIPE", "SIGCHLD"],
)
def test_a_killed_child_is_one_clear_error_however_a_program_has_its_signals(
    model: Path, handled: str, fate: str
) -> None:
    code = f"""
        import signal
        signal.signal(signal.{handled})
        session = onnxmem.IsolatedSession(model)
        session.run(None, {{"x": x}})
        def alive(pid):
            try: return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] != "Z"
            except OSError: return False
        pid = session.pid
        os.kill(pid, signal.SIGKILL)
        while alive(pid): time.sleep(0.01)
        try: session.run(None, {{"x": x}})
        except onnxmem.SessionLost as error: print(error)
        assert session.run(None, {{"x": x}})[0].shape == (3, 64)
        session.close()
        session.close()
    """
    with python(code, model) as parent:
        said, errors = parent.communicate(timeout=120)
    assert (parent.returncode, fate in said) == (0, True), errors


def test_an_interpreter_that_ends_without_closing_ends_clean(model: Path) -> None:
    code = """
        session = onnxmem.IsolatedSession(model)
        kept = session.run(None, {"x": x})
        print(session.pid, flush=True)
    """
    with python(code, model) as parent:
        out, errors = parent.communicate(timeout=60)
    assert (parent.returncode, errors) == (0, "")
    assert not alive(int(out))


def test_a_session_that_is_forgotten_is_ended(model: Path) -> None:
    session = IsolatedSession(model)
    pid = session.pid
    assert pid is not None
    session.run(None, {"x": X})
    del session
    assert not alive(pid)
