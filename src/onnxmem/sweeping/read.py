"""What does a store say? Its last sweep: as a status, as a whole, or row by row. Tables are made by SQLite."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from onnxmem.errors import UsageError
from onnxmem.history.entry import ON, Origin
from onnxmem.history.tolerance import USUAL, Tolerance
from onnxmem.measurement.device import HOST
from onnxmem.sweeping.outcome import FAILED, FINISHED, WAITING
from onnxmem.sweeping.store import asking
from onnxmem.sweeping.sweep_result import CellRow, Change, MapRow, SizeMap, Status, Sweep, SweepStatus, Trade
from onnxmem.sweeping.verbs import VERBS, Verb

_SLOWEST = 3
_MOST_ROWS, _MOST_SIZES, _MOST_TRADES, _MOST_CHANGES, _MOST_FAILURES = 40, 12, 400, 20, 20
_ORIGIN = {
    "sha256": "model_sha256",
    "onnxmem": "onnxmem",
    "onnxruntime": "onnxruntime",
    "machine": "processor",
    "commit": "commit",
}
COLUMNS = tuple("latency_seconds" if each.name == "latency" else each.name for each in fields(CellRow))


@dataclass(frozen=True)
class _Group:
    """All cells of one kind that ended alike: what SQLite counts in one go through its index, and tables begin with."""

    verb: str
    state: str
    model: str
    mode: str
    processor: str
    count: int
    seconds: float
    largest: int | None
    first: int

    @property
    def device(self) -> str:
        """Where it ran."""
        return self.mode.partition(ON)[2] or HOST


@dataclass(frozen=True)
class Filter:
    """Which cells: of the last sweep or of all, and only of these."""

    all_sweeps: bool = False
    model: str | None = None
    verb: str | None = None
    mode: str | None = None

    def where(self, connection: sqlite3.Connection) -> tuple[str, list[object]]:
        """As a condition, with its values."""
        parts: list[str] = ["1"]
        values: list[object] = []
        if not self.all_sweeps:
            parts.append("sweep = ?")
            values.append(connection.execute("SELECT max(id) FROM sweeps").fetchone()[0])
        for name in ("model", "verb", "mode"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name} = ?")
                values.append(value)
                if not connection.execute(f"SELECT 1 FROM cells WHERE {name} = ? LIMIT 1", (value,)).fetchone():
                    rows = connection.execute(f"SELECT DISTINCT {name} FROM cells LIMIT 20")
                    listed = ", ".join(str(row[0]) for row in rows if row[0])
                    raise UsageError(f"no cell is of {name} '{value}'", hint=f"there are: {listed}")
        return " AND ".join(parts), values


def read_status(path: str | os.PathLike[str]) -> SweepStatus:
    """How far is it? `read_status("sweep.sqlite")` tells of its last sweep, also while that is going on."""
    with asking(Path(path)) as connection:
        where, values = Filter().where(connection)
        groups = _groups(connection, where, values)
        return SweepStatus(file=Path(path), status=_status(connection, where, values, groups))


def read_sweep(
    path: str | os.PathLike[str],
    *,
    all_sweeps: bool = False,
    model: str | None = None,
    verb: str | None = None,
    mode: str | None = None,
    tolerance: str = USUAL,
    notes: Sequence[str] = (),
) -> Sweep:
    """What was found? `read_sweep("sweep.sqlite", model="net.onnx")` reads the last sweep of a store.

    With `all_sweeps`, cells that only earlier sweeps asked for are there, too. A cell counts as changed if it takes
    more or less than the same one before by more than the `tolerance`.
    """
    file, allowed = Path(path), Tolerance.parse(tolerance)
    with asking(file) as connection:
        where, values = Filter(all_sweeps, model, verb, mode).where(connection)
        groups = _groups(connection, where, values)
        changes, changed = _changes(connection, where, values, allowed)
        maps = [each for verb in VERBS for each in _maps(connection, where, values, verb, groups)]
        measured = [row.model for each in maps if each.verb == "measure" for row in each.rows]
        failures = connection.execute(
            f"SELECT {_quoted(COLUMNS)} FROM cells WHERE {where} AND state = ? ORDER BY id LIMIT {_MOST_FAILURES}",
            (*values, FAILED),
        )
        return Sweep(
            file=file,
            status=_status(connection, where, values, groups),
            maps=tuple(maps),
            trades=_trades(connection, where, values, tuple(dict.fromkeys(measured))),
            changes=changes,
            changed=changed,
            tolerance=allowed,
            failures=tuple(map(_cell_row, failures)),
            notes=tuple(notes),
        )


def read_rows(path: Path, chosen: Filter) -> Iterator[dict[str, Any]]:
    """All cells, as plain rows in the order in which they were asked for."""
    with asking(path) as connection:
        where, values = chosen.where(connection)
        for row in connection.execute(f"SELECT {_quoted(COLUMNS)} FROM cells WHERE {where} ORDER BY id", values):
            yield dict(row)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _cell_row(row: sqlite3.Row) -> CellRow:
    return CellRow(**{"latency" if name == "latency_seconds" else name: row[name] for name in COLUMNS})


def _groups(connection: sqlite3.Connection, where: str, values: Sequence[object]) -> list[_Group]:
    names = "verb, state, model, mode, processor"
    rows = connection.execute(
        f"SELECT {names}, count(*), total(seconds), max(bytes), min(id) FROM cells WHERE {where} GROUP BY {names}",
        values,
    )
    return [_Group(*row) for row in rows]


def _status(connection: sqlite3.Connection, where: str, values: Sequence[object], groups: Sequence[_Group]) -> Status:
    last = connection.execute("SELECT id, date, engine FROM sweeps ORDER BY id DESC LIMIT 1").fetchone()
    if last is None:
        raise UsageError(
            "the store has cells, but no sweep that they are of", hint="name a file that a sweep has written"
        )
    states: Counter[str] = Counter()
    verbs: Counter[str] = Counter()
    for group in groups:
        states[group.state] += group.count
        verbs[group.verb] += group.count
    processors = dict.fromkeys(group.processor for group in groups if group.processor)
    seconds = sum(group.seconds for group in groups if group.state == FINISHED)
    reasons = connection.execute(
        f"SELECT reason, count(*) FROM cells WHERE {where} AND state = ? GROUP BY reason ORDER BY 2 DESC",
        (*values, FAILED),
    )
    slowest = connection.execute(
        f"SELECT {_quoted(COLUMNS)} FROM cells WHERE id IN (SELECT id FROM cells WHERE {where} AND seconds IS NOT NULL "
        f"ORDER BY seconds DESC LIMIT {_SLOWEST}) ORDER BY seconds DESC",
        values,
    )
    waiting, finished = states[WAITING], states[FINISHED]
    return Status(
        sweep=last["id"],
        date=last["date"],
        engine=last["engine"],
        finished=finished,
        failed=states[FAILED],
        waiting=waiting,
        verbs=dict(verbs),
        reasons={row[0]: row[1] for row in reasons},
        processors=tuple(processors),
        seconds=seconds,
        left=0.0 if not waiting else seconds / finished * waiting if finished else None,
        slowest=tuple(map(_cell_row, slowest)),
    )


def _maps(
    connection: sqlite3.Connection, where: str, values: Sequence[object], verb: Verb, groups: Sequence[_Group]
) -> Iterator[SizeMap]:
    """One of the CPU's memory, and one of each device's."""
    known = [each for each in groups if (each.verb, each.state) == (verb.name, FINISHED) and each.largest is not None]
    for device in sorted({group.device for group in known}):
        label = verb.label if device == HOST else f"{verb.device_label}, {device}"
        rows = [group for group in known if group.device == device]
        yield _map(connection, f"{where} AND verb = ?", (*values, verb.name), rows, SizeMap(
            verb=verb.name, label=label, sizes=(), rows=()
        ))  # fmt: skip


def _map(
    connection: sqlite3.Connection, where: str, values: Sequence[object], rows: Sequence[_Group], about: SizeMap
) -> SizeMap:
    """The largest rows. Cells are fetched only for these: there may be a hundred thousand others."""
    largest = sorted(rows, key=lambda row: -(row.largest or 0))[:_MOST_ROWS]
    ordered = sorted(largest, key=lambda row: row.first)
    shown: dict[tuple[str, str, str], dict[str, int]] = {(row.model, row.mode, row.processor): {} for row in ordered}
    models = tuple(dict.fromkeys(key[0] for key in shown))
    sizes: dict[str, None] = {}
    for model, mode, processor, size, taken in connection.execute(
        f"SELECT model, mode, processor, size, bytes FROM cells WHERE {where} AND state = ? AND bytes IS NOT NULL "
        f"AND model IN ({_marks(models)}) ORDER BY +id",  # the sign: so that SQLite does not go by that from the start
        (*values, FINISHED, *models),
    ):
        found = shown.get((model, mode, processor))
        if found is not None:
            sizes[size] = None
            found[size] = taken
    columns, several = tuple(sizes)[:_MOST_SIZES], len({row.processor for row in rows}) > 1
    return replace(
        about,
        sizes=columns,
        rows=tuple(
            MapRow(model=model, mode=mode, processor=processor if several else "", bytes=tuple(map(found.get, columns)))
            for (model, mode, processor), found in shown.items()
        ),
        left_out=len(rows) - len(largest),
    )


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _trades(
    connection: sqlite3.Connection, where: str, values: Sequence[object], models: Sequence[str]
) -> tuple[Trade, ...]:
    """Measured cells of these models, and which of them are worth having."""
    groups: dict[tuple[str, str, str], list[tuple[str, int, float]]] = {}
    rows = connection.execute(
        f"SELECT model, size, processor, mode, bytes, latency_seconds FROM cells WHERE {where} AND verb = 'measure' "
        f"AND state = ? AND bytes IS NOT NULL AND latency_seconds IS NOT NULL "
        f"AND model IN ({_marks(models)}) ORDER BY +id",
        (*values, FINISHED, *models),
    )
    for model, size, processor, mode, taken, latency in rows:
        groups.setdefault((model, size, processor), []).append((mode, taken, latency))
    # The largest where there are too many: there is most to gain.
    chosen = sorted(groups.items(), key=lambda group: -max(each[1] for each in group[1]))
    trades = (
        Trade(
            model=model,
            mode=mode,
            size=size,
            processor=processor,
            bytes=taken,
            latency=latency,
            best=not any(_beats(other, (taken, latency)) for other in group),
        )
        for (model, size, processor), group in chosen
        for mode, taken, latency in group
    )
    return tuple(itertools.islice(trades, _MOST_TRADES))


def _beats(other: tuple[str, int, float], one: tuple[int, float]) -> bool:
    size, latency = other[1], other[2]
    return size <= one[0] and latency <= one[1] and (size, latency) != one


def _changes(
    connection: sqlite3.Connection, where: str, values: Sequence[object], tolerance: Tolerance
) -> tuple[tuple[Change, ...], int]:
    """Cells that take more or less than the same did before, on the same processor if there is one: the largest
    changes, and how many there are."""
    earlier = (
        "SELECT max(q.id) FROM cells q WHERE q.subject = cells.subject AND q.id < cells.id AND q.state = 'finished' "
        "AND q.bytes IS NOT NULL"
    )
    # Most have nothing before them: an index tells which do, and only those are looked up.
    again = "SELECT subject FROM cells GROUP BY subject HAVING count(*) > 1"
    chosen = f"coalesce(({earlier} AND q.processor = cells.processor), ({earlier}))"
    pairs = connection.execute(
        f"WITH c AS (SELECT id, bytes, {chosen} AS earlier FROM cells "
        f"WHERE {where} AND state = 'finished' AND bytes IS NOT NULL AND subject IN ({again})) "
        f"SELECT p.id, c.id, p.bytes, c.bytes FROM c JOIN cells p ON p.id = c.earlier",
        values,
    )
    changed = [
        (abs(after - before), first, second)
        for first, second, before, after in pairs
        if max(before, after) > tolerance.above(min(before, after))
    ]
    largest = sorted(changed, key=lambda each: -each[0])[:_MOST_CHANGES]
    return tuple(_change(connection, first, second) for _, first, second in largest), len(changed)


def _change(connection: sqlite3.Connection, first: int, second: int) -> Change:
    names = ("verb", "model", "mode", "size", "date", "bytes", *_ORIGIN.values())
    before, after = (
        connection.execute(f"SELECT {_quoted(names)} FROM cells WHERE id = ?", (number,)).fetchone()
        for number in (first, second)
    )
    came, now = (Origin(**{key: row[name] for key, name in _ORIGIN.items()}) for row in (before, after))
    return Change(
        verb=after["verb"],
        model=after["model"],
        mode=after["mode"],
        size=after["size"],
        before=before["bytes"],
        after=after["bytes"],
        since=came.changes(now),
        date=before["date"],
    )
