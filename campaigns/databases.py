"""SQLite files: histories of results, and the stores of sweeps."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from campaigns import corpus
from campaigns.documents import BYTES, draw
from campaigns.hunt import Target
from campaigns.mutations import NUMBERS, TEXTS, changed_bytes, changed_json
from onnxmem.history.entry import Entry, Key
from onnxmem.history.figures import Figures
from onnxmem.history.history import read_history
from onnxmem.history.store import append, check_history, last_passed
from onnxmem.report.build import make_report
from onnxmem.sweeping.cell import Cell, Settings, Stage
from onnxmem.sweeping.export import export_rows
from onnxmem.sweeping.outcome import CRASH, Outcome, failure
from onnxmem.sweeping.read import Filter, read_status, read_sweep
from onnxmem.sweeping.store import begin_sweep, finish

_HERE = "a processor, 2 cores"
_HEADER = 100
_KEY = Key(model="net.onnx", mode="stock", shapes={"x": (1, 3, 8, 8)})
_FIGURES = Figures(peak=10, load_peak=9, loaded=8, run_growth=2, steady=9, latency=0.01)
_PROGRAMS = (
    "DROP TABLE {table}; CREATE VIEW {table} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT i AS id, * FROM n",
    "CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "ALTER TABLE {table} ADD COLUMN made AS (hex(zeroblob(500000000)))",
    "CREATE TABLE more (a, b)",
    "CREATE TABLE more (a CHECK (instr(zeroblob(100000000), zeroblob(50000000) || x'01') = 0));"
    " INSERT INTO more VALUES (1)",
    "CREATE INDEX more ON {table} (hex(zeroblob(500000000))) WHERE rowid < 0",  # or making it would take as long
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME TO other",
    "DELETE FROM {table}",
    "INSERT INTO {table} SELECT * FROM {table}",
    "PRAGMA user_version = 0",
)


def _entry(day: int) -> Entry:
    return Entry(
        key=_KEY, figures=_FIGURES, date=f"2026-11-{day:02}T10:00:00+00:00", sha256="ab" * 32, onnxmem="0.1.0",
        onnxruntime="1.24.0", machine=_HERE, commit="c" * 40,
    )  # fmt: skip


def _cell(mode: str, size: int) -> Cell:
    return Cell(
        verb="measure", model=Path("net.onnx"), files=(Path("net.onnx"),), name="net.onnx", sha256="ab" * 32, mode=mode,
        size=f"batch={size}", shapes={"x": (size, 8)}, settings=Settings(), onnxmem="0.1.0", onnxruntime="1.24.0",
    )  # fmt: skip


def _swept(path: Path) -> None:
    cells = [_cell(mode, size) for mode in ("stock", "planned") for size in (1, 4)]
    jobs = begin_sweep(
        path, cells, processors={Stage(True): (_HERE,)}, each=True, engine="embedded", command="sweep",
        commit=None, again=False,
    )  # fmt: skip
    for job in jobs[:-1]:
        done = Outcome(size=100, latency=0.01, figures=_FIGURES, result={"schema": "x"}, processor=_HERE, seconds=1.0)
        finish(path, job, failure(CRASH, "SIGSEGV") if job is jobs[0] else done, None)


@cache
def _database() -> bytes:
    def write(path: Path) -> None:
        append(path, _entry(1), {"schema": "any"})
        append(path, _entry(2), {})
        _swept(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")

    return corpus.kept("history.sqlite", write).read_bytes()


def _stored(number: int, folder: Path) -> Path:
    chance, path = random.Random(number), folder / "history.sqlite"
    content = _database()
    if chance.random() < BYTES:
        # What says whose file it is stays, most of the time: all others are refused at once.
        kept = _HEADER if chance.random() < 0.9 else 0
        path.write_bytes(content[:kept] + changed_bytes(content[kept:], chance))
        return path
    path.write_bytes(content)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, suppress(sqlite3.Error):
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA ignore_check_constraints = 1")
        for _ in range(chance.choice((1, 1, 2, 4))):
            _change(connection, chance)
    return path


def _change(connection: sqlite3.Connection, chance: random.Random) -> None:
    table = chance.choice(("results", "cells", "sweeps", "cell_documents"))
    if chance.random() < 0.25:
        for statement in chance.choice(_PROGRAMS).format(table=table).split(";" if "TRIGGER" not in table else "\0"):
            with suppress(sqlite3.Error):
                connection.execute(statement)
        return
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if not columns:  # it is gone already
        return
    column = chance.choice(columns)
    value: object = chance.choice((*NUMBERS, *TEXTS, 1e308, b"\xff\x00", None, "{}", "[]", "[" * 5_000, "1"))
    if column in ("entry", "document", "shapes", "settings") and chance.random() < 0.8:
        found = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        with suppress(ValueError, TypeError, RecursionError):  # an earlier change may have left no JSON there
            value = changed_json(found[0], chance) if found else value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = str(value)
    rows = "1" if chance.random() < 0.3 else "rowid = 1"
    connection.execute(f'UPDATE OR REPLACE {table} SET "{column}" = ? WHERE {rows}', (value,))


def _history(path: Path) -> None:
    check_history(path)
    history = read_history(path)
    history.document()
    draw(make_report([history]), path)
    last_passed(path, _KEY)


def _sweep(path: Path) -> None:
    read_status(path)
    found = read_sweep(path)
    found.document()
    draw(make_report([found]), path)
    table = path.with_name("table.csv")
    try:
        export_rows(path, Filter(), table)
    finally:
        table.unlink(missing_ok=True)


TARGETS: Mapping[str, Target] = {"history": Target(_stored, _history), "store": Target(_stored, _sweep)}


def _careless(path: Path) -> None:
    """A reader that is wrong: it takes any database for a history, and its texts for what they should be."""
    with closing(sqlite3.connect(path)) as connection:
        for (text,) in connection.execute("SELECT entry FROM results LIMIT 2").fetchall():
            json.loads(text)


PLANTED = {"history": _careless}
