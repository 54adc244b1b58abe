from __future__ import annotations

import faulthandler
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxmem import IsolatedSession, SessionClosed, SessionError, SessionLost
from onnxmem.errors import ModelError, UsageError
from onnxmem.session.isolated.channel import Call, Channel, Load, Loaded
from onnxmem.session.isolated.process import Child
from onnxmem.session.isolated.wire import Parcel

X = np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32)


@pytest.fixture
def session(model: Path) -> Iterator[IsolatedSession]:
    with IsolatedSession(model, {"intra_op_num_threads": 1}) as opened:
        yield opened


def alive(pid: int | None) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def test_it_answers_as_an_ordinary_session_does(session: IsolatedSession, model: Path) -> None:
    direct = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for batch in (1, 3, 200, 2, 0):
        x = np.resize(X, (batch, 64))
        (mine,), (its) = session.run(None, {"x": x}), direct.run(["y"], {"x": x})
        assert mine.dtype == its[0].dtype and np.array_equal(mine, its[0])
    names: Any = (name for name in ["y"])
    assert np.array_equal(session.run(names, {"x": X})[0], direct.run(None, {"x": X})[0])
    for here, there in zip(session.get_inputs() + session.get_outputs(), direct.get_inputs() + direct.get_outputs()):  # noqa: B905
        assert (here.name, here.type, here.shape) == (there.name, there.type, there.shape)
    assert session.get_providers() == direct.get_providers()
    assert session.get_provider_options() == direct.get_provider_options()
    assert session.get_modelmeta().graph_name == direct.get_modelmeta().graph_name


def test_it_runs_in_any_mode(model: Path, packed: Path) -> None:
    direct = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with IsolatedSession(model, mode="planned") as session:
        assert session.loaded_mode == "planned"
        for _ in range(3):
            assert np.array_equal(session.run(None, {"x": X})[0], direct.run(None, {"x": X})[0])
    with IsolatedSession(packed, mode="prepacked") as session:
        assert session.loaded_mode == "prepacked"
    with pytest.raises(UsageError, match="no mode 'fast'"):
        IsolatedSession(model, mode="fast")


def test_the_child_has_a_group_of_its_own_but_shares_the_session(model: Path) -> None:
    # Ctrl-C is for the group in front. Processor time is shared out by session, and calls wait for it.
    with IsolatedSession(model) as session:
        assert session.pid and os.getpgid(session.pid) == session.pid
        assert os.getsid(session.pid) == os.getsid(0)


def test_strings_sequences_and_half_precision_pass(strings: Path) -> None:
    feeds = {"text": np.array([["a", "ü€𝄞"], ["", "x" * 1000]], object), "number": np.array([1, 2, 3], np.float32)}
    direct = ort.InferenceSession(str(strings), providers=["CPUExecutionProvider"])
    with IsolatedSession(strings) as session:
        same, pair, half = session.run(None, feeds)
        fixed = session.run(["same"], feeds | {"text": np.array([["u", "v"]])})[0]
    expected = direct.run(None, feeds)
    assert same.tolist() == expected[0].tolist() == feeds["text"].tolist()
    assert isinstance(pair, list) and all(map(np.array_equal, pair, expected[1]))
    assert half.dtype == np.float16 and np.array_equal(half, expected[2])
    assert fixed.tolist() == [["u", "v"]]


def test_outputs_stay_as_they_are_as_long_as_they_are_kept(session: IsolatedSession) -> None:
    x = np.resize(X, (400, 64))  # large enough to stay in shared memory
    kept = [session.run(None, {"x": x * k})[0] for k in range(20)]
    copies = [array.copy() for array in kept]
    rows = [array[1:] for array in kept]
    del kept[10:]
    for k in range(50):
        session.run(None, {"x": x + k})
    session.close()
    assert all(np.array_equal(row, copy[1:]) for row, copy in zip(rows, copies, strict=True))
    kept[0][:] = 7  # they are the caller's own: writing is allowed
    assert (kept[0] == 7).all() and np.array_equal(kept[1], copies[1])


def test_memory_is_used_again_and_not_gathered(session: IsolatedSession) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    large, small = np.zeros((20000, 64), np.float32), X
    for _ in range(20):
        session.run(None, {"x": large})
        session.run(None, {"x": small})
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:onnxmem" in line]
    assert len(mapped) <= 6
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 6
    session.close()
    assert "memfd:onnxmem" not in Path("/proc/self/maps").read_text()


def test_outputs_can_be_gathered_by_the_hundred(session: IsolatedSession) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    feeds = [np.full((400, 64), k, np.float32) for k in range(300)]
    kept = [session.run(None, {"x": x})[0] for x in feeds]
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20
    (one,) = session.run(None, {"x": feeds[1]})
    assert all(np.allclose(y, one * k, rtol=1e-4) for k, y in enumerate(kept))


