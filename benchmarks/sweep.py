"""What does a sweep cost over its measurements, does it survive kills, and how fast is a large store?

    python -m benchmarks.sweep overhead [20] [--engine ray]     models × 5 sizes × 2 modes, each measured once
    python -m benchmarks.sweep engines [20]                     the same on both engines, each twice, cell by cell
    python -m benchmarks.sweep kills [20] [--seed 0]            kills and a full disk at random moments, sweep_kills.py
    python -m benchmarks.sweep store [100000]                   finished cells: what `show` takes, and bytes per cell

The overhead of a cell is the time of the whole sweep, less what `measure` by itself took for each cell in its worker,
by the number of cells: starting the engine, reading and hashing the models and writing the results are in it. The same
again, with nothing to do, is what starting and reading take once.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.sweep_kills import kills, write_models
from onnxmem import measure, read_sweep, sweep
from onnxmem.history.figures_of import measured
from onnxmem.measurement.measurement import Measurement
from onnxmem.report.build import make_report
from onnxmem.report.render.to_terminal import render_terminal
from onnxmem.sweeping.cell import Cell, Settings, Stage
from onnxmem.sweeping.engine import Job
from onnxmem.sweeping.outcome import Outcome
from onnxmem.sweeping.store import begin_sweep, finish
from onnxmem.units import format_bytes
from onnxmem.unknown import known

SIZES, MODES = (1, 2, 4, 8, 16), ("stock", "planned")
Place = tuple[str, str, str]
"""The model, the mode and the size."""
PROCESSOR = "a processor, 2 cores"


def overhead(count: int, engine: str, repeat: int = 1) -> dict[Place, list[int]]:
    """What a sweep adds to its measurements; and what each cell took in each of `repeat` processes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store, models = folder / "s.sqlite", write_models(folder, count)
        given: dict[str, Any] = {"modes": MODES, "dims": {"batch": SIZES}, "runs": 2, "threads": 1, "engine": engine}
        began = time.monotonic()
        found = sweep(models, store=store, repeat=repeat, **given)
        wall = time.monotonic() - began
        assert found.ok, found.failures
        began = time.monotonic()
        again = sweep(models, store=store, repeat=repeat, **given)
        repeated = time.monotonic() - began
        with closing(sqlite3.connect(store)) as connection:
            rows = connection.execute(
                "SELECT model, mode, size, document FROM cells JOIN cell_documents ON cell = cells.id"
            ).fetchall()
    cells, own = again.status.cells, again.status.seconds
    columns = {
        "engine": engine,
        "cells": f"{cells}",
        "`measure` by itself, per cell": f"{own / cells * 1000:.0f} ms",
        "overhead per cell": f"{(wall - own) / cells * 1000:.1f} ms",
        "the same again, nothing to do": f"{repeated:.2f} s",
        "overhead per cell without that": f"{(wall - own - repeated) / cells * 1000:.1f} ms",
    }
    _print(columns)
    return {(model, mode, size): _peaks(json.loads(document)) for model, mode, size, document in rows}


def _peaks(document: Any) -> list[int]:
    """Of each process, in bytes."""
    return known(trial.highest for trial in Measurement.from_document(document).trials)


def engines(count: int, repeat: int = 2) -> None:
    """The same sweep on both engines: does each cell take the same, as far as repeats do?"""
    here, there = overhead(count, "embedded", repeat), overhead(count, "ray", repeat)
    assert here.keys() == there.keys() and here
    apart = {cell: abs(median(here[cell]) - median(there[cell])) for cell in here}
    spreads = [max(peaks) - min(peaks) for found in (here, there) for peaks in found.values()]
    within = sum(1 for distance in apart.values() if distance <= max(spreads))
    columns = {
        "cells": f"{len(apart)}",
        "repeats of one cell apart, median": format_bytes(round(median(spreads))),
        "at most": format_bytes(max(spreads)),
        "engines apart, median": format_bytes(round(median(apart.values()))),
        "at most ": format_bytes(round(max(apart.values()))),
        "cells within the spread of repeats": f"{within} of {len(apart)}",
    }
    print()
    _print(columns)


