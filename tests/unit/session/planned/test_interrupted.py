"""What comes in between: signals and forks in the middle of a run, runs that fail, and runs that are not planned."""

from __future__ import annotations

import dataclasses
import gc
import os
import random
import signal
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem import Arena, InferenceSession, zoo
from onnxmem.session.chunks import Chunks
from onnxmem.session.graphs import Graphs
from onnxmem.session.memory import Deviation, DeviationKind
from onnxmem.session.options import alone, run_entry, without_run_entry
from onnxmem.session.planned import bridge, improve, pairs, plan_book, rules
from onnxmem.unknown import Unknown
from tests.unit.session.planned.test_sharing import (
    CHAIN,
    FEEDS,
    SHARES_PLACES,
    _however_small,
    bits,
    model,
    stock,
)

assert _however_small  # used as it is there: everything is worth sharing

_SHRINK = "memory.enable_memory_arena_shrinkage"


class Interrupted(BaseException):
    """By a signal."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """Alarms are exceptions."""

    def handler(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_signal_at_any_moment_loses_no_region() -> None:
    session: Any = InferenceSession(CHAIN)
    expected, chance = [bits(session, FEEDS) for _ in range(3)][-1], random.Random(0)
    interrupted, end = 0, time.monotonic() + 3
    while time.monotonic() < end:
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 6e-4))
            while True:
                session.run(None, FEEDS)
        except Interrupted:
            interrupted += 1
    assert interrupted > 20
    memory = session.memory
    assert session._planner._pool.stats().lent == 0 and memory.runs_from_heap == 0
    assert bits(session, FEEDS) == expected == stock(CHAIN, FEEDS)


def test_a_handler_of_signals_may_run_the_session_that_it_interrupts() -> None:
    session: Any = InferenceSession(CHAIN)
    expected = bits(session, FEEDS)
    with session._planner.book.lock, session._planner.book.learning:  # where it may have been
        assert bits(session, FEEDS) == expected


def locks(session: Any) -> dict[str, Callable[[], Any]]:
    """Where threads may be in the middle of something, by what it is."""
    graphs, chunks = Graphs(session, []), Chunks(1 << 20, Unknown("none"), session._planner, 1)
    return {
        "a first run": lambda: session._planner._first_run,
        "the loading of a graph": lambda: graphs._lock,
        "the first session of a process": lambda: bridge._ONCE.lock,
        "a question to a kernel": lambda: rules.known_rules()._lock,
        "a batch in parts": lambda: chunks._lock,
        "a search": lambda: improve._IMPROVER.lock,
    }


WHERE = (
    "a first run",
    "the loading of a graph",
    "the first session of a process",
    "a question to a kernel",
    "a batch in parts",
    "a search",
)


@pytest.mark.parametrize("where", WHERE)
def test_a_handler_of_signals_does_not_wait_for_the_thread_that_it_interrupts(where: str) -> None:
    lock = locks(InferenceSession(CHAIN))[where]()
    with lock:
        assert lock.acquire(timeout=0)
        lock.release()


@pytest.mark.parametrize("where", WHERE)
def test_a_fork_in_the_middle_leaves_no_lock_locked(where: str) -> None:
    lock = locks(InferenceSession(CHAIN))[where]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if lock().acquire(timeout=30) else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@contextmanager
def handled_by(session: Any, rows: Iterator[int]) -> Iterator[None]:
    """Signals run the session with so many rows."""

    def run(*_: Any) -> None:
        session.run(None, {"x": np.ones((next(rows), 16), np.float32)})

    before = signal.signal(signal.SIGALRM, run)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_handler_of_signals_may_run_while_somebody_looks_at_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    session = InferenceSession(zoo.build("matmul", layers=2, width=16).SerializeToString())
    copy = dataclasses.replace

    def interrupted(record: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return copy(record)

    with handled_by(session, iter(range(1, 100))):
        for _ in range(3):
            signal.raise_signal(signal.SIGALRM)
        monkeypatch.setattr(plan_book, "replace", interrupted)
        assert session.memory.shapes


def test_a_handler_of_signals_may_put_another_plan_in_the_place_of_the_one_that_is_looked_for() -> None:
    session: Any = InferenceSession(zoo.build("matmul", layers=2, width=16).SerializeToString(), max_plans=1)
    asked, rows = {"x": np.ones((2, 16), np.float32)}, iter([3])

    class Shapes(OrderedDict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            if found is not None and not interrupted:
                interrupted.append(True)
                signal.raise_signal(signal.SIGALRM)
            return found

    interrupted: list[bool] = []
    expected = session.run(None, asked)[0]
    session._planner.book._shapes = Shapes(session._planner.book._shapes)
    with handled_by(session, rows):
        assert np.array_equal(session.run(None, asked)[0], expected)
    assert interrupted


def test_answers_are_kept_while_other_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asking, kept = rules.Rules(), pairs.Question("Add", "float", ("1",)), {}

    def write(_: Any, answers: Any) -> None:
        for key, positions in answers.items():
            kept[key] = positions
            other = threading.Thread(target=found.allow, args=(asking, (0,), 2))
            other.start()
            other.join()

    monkeypatch.setattr(rules, "_answer", lambda *_: [0])
    monkeypatch.setattr(rules, "write_answers", write)
    found.allow(asking, (0,), 1)
    for _ in range(2):
        found.keep()
    assert len(kept) == 2


def test_what_a_wrong_prediction_teaches_is_not_waited_for_by_runs_that_look_up_a_plan() -> None:
    session: Any = InferenceSession(CHAIN)
    bits(session, FEEDS)
    book = session._planner.book
    shape = next(iter(book._shapes.values()))
    shape.predicted, found = True, []

    class Formulas:
        def failed(self, _: Any) -> None:
            reader = threading.Thread(target=lambda: found.append(book.find(shape.key)))
            reader.start()
            reader.join(30)
            assert found, "the lock is held"

    book._formulas = Formulas()
    deviation = Deviation(kind=DeviationKind.ENDED_EARLY, step=1, expected_bytes=0, asked_bytes=0)
    assert not book.ran(shape, deviation)
    assert found == [None]  # the next run is recorded


def failing() -> bytes:
    """Shares places, and fails at its last node but one if an index is not there."""
    weight = np.eye(64, dtype=np.float32) / 3 + 0.01
    nodes = [("MatMul", ["x", "m"], "a"), ("Sin", ["a"], "b"), ("Add", ["a", "b"], "c"), ("MatMul", ["c", "m"], "d")]
    made = [helper.make_node(op, inputs, [output], name=f"make_{output}") for op, inputs, output in nodes]
    made += [helper.make_node("Gather", ["d", "i"], ["e"]), helper.make_node("Neg", ["e"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["k"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k", 64])]
    graph = helper.make_graph(made, "g", inputs, outputs, [numpy_helper.from_array(weight, "m")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(content.SerializeToString())


X = np.linspace(-1, 1, 512 * 64, dtype=np.float32).reshape(512, 64)


@SHARES_PLACES
def test_a_bad_request_leaves_the_plan_as_it_is() -> None:
    session: Any = InferenceSession(failing())
    good, bad = {"x": X, "i": np.array([1, 2])}, {"x": X, "i": np.array([1, 2000])}
    expected = [bits(session, good) for _ in range(3)][-1]
    before = session.memory
    assert before.shared_places
    with pytest.raises(Exception, match="indices element out of data bounds"):
        session.run(None, bad)
    with pytest.raises(Exception, match="Unexpected input data type"):
        session.run(None, {**good, "x": X.astype(np.float64)})
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="terminate"):
        session.run(None, good, options)
    assert bits(session, good) == expected
    after = session.memory
    assert (after.plan_bytes, after.shared_places, after.runs_repeated) == (before.plan_bytes, before.shared_places, 0)


@SHARES_PLACES
def test_a_run_that_failed_keeps_nothing_of_what_it_was_given() -> None:
    session: Any = InferenceSession(failing())
    for _ in range(3):
        session.run(None, {"x": X, "i": np.array([1, 2])})
    gc.disable()
    try:
        given = X.copy()
        gone = weakref.ref(given)
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": given, "i": np.array([1, 2000])})
        del given
        assert gone() is None
    finally:
        gc.enable()


def test_what_is_written_over_an_input_is_never_done_twice() -> None:
    """Of another length, what is sliced deviates from the plan, and a run that shared places would be done again."""
    one = np.ones(1, np.float32)
    content = model(
        ("MatMul", ["x", "m"], "a"), ("Sin", ["a"], "b"), ("Add", ["a", "b"], "c"), ("Mul", ["c", "c"], "d"),
        ("Add", ["state", "one"], "new"), ("Slice", ["d", "from", "to"], "e"), ("Exp", ["e"], "f"),
        ("MatMul", ["f", "m"], "g"), ("ReduceSum", ["g"], "out"), m=np.eye(64, dtype=np.float32), one=one,
    )  # fmt: skip
    proto = onnx.load_from_string(content)
    del proto.graph.input[:], proto.graph.output[:]
    kinds: dict[str, tuple[int, list[Any]]] = {"x": (TensorProto.FLOAT, ["n", 64]), "state": (TensorProto.FLOAT, ["s"]),
             "from": (TensorProto.INT64, [1]), "to": (TensorProto.INT64, [1])}  # fmt: skip
    proto.graph.input.extend(helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items())
    proto.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("new", "out"))
    session: Any = InferenceSession(proto.SerializeToString())
    state, seen = ort.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32)), []
    for to in (100, 100, 100, 200, 100):
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_input("state", state)
        binding.bind_cpu_input("from", np.array([0]))
        binding.bind_cpu_input("to", np.array([to]))
        binding.bind_ortvalue_output("new", state)
        binding.bind_output("out")
        session.run_with_iobinding(binding)
        seen.append(float(state.numpy()[0]))
    assert seen == [1, 2, 3, 4, 5]
    assert session.memory.runs_deviated


def test_runs_that_always_fail_end_the_profile() -> None:
    session: Any = InferenceSession(failing())
    for _ in range(20):
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": X, "i": np.array([1, 2000])})
    assert session._planner._profile is None and ort.InferenceSession.end_profiling(session) == ""
    good = {"x": X, "i": np.array([1, 2])}
    assert [bits(session, good) for _ in range(2)] == [stock(failing(), good)] * 2


@SHARES_PLACES
def test_a_few_runs_that_fail_first_do_not_keep_places_from_being_shared() -> None:
    session: Any = InferenceSession(failing())
    for _ in range(3):
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": X, "i": np.array([1, 2000])})
    for _ in range(2):
        session.run(None, {"x": X, "i": np.array([1, 2])})
    assert session.memory.shared_places


def test_runs_that_are_not_planned_end_the_profile() -> None:
    session: Any = InferenceSession(CHAIN)
    done = threading.Event()
    assert session._planner._profile is not None
    session.run_async(None, FEEDS, lambda *_: done.set(), None)
    assert done.wait(60) and session._planner._profile is None
    session = InferenceSession(CHAIN)
    assert session.end_profiling() == ""
    assert [bits(session, FEEDS) for _ in range(2)] == [stock(CHAIN, FEEDS)] * 2


def test_sessions_of_the_same_options_are_made_one_at_a_time() -> None:
    options, inside, entered, left = ort.SessionOptions(), threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        inside.set()
        with alone(options):
            assert left.is_set()
            entered.set()

    thread = threading.Thread(target=other)
    with alone(options), alone(options):
        with alone(ort.SessionOptions()):  # nobody else's
            thread.start()
        assert inside.wait(60) and not entered.wait(0.1)
        left.set()
    assert entered.wait(60)
    thread.join()


def test_an_entry_of_run_options_is_put_back_by_the_last_that_took_it_out() -> None:
    options = ort.RunOptions()
    options.add_run_config_entry(_SHRINK, "cpu:0")
    with without_run_entry(options, _SHRINK):
        with without_run_entry(options, _SHRINK):
            assert (options.get_run_config_entry(_SHRINK), run_entry(options, _SHRINK)) == ("", "cpu:0")
        assert (options.get_run_config_entry(_SHRINK), run_entry(options, _SHRINK)) == ("", "cpu:0")
    assert options.get_run_config_entry(_SHRINK) == "cpu:0"


def test_a_run_that_ends_while_an_arena_trims_waits_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena(1, trim_after=60)
    arena.used()
    expired = arena._timer
    monkeypatch.setattr(Arena, "trim", lambda self: self.used())
    arena._last_used -= 120
    arena._expire()
    assert expired is not None and arena._timer is not None and arena._timer is not expired
    for timer in (expired, arena._timer):
        timer.cancel()
