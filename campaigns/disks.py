"""Disks that are full or must not be written: one sentence and the old file, or the new one.

A small file system in memory is filled up to some bytes, and every verb that writes is asked to write there. Mounting
one takes root. Without that, the size of files is limited, and nothing is tried on a disk that cannot be written.
"""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from campaigns.kills import VERBS, start_and_wait
from campaigns.processes import PATIENCE, ask, command, has_ended, start

_SIZE = 4 << 20
_LIMIT = 1 << 14
"""Of a file, where no file system can be mounted: more than the smallest and less than most."""


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """A small file system at `folder`, if this process may mount one; says whether it is."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def _full(folder: Path, left: int) -> Iterator[None]:
    """So many bytes are left, and then all of them again."""
    filler, disk = folder / "filler", os.statvfs(folder)
    filler.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - left)))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


def _limited(work: Callable[[], None]) -> Callable[[], None]:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, _LIMIT))
        work()

    return limited


def _refused(log: Path, code: int) -> None:
    """It ended as it should: with one sentence."""
    text = log.read_text(errors="replace")
    assert code in (1, 2, 3), f"it ended with {code}: {text[-300:]}"
    assert "Traceback" not in text, f"a traceback: {text[-300:]}"
    assert re.search(r"^onnxmem: \S.*", text, re.MULTILINE), f"no sentence: {text[-300:]}"


class _Disk:
    """A verb, and what it writes where there is no room."""

    def __init__(self, name: str, folder: Path, spoil: Callable[[Path], None] | None) -> None:
        self.verb, self.folder, self.spoil = VERBS[name], folder, spoil
        self.wanted = []
        for which in (0, 1):
            self.write(which)
            self.wanted.append(self.state())

    def state(self) -> object:
        return ask(lambda: self.verb.state(self.folder))

    def write(self, which: int) -> None:
        """Undisturbed."""
        start_and_wait(command(*self.verb.words(self.folder, which)))

    def attempt(self, which: int, fault: AbstractContextManager[None], *, limited: bool) -> bool:
        """One fault; whether it was refused."""
        before, log = self.state(), self.folder / "log"
        work = command(*self.verb.words(self.folder, which))
        with fault:
            code = has_ended(start(_limited(work) if limited else work, log), 5 * PATIENCE)
        assert code is not None, "it does not end"
        if self.spoil:
            self.spoil(self.folder)
        after = self.state()
        if code == 0:
            assert self.verb.grows or after == self.wanted[which], "it says that it has written, and has not"
        else:
            _refused(log, code)
            assert after == before, "it was refused, and something else is there"
        return code != 0


def fill(
    name: str, folder: Path, times: int, spoil: Callable[[Path], None] | None = None
) -> tuple[int, int, list[str]]:
    """How many times there was no room, how often it was refused, and what should not have been."""
    chance, out = random.Random(name), folder / "out"
    out.mkdir()
    findings, refused, done = [], 0, 0
    with _small_disk(out) as mounted:
        disk = _Disk(name, folder, spoil)
        for turn in range(times):
            which, left = turn % 2, chance.choice((0, 4096, 1 << chance.randrange(12, 19)))
            fault = _read_only(out) if turn % 5 == 4 else _full(out, left)
            try:
                done += 1
                refused += disk.attempt(which, fault if mounted else nullcontext(), limited=not mounted)
                disk.write(which)
                assert disk.verb.files(folder), f"left behind: {', '.join(sorted(os.listdir(out)))}"  # noqa: PTH208
            except AssertionError as error:
                findings.append(f"{name}, turn {turn}, {left} bytes left: {error}")
                if len(findings) == 3:
                    break
    return done, refused, findings
