"""Processes for campaigns that hurt them: forked from one that has everything loaded, so that a try takes little."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pkgutil
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds for what should take one: machines may be busy."""


def adopt_orphans() -> None:
    """From now on processes whose parent has ended become children of this one, and can be seen."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def load_everything() -> None:
    """All that verbs load when they need it, so that forks have it: what takes seconds is then not the loading."""
    import onnxmem  # noqa: PLC0415

    for module in pkgutil.walk_packages(onnxmem.__path__, "onnxmem."):
        if not re.search(r"\.(app|torch|cluster|node|pytest_plugin|__main__|worker)\b", module.name):
            importlib.import_module(module.name)


def start(work: Callable[[], object], log: Path | None = None) -> int:
    """A fork that does it, silently or into a file; it never returns from here. This process must have no threads."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        _work(work, log)
    finally:
        os._exit(70)  # a signal in its last step must not have the fork end what is this process's: folders, say


def _work(work: Callable[[], object], log: Path | None) -> None:
    code = 70
    try:
        where = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(where, stream)
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def command(*words: object) -> Callable[[], None]:
    """What `onnxmem WORDS` does, as work for a fork."""

    def work() -> None:
        from onnxmem.cli import main  # noqa: PLC0415

        sys.argv = ["onnxmem", *map(str, words)]
        main()

    return work


def has_ended(pid: int, seconds: float) -> int | None:
    """Its exit code, negative for a signal, if it ends within so many seconds."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return None
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ask(question: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What a fork answers; whatever goes wrong there is an AssertionError here, with its last line."""
    receive, send = os.pipe()

    def work() -> None:
        os.close(receive)
        try:
            answer = {"answer": question()}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(send, "w") as file:
            json.dump(answer, file)

    pid = start(work)
    os.close(send)
    with os.fdopen(receive) as file:
        # The answer may be longer than a pipe holds, so it is read before the end is waited for.
        text = file.read()
    code = has_ended(pid, seconds)
    if code is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not text:
        raise AssertionError(f"it ended with {code} and no answer")
    answer = json.loads(text)
    if "error" in answer:
        raise AssertionError(answer["error"])
    return answer["answer"]


def wait_for_orphans() -> None:
    """All that a killed process had started ends by itself, or there is an AssertionError."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if time.monotonic() > end:
            names = _end_all_children()
            raise AssertionError(f"processes were left: {', '.join(names)}")
        time.sleep(0.01)


def _end_all_children() -> list[str]:
    names = []
    for text in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with suppress(OSError):
            names.append(Path(f"/proc/{text}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
            os.kill(int(text), signal.SIGKILL)
            os.waitpid(int(text), 0)
    return names
