from __future__ import annotations

import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxmem import IsolatedSession
from onnxmem.errors import ModelError, UsageError
from onnxmem.session.isolated.channel import Call, Channel
from onnxmem.session.isolated.wire import Parcel
from tests.helpers import python

X = np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32)


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


def test_a_time_limit_is_more_than_nothing(model: Path) -> None:
    with pytest.raises(UsageError, match="more than 0 seconds"):
        IsolatedSession(model, time_limit=0)
    with IsolatedSession(model, time_limit=3600) as limited:
        assert limited.run(None, {"x": X})[0].shape == (3, 64)


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


def test_a_name_is_no_list_of_names(session: IsolatedSession, model: Path) -> None:
    """Nor are its characters outputs: `run("y", …)` is a mistake, and ONNX Runtime raises TypeError, too."""
    wrong: list[Any] = ["y", b"y", {"y": 1}]
    for names in wrong:
        for each in (session, ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])):
            with pytest.raises(TypeError):
                each.run(names, {"x": X})
    for names in ("", ()):
        assert np.array_equal(session.run(names, {"x": X})[0], session.run(["y"], {"x": X})[0])


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


def test_the_parent_needs_no_onnxruntime(model: Path) -> None:
    code = """
        with onnxmem.IsolatedSession(model) as session:
            session.run(None, {"x": x})
        print([name for name in sys.modules if name.startswith("onnxruntime")])
    """
    with python(code, model) as parent:
        out, errors = parent.communicate(timeout=60)
    assert (out.strip(), errors) == ("[]", "")
