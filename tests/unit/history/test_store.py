"""A history keeps what it was given, and leaves files that are none of its own as they are."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.history.store import append, check_history, last_passed, read_entries
from tests.unit.history.samples import MIB, entry, figures, key


def test_what_was_added_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    first, second = entry(), entry(None, day=2, key=key(threads=4, settings={"enable_mem_pattern": False}))
    append(file, first, {"schema": "any"})
    append(file, second, {})
    append(file, other := entry(key=key(model="other.onnx")), {})
    assert read_entries(file) == (first, second, other)
    assert read_entries(file, "net.onnx") == (first, second)
    check_history(file)
    rows = sqlite3.connect(file).execute("SELECT model, peak_bytes, run_growth_bytes, document FROM results").fetchall()
    assert rows[0] == ("net.onnx", 100 * MIB, None, json.dumps({"schema": "any"})) and rows[1][1] is None


def test_the_last_that_passed_about_the_same(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    assert last_passed(file, key()) is None and not file.exists()
    append(file, good := entry(), {})
    append(file, entry(200 * MIB, passed=False), {})
    append(file, entry(key=key(threads=1)), {})
    append(file, entry(key=key(mode="planned")), {})
    append(file, entry(key=key(shapes={"x": (2, 3, 8, 8)})), {})
    assert last_passed(file, key()) == good
    assert last_passed(file, key(by="estimate")) is None


def test_the_order_of_inputs_is_no_difference(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    append(file, entry(key=key(shapes={"a": (1,), "b": (2,)})), {})
    assert last_passed(file, key(shapes={"b": (2,), "a": (1,)})) is not None


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE results (a)")
    connection.close()


def text(path: Path) -> None:
    path.write_text("date,peak\n")


def newer(path: Path) -> None:
    append(path, entry(), {})
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(foreign, "the database of another program"), (text, "not an SQLite file"), (newer, "a newer onnxmem")],
)
def test_a_file_of_someone_else_is_refused_and_not_changed(tmp_path: Path, spoil: object, said: str) -> None:
    file = tmp_path / "h.sqlite"
    spoil(file)  # type: ignore[operator]
    before = file.read_bytes()
    for ask in (lambda: check_history(file), lambda: read_entries(file), lambda: append(file, entry(), {})):
        with pytest.raises(UsageError, match=said):
            ask()
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["h.sqlite"]


def test_a_damaged_history_is_an_error_and_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    for _ in range(200):
        append(file, entry(), {"much": "x" * 500})
    content = bytearray(file.read_bytes())
    content[4096 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4096)
    file.write_bytes(content)
    with pytest.raises(OnnxmemError, match="is damaged") as raised:
        check_history(file)
    assert raised.value.exit_code == 3 and "recover" in raised.value.hint
    with pytest.raises(OnnxmemError, match="is damaged"):
        read_entries(file)
    assert file.read_bytes() == bytes(content)


@pytest.mark.parametrize(
    "program",
    [
        "DROP TABLE results; CREATE VIEW results AS "
        "WITH RECURSIVE n(entry) AS (SELECT 1 UNION ALL SELECT entry + 1 FROM n) SELECT * FROM n",
        "CREATE TRIGGER t AFTER INSERT ON results BEGIN DELETE FROM results; END",
        "ALTER TABLE results ADD COLUMN made AS (hex(zeroblob(500000000)))",
        "CREATE TABLE more (a CHECK (instr(zeroblob(100000000), zeroblob(50000000) || x'01') = 0))",
        "CREATE INDEX more ON results (hex(entry || entry))",
        "CREATE TABLE more (a)",
        "PRAGMA writable_schema = 1; UPDATE sqlite_master SET sql = "
        "replace(sql, 'document TEXT', 'document TEXT CHECK (hex(zeroblob(500000000)) = 1)') WHERE name = 'results'",
    ],
)
def test_a_history_with_a_program_in_it_is_refused(tmp_path: Path, program: str) -> None:
    file = tmp_path / "h.sqlite"
    append(file, entry(), {})
    with sqlite3.connect(file) as connection:
        connection.executescript(program)
    connection.close()
    for ask in (lambda: check_history(file), lambda: read_entries(file), lambda: append(file, entry(), {})):
        with pytest.raises(UsageError, match="more in it than tables"):
            ask()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 100_000, "nested too deeply"),
        (
            json.dumps({**entry().document(), "figures": {**figures().document(), "latency_seconds": 10**400}}),
            "'figures.latency_seconds'",
        ),
        (
            json.dumps({**entry().document(), "figures": {**figures().document(), "peak_bytes": 10**400}}),
            "'figures.peak_bytes'",
        ),
    ],
)
def test_results_that_cannot_be_read_are_damage(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "h.sqlite"
    append(file, entry(), {})
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET entry = ?", (content,))
    connection.close()
    with pytest.raises(OnnxmemError, match=f"is damaged: .*{said}"):
        read_entries(file)


def test_an_empty_file_is_a_history_without_results(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    file.touch()
    check_history(file)
    assert read_entries(file) == ()
    append(file, entry(), {})
    assert len(read_entries(file)) == 1


def test_files_that_cannot_be_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder"):
        check_history(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        check_history(tmp_path / "nowhere" / "h.sqlite")
    with pytest.raises(UsageError, match="there is no such file"):
        read_entries(tmp_path / "none.sqlite")
    # Permissions allow it there, for root, and the system does not.
    for ask in (check_history, lambda file: append(file, entry(), {})):
        with pytest.raises(UsageError, match=r"cannot write '/proc/h\.sqlite'") as raised:
            ask(Path("/proc/h.sqlite"))
        assert raised.value.hint == "choose a folder you may write to"


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file, threads = tmp_path / "h.sqlite", 8
    begin = threading.Barrier(threads)

    def write(number: int) -> None:
        begin.wait()  # the file is not there yet: they all make it
        for k in range(10):
            append(file, entry(peak=number * 100 + k), {})

    writers = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(e.figures.peak for e in read_entries(file) if isinstance(e.figures.peak, int)) == sorted(
        number * 100 + k for number in range(threads) for k in range(10)
    )
