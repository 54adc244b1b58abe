"""The gate between runs and forks: a fork waits for runs that are inside, and neither waits for ever."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from onnxmem.session.planned.forks import Gate


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_fork_waits_until_runs_have_left() -> None:
    gate, inside, leave, forked = Gate(60), threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        gate.enter()
        inside.set()
        assert leave.wait(60)
        gate.leave()

    def fork() -> None:
        gate.before_fork()
        forked.set()
        gate.after_fork_in_parent()

    running = started(run)
    assert inside.wait(60)
    forking = started(fork)
    assert not forked.wait(0.2)
    leave.set()
    assert forked.wait(60)
    for thread in (running, forking):
        thread.join(60)


def test_a_run_waits_until_the_fork_is_over() -> None:
    gate, entered = Gate(60), threading.Event()
    gate.before_fork()

    def run() -> None:
        gate.enter()
        entered.set()
        gate.leave()

    thread = started(run)
    assert not entered.wait(0.2)
    gate.after_fork_in_parent()
    assert entered.wait(60)
    thread.join(60)


def test_neither_waits_for_ever() -> None:
    gate = Gate(0.05)
    thread = started(gate.enter)  # and never leaves
    thread.join(60)
    before = time.monotonic()
    gate.before_fork()
    started(gate.enter).join(60)
    assert time.monotonic() - before < 30


def test_a_fork_that_never_says_that_it_is_over_keeps_only_one_run_waiting() -> None:
    gate = Gate(0.05)
    started(gate.before_fork).join(60)
    assert gate._forking
    gate.enter()
    assert not gate._forking
    gate.leave()


def test_what_an_interrupted_fork_left_ends_with_the_next_of_its_thread() -> None:
    gate = Gate(60)
    for _ in range(2):
        gate.before_fork()
    gate.after_fork_in_parent()
    before = time.monotonic()
    gate.enter()
    gate.leave()
    assert time.monotonic() - before < 30


def test_a_fork_in_a_handler_of_signals_does_not_end_the_one_that_it_interrupts() -> None:
    gate, inside, over = Gate(60), threading.Event(), threading.Event()

    def run() -> None:
        while not over.is_set():
            gate.enter()
            inside.set()
            time.sleep(0.2)
            gate.leave()

    def fork(*_: object) -> None:
        gate.before_fork()
        gate.after_fork_in_parent()

    before = signal.signal(signal.SIGALRM, fork)
    running = started(run)
    try:
        assert inside.wait(60)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        gate.before_fork()
        assert not gate._inside
        time.sleep(0.1)
        assert not gate._inside, "another run has begun"
    finally:
        signal.signal(signal.SIGALRM, before)
        over.set()
        gate.after_fork_in_parent()
    running.join(60)


def test_a_run_in_a_handler_of_signals_does_not_wait_for_the_fork_that_it_interrupts() -> None:
    gate, inside, leave, ran = Gate(60), threading.Event(), threading.Event(), False

    def stay() -> None:
        gate.enter()
        inside.set()
        assert leave.wait(60)
        gate.leave()

    def run(*_: object) -> None:
        nonlocal ran
        gate.enter()
        gate.leave()
        leave.set()
        ran = True

    before = signal.signal(signal.SIGALRM, run)
    staying, begun = started(stay), time.monotonic()
    try:
        assert inside.wait(60)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        gate.before_fork()
        assert ran and not gate._inside and time.monotonic() - begun < 30
    finally:
        signal.signal(signal.SIGALRM, before)
    gate.after_fork_in_parent()
    staying.join(60)


def test_a_thread_does_not_wait_for_itself() -> None:
    gate = Gate(60)
    before = time.monotonic()
    gate.enter()
    gate.before_fork()
    gate.enter()
    gate.leave()
    gate.after_fork_in_parent()
    gate.leave()
    assert time.monotonic() - before < 30


def test_in_the_child_only_the_forking_thread_is_inside() -> None:
    gate = Gate(60)
    started(gate.enter).join(60)
    gate.enter()
    gate._forking.add(0)
    gate.after_fork_in_child()
    gate.leave()
    before = time.monotonic()
    gate.before_fork()
    assert time.monotonic() - before < 30
