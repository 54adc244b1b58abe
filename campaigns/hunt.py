"""Many inputs, one after the other, in processes that may crash: which of them does something that nobody may see?

A worker says which input is next before it reads it, so that a crash or a hang has a name, and what became of it after.
Inputs are made from their number and nothing else: one that was found is made again by its number.
"""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.errors import OnnxmemError

MOST_BYTES = 2 * 2**30
"""Data that a reader may have; what is mapped from files does not count."""
MOST_SECONDS, MOST_WAITING = 60.0, 1200.0
"""Of the processor, for one input; and of a clock: on a busy machine a worker may have to wait for its turn."""
OUTSIDE = "outside.bin"
"""A file above the folder of the input: nothing in an input may have it read."""
_WORKER_INPUTS = 5_000  # memory that a reader leaves behind shows, and is not the next one's fault
_SHOWN = 30.0
_BROKEN = 70
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "pickle.find_class")
"""What Python tells of before it happens, and no reader has to do."""


class Target(NamedTuple):
    """Something that reads what strangers wrote."""

    make: Callable[[int, Path], Path]
    """Writes the input of that number into a folder, and says what to read."""
    read: Callable[[Path], None]


class Finding(NamedTuple):
    """An input that did what none may."""

    number: int
    what: str

    @property
    def kind(self) -> str:
        """Those that differ in a name or a number are alike."""
        return re.sub(r"'.*|\d+", "…", self.what)


class WrongAnswer(Exception):
    """What was read is not what the file says, or cannot be."""


class _Watched:
    """Notes what is done beside reading, as far as Python knows of it: programs, pickles, files elsewhere."""

    def __init__(self, root: str) -> None:
        self.root, self.on, self.seen = root, False, [""]
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100
            elsewhere = not path.startswith((self.root, "/dev/null", "/proc/self/"))
            if path == f"{self.root}/{OUTSIDE}" or (elsewhere and (arguments[2] or 0) & _WRITES):
                self.seen.append(f"opened {path}")
        elif event in _RUNS:
            self.seen.append(f"{event} {arguments[:2]!r}"[:100])


def work(target: Target, first: int, count: int) -> None:
    """In a worker: read so many inputs, and say of each what became of it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as temporary:
        root = Path(temporary).resolve()
        print(first, flush=True)
        # What is loaded late, and what was found out once, is no input's doing.
        (warm := root / "warm").mkdir()
        _outcome(target, _made(target, first, warm))
        inside, beside = root / "in", (root / "tmp", root / "here")
        for folder in beside:
            folder.mkdir()
        (root / OUTSIDE).write_bytes(bytes(64))
        os.environ.update(XDG_CACHE_HOME=str(root / "home"))
        tempfile.tempdir = str(beside[0])
        os.chdir(beside[1])
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        watched = _Watched(str(root))
        for number in range(first, first + count):
            print(number, flush=True)
            inside.mkdir()
            path = _made(target, number, inside)
            before = _files(inside)
            watched.on, watched.seen = True, []
            outcome = _outcome(target, path)
            watched.on = False
            print(outcome, flush=True)
            left = [*(f"changed {name}" for name in before ^ _files(inside)), *watched.seen]
            shutil.rmtree(inside)
            for entry in (entry for folder in beside for entry in folder.iterdir()):
                left.append(f"left {entry}")
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            if left:
                print(f"files: {ascii(left[0])[:150]}", flush=True)


def _made(target: Target, number: int, folder: Path) -> Path:
    try:
        return target.make(number, folder)
    except Exception:
        traceback.print_exc()
        os._exit(_BROKEN)  # this is the campaign's own fault, and no finding


def _files(folder: Path) -> set[tuple[str, int, int]]:
    found = set()
    for place, _, names in os.walk(folder):
        for name in names:
            about = os.lstat(path := f"{place}/{name}")
            found.add((path, about.st_size, about.st_mtime_ns))
    return found


def _outcome(target: Target, path: Path) -> str:
    try:
        target.read(path)
    except OnnxmemError as error:
        sentence = str(error)
        plain = sentence.isprintable() and sentence.strip()
        return "refused" if plain else f"bug: an error that cannot be read: {sentence[:80]!r}"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((f for f in reversed(frames) if "onnxmem" in f.filename), frames[-1])
        return f"bug: {type(error).__name__} in {Path(own.filename).name}:{own.name}: {str(error)[:80]!r}"
    return "read"


def hunt(command: list[str], count: int, first: int = 0) -> tuple[Counter[str], list[Finding]]:
    """Run workers (`command`, and after it the first number and how many) until all inputs were read."""
    outcomes: Counter[str] = Counter()
    findings: list[Finding] = []
    kinds: set[str] = set()
    number, end, shown = first, first + count, time.monotonic()
    while number < end:
        begun = [*command, str(number), str(min(_WORKER_INPUTS, end - number))]
        with subprocess.Popen(begun, stdout=subprocess.PIPE, text=True) as worker:
            last = _follow(worker, outcomes, findings)
            if last is None or worker.returncode == _BROKEN:
                raise RuntimeError(f"no input {last or number} could be made: exit code {worker.returncode}")
            number = last + 1
        for finding in (each for each in findings if each.kind not in kinds):  # now: the rest may take hours
            kinds.add(finding.kind)
            print(f"  found, input {finding.number}: {finding.what}", file=sys.stderr, flush=True)
        if time.monotonic() - shown > _SHOWN and number < end:
            shown = time.monotonic()
            print(f"  {number - first:,} of {count:,}: {dict(outcomes)}", file=sys.stderr, flush=True)
    return outcomes, findings


def _follow(worker: subprocess.Popen[str], outcomes: Counter[str], findings: list[Finding]) -> int | None:
    """Listen until the worker ends; the number of the last input it began, or None."""
    last, done = None, True
    assert worker.stdout is not None
    while True:
        worked, waited = _seconds(worker.pid), time.monotonic()
        while not select.select([worker.stdout], [], [], 1.0)[0]:
            if _seconds(worker.pid) - worked > MOST_SECONDS or time.monotonic() - waited > MOST_WAITING:
                worker.kill()
                outcomes["hung"] += 1
                findings.append(Finding(last or 0, f"no answer in {MOST_SECONDS:.0f} s"))
                return last
        line = worker.stdout.readline().strip()
        if not line:
            break
        if line.isdigit():
            last, done = int(line), False
            continue
        done, kind = True, line.split(":")[0]
        outcomes[kind] += 1
        if kind not in ("read", "refused"):
            findings.append(Finding(last or 0, line))
    worker.wait()
    if not done:
        outcomes["crashed"] += 1
        findings.append(Finding(last or 0, f"the process ended with {worker.returncode}"))
    return last


def _seconds(pid: int) -> float:
    """Of the processor, that a process has had."""
    with suppress(OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
