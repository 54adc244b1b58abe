"""Where cells are kept: in the same file as a history, which gets the figures of those that have them.

One row for each cell, with its figures as columns, so that `sqlite3 FILE` can ask, too; the documents, which are much
larger, in a table of their own. A cell is one question on one processor, and is finished once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxmem.errors import UsageError
from onnxmem.history.entry import Entry
from onnxmem.history.store import check_history, insert, is_new, reading, writing
from onnxmem.history.tables import SWEEPS
from onnxmem.result import now
from onnxmem.sweeping.cell import Cell, Stage
from onnxmem.sweeping.engine import ANY, Job
from onnxmem.sweeping.outcome import FAILED, FINISHED, WAITING, Outcome
from onnxmem.unknown import Unknown

_ODD = " OR ".join(
    [f"typeof({name}) NOT IN ('integer', 'real', 'null')" for name in ("bytes", "latency_seconds", "seconds")]
    + [f"typeof({name}) != 'text'" for name in ("verb", "state", "model", "mode", "processor", "size")]
)
"""A condition for what no sweep writes; an index holds all that it asks about."""


def check_store(path: Path) -> None:
    """Can cells be added to this file? Asked before any work."""
    check_history(path, but=("cell_documents",))


def begin_sweep(
    path: Path,
    cells: Sequence[Cell],
    *,
    processors: Mapping[Stage, Sequence[str]],
    each: bool,
    engine: str,
    command: str,
    commit: str | None,
    again: bool,
) -> list[Job]:
    """Write down what is asked for: those of the cells that are not finished yet.

    `processors` are those that cells of each stage meet. With `each`, all of them are to answer, and
    otherwise any. With `again`, failures wait once more.
    """
    with writing(path) as connection:
        for statement in SWEEPS:
            connection.execute(statement)
        made = connection.execute(
            'INSERT INTO sweeps (date, command, engine, "commit") VALUES (?, ?, ?, ?)', (now(), command, engine, commit)
        )
        sweep = int(made.lastrowid or 0)
        waiting: list[Job] = []
        for cell in cells:
            here = processors[cell.stage]
            for processor in here if each else (ANY,):
                number = _ask(connection, sweep, cell, processor, () if each else here, again)
                waiting += [] if number is None else [Job(id=number, cell=cell, processor=processor)]
        return waiting


def _ask(
    connection: sqlite3.Connection, sweep: int, cell: Cell, processor: str, others: Sequence[str], again: bool
) -> int | None:
    """The number of a cell that is to be worked out; None if it was, here or on one of the `others`."""
    places = ", ".join("?" * (1 + len(others)))
    found = connection.execute(
        f"SELECT id, state FROM cells WHERE question = ? AND processor IN ({places}) ORDER BY state = ? DESC",
        (cell.question, processor, *others, FINISHED),
    ).fetchone()
    if found is None:
        row = {**_row(cell), "sweep": sweep, "processor": processor, "state": WAITING}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        return connection.execute(f"INSERT INTO cells ({names}) VALUES ({marks})", tuple(row.values())).lastrowid
    number, state = found
    if state == FAILED and again:
        state = WAITING
    connection.execute(
        "UPDATE cells SET sweep = ?, state = ?, model = ?, size = ?, subject = ? WHERE id = ?",
        (sweep, state, cell.name, cell.size, cell.subject, number),
    )
    return int(number) if state == WAITING else None


def _row(cell: Cell) -> dict[str, object]:
    plain = cell.plain
    same = ("verb", "size", "onnxmem", "onnxruntime", "model_sha256")
    texts = {name: json.dumps(plain[name], sort_keys=True, ensure_ascii=False) for name in ("shapes", "settings")}
    return {
        "question": cell.question,
        "subject": cell.subject,
        "model": cell.name,
        "mode": cell.how,
        **{name: plain[name] for name in same},
        **texts,
    }


def finish(path: Path, job: Job, outcome: Outcome, commit: str | None) -> None:
    """Write down what came of a cell; if another sweep was faster, its answer stays."""
    cell, date = job.cell, now()
    with writing(path) as connection:
        taken = connection.execute(
            "SELECT count(*) FROM cells WHERE question = ? AND processor = ? AND (id != ? OR state = ?)",
            (cell.question, outcome.processor, job.id, FINISHED),
        ).fetchone()[0]
        if taken:
            connection.execute("DELETE FROM cells WHERE id = ? AND state = ?", (job.id, WAITING))
            return
        entry = _entry(cell, outcome, date, commit)
        values = {
            "processor": outcome.processor or job.processor,
            "state": outcome.state,
            "reason": outcome.reason,
            "message": outcome.message,
            "node": outcome.node,
            "date": date,
            "seconds": outcome.seconds,
            "bytes": _known(outcome.size),
            "latency_seconds": _known(outcome.latency),
            # The document is kept once, beside the cell.
            "result": None if entry is None else insert(connection, entry, {"cell": job.id}),
            '"commit"': commit,
        }
        listed = ", ".join(f"{name} = ?" for name in values)
        connection.execute(
            f"UPDATE cells SET {listed}, tries = tries + ? WHERE id = ?", (*values.values(), outcome.tries, job.id)
        )
        if outcome.result:
            text = json.dumps(outcome.result, ensure_ascii=False, separators=(",", ":"))
            connection.execute("INSERT OR REPLACE INTO cell_documents VALUES (?, ?)", (job.id, text))


def _entry(cell: Cell, outcome: Outcome, date: str, commit: str | None) -> Entry | None:
    """As a result of the history, where the outcome has all of its figures."""
    if outcome.state != FINISHED or outcome.figures is None:
        return None
    return Entry(
        key=cell.key,
        figures=outcome.figures,
        date=date,
        sha256=cell.sha256,
        onnxmem=cell.onnxmem,
        onnxruntime=cell.onnxruntime,
        machine=outcome.processor,
        commit=commit,
    )


def _known(value: Any) -> Any:
    return None if isinstance(value, Unknown) else value


@contextmanager
def asking(path: Path) -> Iterator[sqlite3.Connection]:
    """The store, to be asked only; an error if there is none, or no sweep in it."""
    hint = "onnxmem sweep --store FILE makes one"
    if not path.exists():
        raise UsageError(f"cannot read '{path}': there is no such file", hint=hint)
    if is_new(path):
        raise UsageError(f"'{path}' is empty", hint=hint)
    with reading(path) as connection:
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'cells'").fetchone()[0]:
            raise UsageError(f"'{path}' is a history without a sweep", hint="onnxmem history reads it")
        # SQLite keeps whatever is written, and computes with some of it.
        if connection.execute(f"SELECT 1 FROM cells WHERE {_ODD} LIMIT 1").fetchone():
            raise UsageError(f"'{path}' is damaged: a figure in it is no number, or a name is no text", hint=hint)
        connection.row_factory = sqlite3.Row
        yield connection


def expected_seconds(path: Path, cells: Iterable[Cell]) -> list[float | None]:
    """How long each cell will take, as earlier ones tell: of the same, of the same model, of the same verb."""
    cells = list(cells)
    if not path.exists() or is_new(path):
        return [None] * len(cells)
    with reading(path) as connection:
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'cells'").fetchone()[0]:
            return [None] * len(cells)
        tables: list[Mapping[Any, float]] = []
        for names in ("subject", "model, verb", "verb"):
            rows = connection.execute(
                f"SELECT {names}, avg(seconds) FROM cells WHERE state = ? GROUP BY {names}", (FINISHED,)
            )
            tables.append({tuple(row[:-1]): row[-1] for row in rows})

    def known(cell: Cell) -> float | None:
        keys = ((cell.subject,), (cell.name, cell.verb), (cell.verb,))
        return next((table[key] for table, key in zip(tables, keys, strict=True) if key in table), None)

    return [known(cell) for cell in cells]


def finished_questions(path: Path, processors: Sequence[str]) -> set[str]:
    """The questions that are answered for one of these processors."""
    if not path.exists() or is_new(path):
        return set()
    with reading(path) as connection:
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'cells'").fetchone()[0]:
            return set()
        places = ", ".join("?" * len(processors))
        rows = connection.execute(
            f"SELECT question FROM cells WHERE state != ? AND processor IN ({places})", (WAITING, *processors)
        )
        return {question for (question,) in rows}
