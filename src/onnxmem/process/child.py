"""How is a piece of work done in a process of its own? Started in one way, and never outliving whoever started it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from onnxmem.documents import Record, decode, encode
from onnxmem.folders import temporary_file

_INTERVAL = 0.05
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from {module} import main; "
    "from onnxmem.process import orphan; orphan.{bond}; main(*{arguments!r})"
)
_Answer = TypeVar("_Answer")


def start_child(
    module: str,
    *arguments: object,
    hangup: int | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = None,
    stderr: Any = None,
) -> subprocess.Popen[bytes]:
    """Start `main(*arguments)` of a module in a fresh interpreter, which ends with this process however that ends.

    A fresh one and not a fork: a fork would share this process's memory and copy its locked locks. It has a process
    group of its own: Ctrl-C reaches this process alone, and one kill reaches all that it starts. It has no session of
    its own: Linux shares processor time out by session, and on a busy machine two that answer each other would wait
    for their turns at every message.

    The kernel ends it with the thread that calls this, which therefore has to wait for it. A child that is to be kept
    longer gets a socket as `hangup`: it ends when the other end of that is closed, or this process is gone.
    """
    bond = f"die_with({os.getpid()})" if hangup is None else f"watch({os.getpid()}, {hangup})"
    # The same sys.path, so that it finds this package however this process found it.
    program = _PROGRAM.format(path=sys.path, module=module, bond=bond, arguments=arguments)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=None if environment is None else {**os.environ, **environment},
        pass_fds=[] if hangup is None else [hangup],
        process_group=0,
    )


def has_ended(child: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait so long for its end. Its process id stays taken until `end_child`, so that no kill can hit another."""
    if not hasattr(os, "waitid"):
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout)
        return child.returncode is not None
    end = time.monotonic() + timeout
    while child.returncode is None and not _is_over(child):
        left = end - time.monotonic()
        if left <= 0:
            return False
        _sleep_until_it_ends(child.pid, min(left, 1.0))
    return True


def _is_over(child: subprocess.Popen[bytes]) -> bool:
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        # Another thread has just waited for it. Or the program ignores SIGCHLD, or waits for every child: then nobody
        # can say how this one ended, and its process id may be another's.
        child.poll()
        return True


def _sleep_until_it_ends(pid: int, seconds: float) -> None:
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        time.sleep(min(seconds, 0.005))
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
    finally:
        os.close(handle)


def end_child(child: subprocess.Popen[bytes]) -> int:
    """End a child and whatever it has started, and wait for it: its exit code."""
    if child.returncode is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL) if hasattr(os, "killpg") else child.kill()
    code = child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()
    return code


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it printed."""

    code: int
    timed_out: bool
    output: str
    answer: bytes

    @property
    def last_line(self) -> str:
        """What it died of. The last part is the cause; before it come the places that passed it on."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return " ".join((lines or ["it printed nothing"])[-1].split("[ONNXRuntimeError] : ")[-1].split())[:300]

    def read(self, kind: type[_Answer]) -> _Answer:
        """What `serve` answered."""
        answer: _Answer = decode(kind, json.loads(self.answer))
        return answer


def run_child(
    module: str, task: Record, *, timeout: float | None = None, on_tick: Callable[[], None] | None = None
) -> Ended:
    """Have a module whose `main` is `serve` do one task. One that takes longer than `timeout` seconds is killed."""
    end = None if timeout is None else time.monotonic() + timeout
    with temporary_file() as output, temporary_file() as answer:
        child = start_child(module, stdin=subprocess.PIPE, stdout=answer, stderr=output)
        late = False
        try:
            send_line(child, json.dumps(encode(task)).encode())
            while not late and not has_ended(child, _INTERVAL):
                late = end is not None and time.monotonic() >= end
                if on_tick:
                    on_tick()
        finally:
            code = end_child(child)
        output.seek(0)
        answer.seek(0)
        return Ended(code, late, output.read().decode(errors="replace"), answer.read())


def send_line(child: subprocess.Popen[bytes], line: bytes = b"") -> None:
    """Write a line to a child's stdin. One that has died cannot read it: how it ended says more than this could."""
    assert child.stdin is not None
    with suppress(OSError):
        child.stdin.write(line + b"\n")
        child.stdin.flush()


def serve(kind: type[Record], work: Callable[[Any], object]) -> None:
    """The `main` of a child for `run_child`: read the task, do it, answer. Any error is one line on stderr."""
    # Whatever else prints on stdout, a library or a kernel, must not end up in the answer.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        answer = work(decode(kind, json.loads(sys.stdin.buffer.readline())))
    except Exception as error:
        text, hint = " ".join(str(error).split()), getattr(error, "hint", None)
        sys.exit(f"{type(error).__name__}: {text}" if hint is None else f"{text} ({hint})" if hint else text)
    with os.fdopen(out, "wb") as file:
        file.write(json.dumps(encode(answer)).encode())