def test_a_small_output_does_not_keep_a_large_slot(session: IsolatedSession) -> None:
    session.run(None, {"x": np.zeros((20000, 64), np.float32)})
    kept = session.run(None, {"x": np.zeros((400, 64), np.float32)})
    session.close()
    (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:onnxmem" in line]
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    assert end - start <= 4 * kept[0].nbytes


def test_threads_may_call_at_the_same_time(session: IsolatedSession) -> None:
    expected = session.run(None, {"x": X})[0].copy()
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(25):
            (y,) = session.run(None, {"x": X * k})
            if not np.allclose(y, expected * k, atol=1e-4):
                wrong.append(y)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def shared_bytes(pid: int | None) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssShmem")) * 1024


def test_memory_of_calls_at_the_same_time_is_given_back(
    session: IsolatedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, threads = np.resize(X, (4000, 64)), 6
    session.run(None, {"x": x})
    alone = shared_bytes(session.pid)
    together, send = threading.Barrier(threads), Channel.send

    def wait(self: Channel, *arguments: Any) -> None:
        if isinstance(arguments[0], Call):
            together.wait(60)
        send(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "send", wait)
        workers = [threading.Thread(target=session.run, args=(None, {"x": x})) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    assert shared_bytes(session.pid) > 3 * alone
    session.trim()
    end = time.monotonic() + 60
    while shared_bytes(session.pid) > alone // 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert shared_bytes(session.pid) <= alone // 2
    assert session.run(None, {"x": X})[0].shape == (3, 64)


def test_a_session_outlives_the_thread_that_made_it(model: Path) -> None:
    made: list[IsolatedSession] = []
    thread = threading.Thread(target=lambda: made.append(IsolatedSession(model)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    with made[0] as session:
        assert session.run(None, {"x": X})[0].shape == (3, 64)


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


def test_a_time_limit_is_more_than_nothing(model: Path) -> None:
    with pytest.raises(UsageError, match="more than 0 seconds"):
        IsolatedSession(model, time_limit=0)
    with IsolatedSession(model, time_limit=3600) as limited:
        assert limited.run(None, {"x": X})[0].shape == (3, 64)


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


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process can be set on Linux alone")
@pytest.mark.parametrize("room", [0, 1])
def test_inputs_that_do_not_arrive_are_an_error_and_not_those_of_an_earlier_call(model: Path, room: int) -> None:
    """At the limit of open files the child is not given the memory that they lie in, or cannot map it."""
    direct = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with IsolatedSession(model, {"intra_op_num_threads": 1}) as session:
        for _ in range(2):  # after the second, the child has closed what it handed over in the first
            session.run(None, {"x": X})
        pid = session.pid
        assert pid is not None
        taken = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
        free = [number for number in range(100) if number not in taken]
        before = resource.prlimit(
            pid, resource.RLIMIT_NOFILE, (free[room], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        with pytest.raises(ModelError, match="Too many open files"):
            session.run(None, {"x": np.resize(X, (2000, 64))})
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for factor in (2, 3):
            x = X * np.float32(factor)
            assert np.array_equal(session.run(None, {"x": x})[0], direct.run(None, {"x": x})[0])
        assert session.pid == pid


def test_an_interrupted_call_does_not_confuse_the_next(
    session: IsolatedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = session.run(None, {"x": X})[0]
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "receive", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": X * 2})
    assert np.array_equal(session.run(None, {"x": X})[0], expected)
    # In the middle of copying inputs for which the memory is new, of which the child has not heard.
    with monkeypatch.context() as patch:
        patch.setattr(Parcel, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": np.resize(X, (50_000, 64))})
    for factor in (2, 3):
        small, large = X * factor, np.resize(X * factor, (40_000, 64))
        assert np.array_equal(session.run(None, {"x": large})[0][:3], session.run(None, {"x": small})[0])


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


def test_wrong_requests_say_what_would_be_right(session: IsolatedSession) -> None:
    cases: list[tuple[Any, Any, str]] = [
        (None, {"z": X}, "no input 'z'"),
        (None, {}, "nothing was given for the input 'x'"),
        (["q"], {"x": X}, "no output 'q'"),
        (None, {"x": X[:, :5]}, "invalid dimensions"),
        (None, {"x": X.astype(np.int32)}, "data type"),
        (None, {"x": object()}, "cannot be passed"),
    ]
    for names, feeds, message in cases:
        with pytest.raises(UsageError, match=message) as caught:
            session.run(names, feeds)
        assert "ONNXRuntimeError" not in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no run option 'speed'"):
        session.run(None, {"x": X}, {"speed": 1})
    with pytest.raises(UsageError, match="mapping"):
        session.run(None, {"x": X}, ort.RunOptions())
    shrink = {"memory.enable_memory_arena_shrinkage": "cpu:0", "log_severity_level": 3}
    assert session.run(["y"], {"x": X}, shrink)[0].shape == (3, 64)


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


def python(code: str, model: Path) -> subprocess.Popen[str]:
    program = f"import os, sys, time, numpy, onnxmem\nmodel, x = {str(model)!r}, numpy.ones((3, 64), 'f4')\n"
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
    opened = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
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


def test_the_parent_needs_no_onnxruntime(model: Path) -> None:
    code = """
        with onnxmem.IsolatedSession(model) as session:
            session.run(None, {"x": x})
        print([name for name in sys.modules if name.startswith("onnxruntime")])
    """
    with python(code, model) as parent:
        out, errors = parent.communicate(timeout=60)
    assert (out.strip(), errors) == ("[]", "")
