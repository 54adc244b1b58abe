"""SIGKILL and SIGTERM at random moments of everything that writes: the old file or the new one, never a third.

After each of them, no process is left and what is there is whole: what was there before, or what the verb makes. And
when the verb has then been through once more, nothing lies beside it that does not belong there.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

import onnxmem
from campaigns.processes import PATIENCE, ask, command, has_ended, start, wait_for_orphans
from onnxmem import zoo
from onnxmem.model.load import all_tensors

Words = tuple[object, ...]


class Verb(NamedTuple):
    """Something that writes, asked for one of two things in turn, so that one can tell the old from the new."""

    words: Callable[[Path, int], Words]
    """The command for the folder and which of the two it is."""
    state: Callable[[Path], object]
    """What is there, as far as it matters; raises if it is not whole."""
    files: Callable[[Path], bool]
    """After a whole run: is all that is there what belongs there?"""
    share: float
    """Of all kills."""
    grows: bool = False
    """Each run adds to what is there: then any state is one that is between two runs."""


def prepare(folder: Path) -> None:
    """Two small models that differ in their weights, and a result of each."""
    for which in (0, 1):
        model = zoo.build("matmul", layers=2, width=64)
        for tensor in model.graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            if array.dtype == np.float32:
                tensor.CopyFrom(onnx.numpy_helper.from_array(array + np.float32(which), tensor.name))
        path = folder / f"{which}.onnx"
        onnx.save(model, path)
        start_and_wait(command("estimate", path, "--json", "-o", folder / f"{which}.json"))


def start_and_wait(work: Callable[[], object]) -> None:
    """A run that nobody disturbs."""
    code = has_ended(start(work), 5 * PATIENCE)
    assert code == 0, f"undisturbed, it ended with {code}"


# What is there.


def _weights(path: Path) -> str:
    """A model, with its weights wherever they are."""
    model = onnx.load(path)
    digest = hashlib.sha256()
    for tensor in all_tensors(model):
        digest.update(onnx.numpy_helper.to_array(tensor).tobytes())
    return digest.hexdigest()


def _external(folder: Path) -> str:
    return _weights(folder / "out" / "m.onnx")


def _content(name: str) -> Callable[[Path], str]:
    return lambda folder: hashlib.sha256((folder / "out" / name).read_bytes()).hexdigest()


def _package(folder: Path) -> str:
    package = folder / "out" / "p"
    onnxmem.verify_package(package)
    x = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 64)
    outputs = onnxmem.InferenceSession(package).run(None, {"x": x})
    return hashlib.sha256(np.asarray(outputs[0]).tobytes()).hexdigest()


def _rows(folder: Path) -> int:
    path = folder / "out" / "h.sqlite"
    if not path.exists() or not path.stat().st_size:
        return 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'results'").fetchone()[0]:
            return 0
        rows = connection.execute("SELECT count(*) FROM results").fetchone()[0]
    onnxmem.read_history(path)
    return int(rows)


def _listed(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out").iterdir())


def _only(*names: str) -> Callable[[Path], bool]:
    def right(folder: Path) -> bool:
        return _listed(folder) == sorted(names)

    return right


def _model_and_weights(folder: Path) -> bool:
    weights = [name for name in _listed(folder) if name != "m.onnx"]
    return len(weights) == 1 and weights[0].endswith(".weights")


def _database(folder: Path) -> bool:
    # SQLite's own two files may stay while it is not opened again.
    return set(_listed(folder)) <= {"h.sqlite", "h.sqlite-wal", "h.sqlite-shm"}


VERBS: Mapping[str, Verb] = {
    "convert, external": Verb(
        lambda folder, which: ("convert", folder / f"{which}.onnx", "--to", "external", "--force",
                               "-o", folder / "out" / "m.onnx"),
        _external, _model_and_weights, 0.25,
    ),
    "convert, one file": Verb(
        lambda folder, which: ("convert", folder / f"{which}.onnx", "--to", "onnx", "--force",
                               "-o", folder / "out" / "m.onnx"),
        _external, _only("m.onnx"), 0.15,
    ),
    "report": Verb(
        lambda folder, which: ("report", folder / f"{which}.json", "--html", folder / "out" / "r.html"),
        _content("r.html"), _only("r.html"), 0.2,
    ),
    "history": Verb(
        lambda folder, which: ("check", folder / f"{which}.onnx", "--by", "estimate", "--budget", "1GiB", "--no-advice",
                               "--history", folder / "out" / "h.sqlite"),
        _rows, _database, 0.2, grows=True,
    ),
    "sweep": Verb(
        lambda folder, which: ("sweep", folder / f"{which}.onnx", "--verbs", "estimate", "--seed", time.monotonic_ns(),
                               "--store", folder / "out" / "h.sqlite"),
        _rows, _database, 0.1, grows=True,
    ),
    "pack": Verb(
        lambda folder, which: ("pack", folder / f"{which}.onnx", "--force", "-o", folder / "out" / "p"),
        _package, _only("p"), 0.1,
    ),
}  # fmt: skip


class Killed(NamedTuple):
    """How often, and what was there afterwards."""

    kills: int
    outcomes: Counter[str]
    findings: list[str]


def kill(name: str, folder: Path, kills: int, seed: int = 0, spoil: Callable[[Path], None] | None = None) -> Killed:
    """Kill a verb so often. `spoil` damages what is there after a kill: a defect that must be found."""
    verb, chance = VERBS[name], random.Random(f"{name} {seed}")
    (folder / "out").mkdir()
    outcomes: Counter[str] = Counter()
    findings: list[str] = []
    states, whole = _whole_runs(verb, folder)
    last, done, turn = 1, 0, 0
    while done < kills:
        turn += 1
        which = turn % 2
        before = ask(lambda: verb.state(folder)) if verb.grows else states[last]
        try:
            started = time.monotonic()
            pid = start(command(*verb.words(folder, which)))
            number = signal.SIGTERM if chance.random() < 0.5 else signal.SIGKILL
            # At any moment, and as often when it is about to be done: that is when files change.
            code = has_ended(pid, chance.uniform(chance.choice((0.0, 0.8)), 1.2) * whole)
            if code is None:
                os.kill(pid, number)
                code = has_ended(pid, PATIENCE)
                assert code is not None, f"it does not end {PATIENCE:.0f} s after {number.name}"
                done += 1
            else:
                whole = 0.7 * whole + 0.3 * (time.monotonic() - started)  # the machine is busier than it was, or less
                outcomes["was faster"] += 1
            wait_for_orphans()
            if spoil and turn % 5 == 0:
                spoil(folder)
            after = ask(lambda: verb.state(folder))
            last = _judged(verb, states, before, after, which, last, outcomes)
            if turn % 4 == 0:
                start_and_wait(command(*verb.words(folder, which)))
                last = which
                assert verb.files(folder), f"left behind: {', '.join(_listed(folder))}"
        except AssertionError as error:
            findings.append(f"{name}, turn {turn}: {error}")
            if len(findings) == 5:
                break
            start_and_wait(command(*verb.words(folder, which)))
            last = which
    return Killed(done, outcomes, findings)


def _whole_runs(verb: Verb, folder: Path) -> tuple[list[Any], float]:
    """What each of the two leaves, and how long it takes."""
    states, seconds = [], 0.0
    for which in (0, 1):
        started = time.monotonic()
        start_and_wait(command(*verb.words(folder, which)))
        seconds = time.monotonic() - started
        states.append(ask(lambda: verb.state(folder)))
    return states, seconds


def _judged(
    verb: Verb, states: list[Any], before: Any, after: Any, which: int, last: int, outcomes: Counter[str]
) -> int:
    if verb.grows:
        assert before <= after <= before + 1, f"{before} results became {after}"
        outcomes["old" if after == before else "new"] += 1
        return last
    assert after in (before, states[which]), "neither the old one nor the new one"
    outcomes["old" if after == before else "new"] += 1
    return last if after == before else which


def cut_short(folder: Path) -> None:
    """The defect that is planted: a file that was written in place, as far as it got."""
    files = [path for path in (folder / "out").rglob("*") if path.is_file() and path.name != "filler"]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size * 2 // 3)
