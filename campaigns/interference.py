"""Files that are cut short or replaced while they are in use, clocks that jump, children that stop answering.

What must come of it: the right outputs, or one of onnxmem's own errors in one sentence; and nobody waits for ever.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

import onnxmem
from campaigns.kills import start_and_wait
from campaigns.processes import PATIENCE, ask, command, has_ended, start, wait_for_orphans
from onnxmem.errors import OnnxmemError, SessionClosed, SessionLost
from onnxmem.measurement.measure import measure
from tests.native.build import build_library

Case = tuple[str, Callable[[], None]]


def _outputs(package: Path) -> bytes:
    x = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 64)
    return np.asarray(onnxmem.InferenceSession(package).run(None, {"x": x})[0]).tobytes()


def _opened(package: Path, wanted: str) -> None:
    """In a fork: the right outputs or an error of ours."""
    try:
        found = _outputs(package).hex()
    except OnnxmemError as error:
        assert str(error).isprintable(), "an error that cannot be read"
        return
    assert found == wanted, "wrong outputs"


def cut_files(folder: Path, planted: bool) -> Iterator[Case]:
    """Every file of a package, cut at several lengths: as after a copy that was broken off."""
    whole, cut = folder / "whole", folder / "cut"
    start_and_wait(command("pack", folder / "0.onnx", "-o", whole))
    wanted = ask(lambda: _outputs(whole).hex())
    for file in sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file()):
        size = (whole / file).stat().st_size
        for length in sorted({0, 1, size // 2, max(0, size - 1)}):
            yield f"'{file}' cut to {length} of {size} bytes", partial(_cut, whole, cut, file, length, wanted)
    if planted:
        yield "nothing cut, but another answer", partial(_cut, whole, cut, Path("manifest.json"), 1 << 20, "")


def _cut(whole: Path, cut: Path, file: Path, length: int, wanted: str) -> None:
    shutil.rmtree(cut, ignore_errors=True)
    shutil.copytree(whole, cut)
    if length < (cut / file).stat().st_size:
        os.truncate(cut / file, length)
    ask(lambda: _opened(cut, wanted))


def replaced(folder: Path, planted: bool) -> Iterator[Case]:
    """A package is replaced by another while a session has it mapped: the session goes on with what it has."""

    def case() -> None:
        package, ready = folder / "mapped", folder / "ready"
        start_and_wait(command("pack", folder / "0.onnx", "-o", package))

        def use() -> str:
            session = onnxmem.InferenceSession(package)
            x = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 64)
            first = np.asarray(session.run(None, {"x": x})[0]).tobytes()
            ready.touch()
            while ready.exists():
                assert np.asarray(session.run(None, {"x": x})[0]).tobytes() == first, "its outputs changed"
            for _ in range(20):
                assert np.asarray(session.run(None, {"x": x})[0]).tobytes() == first, "its outputs changed"
            return first.hex()

        def replace() -> None:
            end = time.monotonic() + PATIENCE
            while not ready.exists() and time.monotonic() < end:
                time.sleep(0.01)
            if planted:
                for file in package.rglob("*"):
                    if file.is_file():  # over the old one, as a copy would
                        file.write_bytes(bytes(file.stat().st_size))
            else:
                start_and_wait(command("pack", folder / "1.onnx", "--force", "-o", package))
            ready.unlink()

        pid = start(replace, folder / "log")
        before = ask(use, 5 * PATIENCE)
        assert has_ended(pid, PATIENCE) == 0, "the other package could not be written"
        assert ask(lambda: _outputs(package).hex()) != before, "the old package is still there"

    yield "a package replaced while it is mapped", case


_BY_THE_WALL_CLOCK = "import time; begun = time.time(); time.sleep(0.01); assert 0 <= time.time() - begun < 60"


def clock_jumps(folder: Path, planted: bool) -> Iterator[Case]:
    """The wall clock jumps by days at every look; only dates may show it."""
    library = build_library("jumping_clock")

    def case() -> None:
        words = ["-m", "onnxmem", "measure", str(folder / "0.onnx"), "--runs", "3", "--time-limit", "600", "--json"]
        done = subprocess.run(
            [sys.executable, *(["-c", _BY_THE_WALL_CLOCK] if planted else words)],
            capture_output=True, text=True, check=False, timeout=5 * PATIENCE,
            env=os.environ | {"LD_PRELOAD": str(library)},
        )  # fmt: skip
        assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-200:]}"

    yield "a clock that jumps", case


def stopped(folder: Path, planted: bool) -> Iterator[Case]:
    """A child that answers no more (SIGSTOP): limits hold, and it is ended."""

    def measured() -> None:
        def work() -> str:
            threading.Thread(target=_stop_children, daemon=True).start()
            started = time.monotonic()
            try:
                measure(folder / "0.onnx", time_limit=PATIENCE if planted else 5.0)
            except OnnxmemError as error:
                assert str(error).isprintable()
                assert time.monotonic() - started < PATIENCE / 2, "it waited longer than its limit"
                return "refused"
            return "measured"

        ask(work, 5 * PATIENCE)
        wait_for_orphans()

    def isolated(closed: bool) -> None:
        def work() -> None:
            session = onnxmem.IsolatedSession(folder / "0.onnx")
            assert session.pid is not None and session._child is not None
            os.kill(session.pid, signal.SIGSTOP)
            if not closed:
                session._child._time_limit = 2.0  # only now: a busy machine may take longer to load a model
                try:
                    session.run(None, {"x": np.zeros((1, 64), np.float32)})
                except SessionLost:
                    return
            closing = threading.Timer(1.0, session.close)
            closing.start()
            try:
                session.run(None, {"x": np.zeros((1, 64), np.float32)})
            except SessionClosed:
                closing.join()
                return
            raise AssertionError("a stopped process answered")

        ask(work, 5 * PATIENCE)
        wait_for_orphans()

    yield "a measured process that stops", measured
    yield "an isolated session that stops, and is closed", partial(isolated, True)
    yield "a session of its own process that stops, and has a limit", partial(isolated, False)


def _stop_children() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGSTOP)
        time.sleep(0.05)


def run(folder: Path, only: str, planted: bool) -> tuple[int, list[str]]:
    """All whose name has `only` in it: how many, and what should not have been."""
    done, findings = 0, []
    for cases in (replaced, clock_jumps, stopped, cut_files):
        if cases is cut_files and "cut" not in only and only:
            continue  # there is much to prepare
        for what, case in cases(folder, planted):
            if only not in what:
                continue
            done += 1
            try:
                case()
            except AssertionError as error:
                findings.append(f"{what}: {error}")
    return done, findings
