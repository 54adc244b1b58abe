"""Where there is no memory for another thread, runs go on without those that would only make things better."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from onnxmem.session.planned.arena import Arena
from onnxmem.session.planned.improve import _Improver
from onnxmem.session.session import InferenceSession
from onnxmem.zoo import build


@contextmanager
def no_threads() -> Iterator[None]:
    """Each would have a stack that no machine can give it."""
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=int).start()
        yield
    finally:
        threading.stack_size(before)


def test_an_arena_that_cannot_wait_is_trimmed_at_once() -> None:
    arena = Arena(trim_after=3600.0)
    model = build("matmul", layers=2, width=64).SerializeToString()
    session, feeds = InferenceSession(model, arena=arena, keep_plans=False), {"x": np.ones((4, 64), np.float32)}
    with no_threads():
        first, second = session.run(None, feeds), session.run(None, feeds)
        assert np.array_equal(first[0], second[0]) and arena._timer is None
    session.run(None, feeds)
    assert arena._timer is not None and arena._timer.is_alive()
    arena._timer.cancel()


def test_better_plans_are_sought_once_there_can_be_a_thread() -> None:
    class Job:
        done = threading.Event()

        def work(self, _: threading.Event) -> None:
            self.done.set()

    improver = _Improver()
    with no_threads():
        improver.add(Job())  # type: ignore[arg-type]
        improver.stop()
    improver.stopping.clear()
    improver.add(Job())  # type: ignore[arg-type]
    assert Job.done.wait(600)
    improver.stop()


def test_a_signal_before_there_is_a_thread_costs_no_more_than_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Job:
        done = threading.Event()

        def work(self, _: threading.Event) -> None:
            self.done.set()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            raise KeyboardInterrupt

    improver = _Improver()
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            improver.add(Job())  # type: ignore[arg-type]
    improver.add(Job())  # type: ignore[arg-type]
    assert Job.done.wait(60)
    improver.stop()
