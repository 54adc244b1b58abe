"""Where results are kept: an SQLite file, to which any number of processes may add at once.

One row for each result, with its figures as columns, so that `sqlite3 FILE` can ask, too, and the whole as JSON.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shutil import disk_usage

from onnxmem.documents import Document, encode
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.files import MAY_WRITE, check_folder_of
from onnxmem.history.entry import Entry, Key
from onnxmem.history.tables import RESULTS, is_ours
from onnxmem.unknown import Unknown

# Stands in the file's header: other programs' databases are told apart before SQLite has touched anything.
_APPLICATION, _VERSION = int.from_bytes(b"oxmh"), 1
_MAGIC, _HEADER = b"SQLite format 3\0", 100
# Seconds to wait for another process's write, which takes milliseconds.
_PATIENCE = 60.0
# What SQLite needs at the least to begin a change, in bytes.
_LEAST_ROOM = 256 * 1024
_LONGEST = 256 * 2**20
"""Of a text in the file, in bytes."""
# What SQLite says where it may not write.
_NOT_ALLOWED = ("unable to open", "readonly")
_HINT = "name a new file, or one that --history has written"

_KEY = ("model", "mode", "shapes", "threads", "settings", "by")
_FIGURES = ("peak", "load_peak", "loaded", "run_growth", "steady", "latency")
_SCHEMA = (
    *RESULTS,
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


def check_history(path: Path, but: Sequence[str] = ()) -> None:
    """Can results be added to this file? Asked before any work; a file that is not there yet is made later.

    Every page is read of all tables `but` these: of thousands of documents that takes a minute.
    """
    if path.is_dir():
        raise UsageError(f"cannot write '{path}': it is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{path}': there is no folder '{path.parent}'")
    check_folder_of(path)  # SQLite keeps its journal beside the file
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"cannot write '{path}': Permission denied", hint=MAY_WRITE)
    if not is_new(path):
        with reading(path) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            asked = [name for (name,) in tables if name not in but]
            said = [connection.execute("SELECT * FROM pragma_quick_check(?)", (name,)).fetchone()[0] for name in asked]
        wrong = next((each for each in said if each != "ok"), None)
        if wrong is not None:
            raise damaged(path, wrong)


def append(path: Path, entry: Entry, document: Document) -> None:
    """Add one result; the file is made if there is none. It is on the disk when this returns."""
    with writing(path) as connection:
        insert(connection, entry, document)


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """One change of the file, whole or not at all; it is made if there is none, and on the disk when the block ends."""
    is_new(path)
    with (
        named(path, writes=True),
        closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection,
    ):
        # Whoever comes second waits here, and then finds what the first has made.
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            _check_tables(connection, path)
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA:
                    connection.execute(statement)
            yield connection
        # Readers and writers then do not wait for each other. Refused while another has the file open: then it is
        # theirs to ask for, and nothing is lost without it.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")


def insert(connection: sqlite3.Connection, entry: Entry, document: Document) -> int:
    """Add one result to what `writing` changes: its number."""
    row = _row(entry, document)
    names, places = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
    return int(
        connection.execute(f"INSERT INTO results ({names}) VALUES ({places})", tuple(row.values())).lastrowid or 0
    )


def read_entries(path: Path, model: str | None = None) -> tuple[Entry, ...]:
    """All results in the order they were added, or those of one model."""
    where, values = ("WHERE model = ?", (model,)) if model is not None else ("", ())
    return _select(path, f"{where} ORDER BY id", values)


def last_passed(path: Path, key: Key) -> Entry | None:
    """The newest result about the same that was as it should be; None if there is none, or no file yet."""
    if is_new(path):
        return None
    same = " AND ".join(f'"{name}" IS ?' for name in _KEY)
    found = _select(path, f"WHERE {same} AND passed ORDER BY id DESC LIMIT 1", tuple(_key_row(key).values()))
    return found[0] if found else None


def _select(path: Path, rest: str, values: tuple[object, ...]) -> tuple[Entry, ...]:
    if not path.exists():
        raise UsageError(f"cannot read '{path}': there is no such file", hint="onnxmem check --history FILE makes one")
    if is_new(path):
        return ()
    with reading(path) as connection:
        rows = connection.execute(f"SELECT entry FROM results {rest}", values).fetchall()
    try:
        return tuple(Entry.from_document(json.loads(text)) for (text,) in rows)
    except RecursionError as error:
        raise damaged(path, "a result in it is nested too deeply") from error
    except (ValueError, TypeError, UsageError) as error:
        raise damaged(path, str(error)) from error


def _key_row(key: Key) -> dict[str, object]:
    """The key as columns: what is a table there is text that is the same for the same table."""
    plain = key.document()
    return {name: _text(plain[name]) if name in ("shapes", "settings") else plain[name] for name in _KEY}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _row(entry: Entry, document: Document) -> dict[str, object]:
    figures = {f"{name}_bytes": getattr(entry.figures, name) for name in _FIGURES if name != "latency"}
    figures["latency_seconds"] = entry.figures.latency
    plain = {key: None if isinstance(value, Unknown) else value for key, value in figures.items()}
    made = {name: getattr(entry, name) for name in ("date", "onnxmem", "onnxruntime", "machine", "commit", "passed")}
    texts = {"entry": _text(entry.document()), "document": _text(encode(document))}
    return {**_key_row(entry.key), "model_sha256": entry.sha256, **made, **plain, **texts}


def is_new(path: Path) -> bool:
    """Whether there is no history in the file yet; an error if there is something else. Nothing but bytes is read."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError(f"cannot read '{path}': it is not a file")  # a pipe would be waited for
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    if not header:
        return True
    if not header.startswith(_MAGIC) or len(header) < _HEADER:
        raise UsageError(f"'{path}' is no history: it is not an SQLite file", hint=_HINT)
    version, application = int.from_bytes(header[60:64]), int.from_bytes(header[68:72])
    if application != _APPLICATION:
        raise UsageError(f"'{path}' is no history: it is the database of another program", hint=_HINT)
    if version > _VERSION:
        raise UsageError(f"'{path}' was written by a newer onnxmem", hint="pip install --upgrade onnxmem")
    return False


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, to be asked only; it must have a history."""
    address = path.resolve().as_uri()
    with named(path):
        try:
            connection = sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=_PATIENCE)
            connection.execute("PRAGMA query_only = 1")
            _check_tables(connection, path)
            connection.execute("SELECT 1 FROM results LIMIT 1")
        except sqlite3.OperationalError:
            # In a folder that cannot be written to there is no room for what readers share: then nobody writes, either.
            if os.access(path.parent, os.W_OK):
                raise
            connection = sqlite3.connect(f"{address}?immutable=1", uri=True)
            _check_tables(connection, path)
        with closing(connection):
            yield connection


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Nothing but our own tables and their indices: a view, a trigger, a condition or a column that is computed is a
    program, which may come from a stranger and need not end."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    connection.execute("PRAGMA trusted_schema = 0")
    found = connection.execute("SELECT type, name, sql FROM sqlite_master")
    if not all(is_ours(*row) for row in found):
        raise UsageError(f"'{path}' is no history: it has more in it than tables", hint=_HINT)


@contextmanager
def named(path: Path, *, writes: bool = False) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise OnnxmemError(f"cannot write '{path}': another process keeps it locked") from error
        # On a full disk SQLite cannot even make room for what readers share, and calls that an I/O error.
        if "is full" in str(error) or ("I/O" in str(error) and disk_usage(path.parent).free < _LEAST_ROOM):
            hint = "make room, and give the same command again: nothing that is written is lost"
            raise OnnxmemError(f"no room is left for '{path}': the disk is full", hint=hint) from error
        if writes and any(said in str(error) for said in _NOT_ALLOWED):
            raise UsageError(f"cannot write '{path}': {error}", hint=MAY_WRITE) from error
        raise OnnxmemError(f"cannot use '{path}': {error}") from error
    except sqlite3.DatabaseError as error:
        raise damaged(path, str(error)) from error
    except UnicodeDecodeError as error:  # Python cannot read what SQLite says of a name that is not text
        raise damaged(path, "a name in it is not text") from error


def damaged(path: Path, why: str) -> OnnxmemError:
    """What to say of a file whose content makes no sense."""
    text = " ".join(why.split())
    return OnnxmemError(f"the history '{path}' is damaged: {text}", hint=f"keep it for sqlite3's .recover, and {_HINT}")
