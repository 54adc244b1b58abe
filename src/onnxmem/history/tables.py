"""The tables of the file: those of a history, and those that a sweep adds. A file with any others is none of ours."""

from __future__ import annotations

RESULTS = (
    """CREATE TABLE results (
        id INTEGER PRIMARY KEY,
        date TEXT NOT NULL,
        model TEXT NOT NULL,
        model_sha256 TEXT NOT NULL,
        mode TEXT NOT NULL,
        shapes TEXT NOT NULL,
        threads INTEGER,
        settings TEXT NOT NULL,
        "by" TEXT NOT NULL,
        onnxmem TEXT NOT NULL,
        onnxruntime TEXT NOT NULL,
        machine TEXT NOT NULL,
        "commit" TEXT,
        passed INTEGER NOT NULL,
        peak_bytes INTEGER,
        load_peak_bytes INTEGER,
        loaded_bytes INTEGER,
        run_growth_bytes INTEGER,
        steady_bytes INTEGER,
        latency_seconds REAL,
        entry TEXT NOT NULL,
        document TEXT NOT NULL
    )""",
    "CREATE INDEX results_by_key ON results (model, mode, shapes, threads, settings, date)",
)
"""What a history is made of."""

SWEEPS = (
    """CREATE TABLE IF NOT EXISTS sweeps (
        id INTEGER PRIMARY KEY,
        date TEXT NOT NULL,
        command TEXT NOT NULL,
        engine TEXT NOT NULL,
        "commit" TEXT
    )""",
    """CREATE TABLE IF NOT EXISTS cells (
        id INTEGER PRIMARY KEY,
        sweep INTEGER NOT NULL,
        question TEXT NOT NULL,
        processor TEXT NOT NULL,
        subject TEXT NOT NULL,
        verb TEXT NOT NULL,
        model TEXT NOT NULL,
        model_sha256 TEXT NOT NULL,
        mode TEXT NOT NULL,
        size TEXT NOT NULL,
        shapes TEXT NOT NULL,
        settings TEXT NOT NULL,
        onnxmem TEXT NOT NULL,
        onnxruntime TEXT NOT NULL,
        "commit" TEXT,
        state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        message TEXT NOT NULL DEFAULT '',
        tries INTEGER NOT NULL DEFAULT 0,
        node TEXT NOT NULL DEFAULT '',
        date TEXT NOT NULL DEFAULT '',
        seconds REAL,
        bytes INTEGER,
        latency_seconds REAL,
        result INTEGER REFERENCES results (id),
        UNIQUE (question, processor)
    )""",
    "CREATE INDEX IF NOT EXISTS cells_by_sweep ON cells (sweep, state)",
    "CREATE INDEX IF NOT EXISTS cells_by_subject ON cells (subject, id)",
    # Holds all that the tables of a report are made of, in their order.
    """CREATE INDEX IF NOT EXISTS cells_shown ON cells
        (sweep, verb, state, model, mode, processor, size, bytes, latency_seconds, seconds)""",
    """CREATE TABLE IF NOT EXISTS cell_documents (
        cell INTEGER PRIMARY KEY REFERENCES cells (id),
        document TEXT NOT NULL
    )""",
)
"""What a sweep adds to it."""

_ANEW = "IF NOT EXISTS "


def _plain(statement: str) -> str:
    """As SQLite keeps it, on one line."""
    return " ".join(statement.replace(_ANEW, "", 1).split())


# Whoever changes a table adds what it was to these, for as long as such files are read.
_OURS = frozenset(map(_plain, (*RESULTS, *SWEEPS)))


def is_ours(kind: object, name: object, statement: object) -> bool:
    """Whether this row of `sqlite_master` is a table or an index that onnxmem makes.

    Not by what it is: the conditions, defaults and indices of a table can be programs just as views and triggers are.
    """
    if statement is None:  # SQLite makes these for UNIQUE
        return kind == "index" and str(name).startswith("sqlite_autoindex_")
    return isinstance(statement, str) and " ".join(statement.split()) in _OURS
