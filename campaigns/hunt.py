"""Many inputs, one after the other, in processes that may crash: which of them does something that nobody may see?

A worker says which input is next before it reads it, so that a crash or a hang has a name, and what became of it after.
Inputs are made from their number and nothing else: one that was found is made again by its number.
"""

from __future__ import annotations

import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from onnxmem.errors import OnnxmemError

MOST_BYTES = 2 * 2**30
"""Data that a reader may have; what is mapped from files does not count."""
MOST_SECONDS = 60.0
_WORKER_INPUTS = 2_000  # memory that a reader leaves behind shows, and is not the next one's fault
_SHOWN = 30.0


class Target(NamedTuple):
    """Something that reads what strangers wrote."""

    make: Callable[[int, Path], Path]
    """Writes the input of that number into a folder, and says what to read."""
    read: Callable[[Path], None]


class Finding(NamedTuple):
    """An input that did what none may."""

    number: int
    what: str


def work(target: Target, first: int, count: int) -> None:
    """In a worker: read so many inputs, and say of each what became of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    for number in range(first, first + count):
        print(number, flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            path = target.make(number, folder)
            before = sorted(folder.rglob("*"))
            print(_outcome(target, path), flush=True)
            if sorted(folder.rglob("*")) != before:
                print("files", flush=True)


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
    number, end, shown = first, first + count, time.monotonic()
    while number < end:
        size = min(_WORKER_INPUTS, end - number)
        with subprocess.Popen([*command, str(number), str(size)], stdout=subprocess.PIPE, text=True) as worker:
            last = _follow(worker, outcomes, findings)
            if last is None:  # it did not begin
                raise RuntimeError(f"a worker ended with {worker.returncode} before its first input")
            number = last + 1
        if time.monotonic() - shown > _SHOWN and number < end:
            shown = time.monotonic()
            print(f"  {number - first:,} of {count:,}: {dict(outcomes)}", file=sys.stderr, flush=True)
    return outcomes, findings


def _follow(worker: subprocess.Popen[str], outcomes: Counter[str], findings: list[Finding]) -> int | None:
    """Listen until the worker ends; the number of the last input it began, or None."""
    last, done = None, True
    assert worker.stdout is not None
    while True:
        ready, _, _ = select.select([worker.stdout], [], [], MOST_SECONDS)
        if not ready:
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