def large(count: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (model,) = write_models(folder, 1)
        result = measure(model, runs=2, threads=1, nodes=False)
        figures = measured(result)
        document = replace(result, timeline=()).document()
        outcome = Outcome(
            size=figures.peak,
            latency=figures.latency,
            figures=figures,
            result=document,
            seconds=1.0,
            node="n",
            processor=PROCESSOR,
        )
        names, sizes = count // (len(MODES) * 50), [f"batch={k}" for k in range(1, 51)]
        cells = [
            Cell(verb="measure", model=model, files=(model,), name=f"net{number:04}.onnx", sha256=f"{number:064}",
                 mode=mode, size=size, shapes={"x": (k + 1, 64)}, settings=Settings(), onnxmem="0", onnxruntime="0")
            for number in range(names) for mode in MODES for k, size in enumerate(sizes)
        ]  # fmt: skip
        store, few = folder / "s.sqlite", 300
        jobs = _begin(store, cells)
        began = time.monotonic()
        for job in jobs[:few]:
            finish(store, job, outcome, None)
        each = (time.monotonic() - began) / few
        grown = _bytes(store)
        _fill(store, jobs[few:], outcome)
        growth = (_bytes(store) - grown) / (len(jobs) - few)
        began = time.monotonic()
        text = render_terminal(make_report([read_sweep(store)]), width=80, colour=False)
        shown = time.monotonic() - began
        command = [sys.executable, "-m", "onnxmem", "sweep", "show", str(store)]
        typed, work = _best(command)
        bare, _ = _best([*command[:3], "--version"])
        assert f"All {len(cells):,} cells are finished." in text
        columns = {
            "finished cells": f"{len(cells):,}",
            "the tables of `show`": f"{shown:.2f} s",
            "`onnxmem sweep show`, typed": f"{typed:.2f} s",
            "its work on the processor": f"{work:.2f} s",
            "`onnxmem --version`": f"{bare:.2f} s",
            "bytes per cell": f"{growth:,.0f}",
            "of that, the document": f"{len(json.dumps(document, separators=(',', ':'))):,}",
            "writing one": f"{each * 1000:.1f} ms",
        }
        _print(columns)


def _best(command: list[str], times: int = 3) -> tuple[float, float]:
    """How long it takes, and how much of that it has a processor: the least of several, for whoever else is busy."""
    found = []
    for _ in range(times):
        began, before = time.monotonic(), _used()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append((time.monotonic() - began, _used() - before))
    return min(wall for wall, _ in found), min(used for _, used in found)


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _print(columns: dict[str, str]) -> None:
    for line in (columns, ["---"] * len(columns), columns.values()):
        print(f"| {' | '.join(line)} |")


def _begin(store: Path, cells: list[Cell]) -> list[Job]:
    here = {Stage(True): (PROCESSOR,)}
    return begin_sweep(
        store, cells, processors=here, each=True, engine="embedded", command="", commit=None, again=False
    )


def _bytes(store: Path) -> int:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store.stat().st_size


def _fill(store: Path, jobs: list[Job], outcome: Outcome) -> None:
    """Finish cells as `finish` does, without waiting for the disk after each."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        rows = connection.execute("SELECT * FROM results LIMIT 1")
        names = [column[0] for column in rows.description][1:]
        one = rows.fetchone()[1:]
        ((document,),) = connection.execute("SELECT document FROM cell_documents LIMIT 1").fetchall()
        listed, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
        connection.execute("BEGIN")
        for job in jobs:
            made = connection.execute(f"INSERT INTO results ({listed}) VALUES ({marks})", one).lastrowid
            connection.execute(
                "UPDATE cells SET state = 'finished', bytes = ?, latency_seconds = ?, seconds = 1.0, result = ?, "
                "node = 'n', date = '2026-01-01', tries = 1 WHERE id = ?",
                (outcome.size if isinstance(outcome.size, int) else None, 0.001, made, job.id),
            )
            connection.execute("INSERT INTO cell_documents VALUES (?, ?)", (job.id, document))
        connection.execute("COMMIT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "engines", "kills", "store"))
    parser.add_argument("count", type=int, nargs="?")
    parser.add_argument("--engine", default="embedded")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "overhead":
        overhead(given.count or 20, given.engine)
    elif given.what == "engines":
        engines(given.count or 20)
    elif given.what == "kills":
        kills(given.count or 20, seed=given.seed)
    else:
        large(given.count or 100_000)


if __name__ == "__main__":
    main()
