"""The store: what is finished is never repeated nor doubled, and it is a history, too."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.history.history import read_history
from onnxmem.history.store import append, last_passed, read_entries
from onnxmem.sweeping.outcome import CRASH, LOST, failure
from onnxmem.sweeping.read import Filter, read_rows, read_status, read_sweep
from onnxmem.sweeping.store import check_store, expected_seconds, finish, finished_questions
from tests.unit.history.samples import entry
from tests.unit.sweeping.samples import ELSEWHERE, HERE, MIB, begin, cell, outcome, swept


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.sqlite"


def states(path: Path) -> list[str]:
    return [row["state"] for row in read_rows(path, Filter())]


def test_finished_cells_are_not_asked_again(store: Path) -> None:
    both = cell(), cell(mode="planned")
    jobs = begin(store, *both)
    assert [job.cell for job in jobs] == list(both) and states(store) == ["waiting", "waiting"]
    finish(store, jobs[0], outcome(), "c" * 40)
    # As after a kill: the same is asked for once more.
    (left,) = begin(store, *both)
    assert left.cell == both[1] and left.id == jobs[1].id and states(store) == ["finished", "waiting"]
    status = read_status(store).status
    assert (status.sweep, status.finished, status.waiting, status.left) == (2, 1, 1, 2.0)


def test_failures_stay_until_they_are_to_be_tried_again(store: Path) -> None:
    (job,) = begin(store, cell())
    finish(store, job, failure(CRASH, "SIGSEGV", tries=1), None)
    assert begin(store, cell()) == []
    (again,) = begin(store, cell(), again=True)
    assert again.id == job.id and states(store) == ["waiting"]
    finish(store, again, outcome(tries=2), None)
    (row,) = read_rows(store, Filter())
    assert row["state"] == "finished" and row["reason"] == "" and row["tries"] == 3


def test_two_sweeps_at_once_do_not_double(store: Path) -> None:
    (one,), (other,) = begin(store, cell()), begin(store, cell())
    finish(store, one, outcome(100 * MIB), None)
    finish(store, other, outcome(200 * MIB), None)
    (row,) = read_rows(store, Filter())
    assert row["bytes"] == 100 * MIB and len(read_entries(store)) == 1


def test_any_processor_or_each(store: Path) -> None:
    here = (HERE, ELSEWHERE)
    (job,) = begin(store, cell(), processors=here, each=False)
    finish(store, job, outcome(processor=ELSEWHERE), None)
    assert begin(store, cell(), processors=here, each=False) == []
    assert finished_questions(store, here) == {cell().question} and finished_questions(store, (HERE,)) == set()
    (left,) = begin(store, cell(), processors=here)
    assert left.processor == HERE
    # Lost without having met a processor: it has failed for all of them.
    (lost,) = begin(store, cell(mode="tuned"), processors=here, each=False)
    finish(store, lost, failure(LOST, "the node is gone"), None)
    assert begin(store, cell(mode="tuned"), processors=here, each=False) == []


def test_it_is_a_history(store: Path) -> None:
    swept(
        store,
        (cell(), outcome()),
        (cell(verb="estimate"), outcome(90 * MIB)),
        (cell(verb="plan"), outcome(MIB, figures=None)),
    )
    first, second = read_entries(store)
    assert first.key == cell().key and first.figures.peak == 100 * MIB and first.machine == HERE
    assert second.key.by == "estimate"
    last = last_passed(store, cell().key)
    assert last is not None and last.figures.peak == 100 * MIB
    # And what checks add is in the way of nobody.
    append(store, entry(), {})
    assert len(read_history(store).series) == 3 and len(states(store)) == 3


def test_a_history_becomes_a_store(store: Path) -> None:
    append(store, entry(), {})
    with pytest.raises(UsageError, match="is a history without a sweep"):
        read_sweep(store)
    assert expected_seconds(store, [cell()]) == [None]
    swept(store, (cell(), outcome()))
    assert states(store) == ["finished"] and len(read_entries(store)) == 2


def test_time_is_told_from_the_nearest_that_is_known(store: Path) -> None:
    assert expected_seconds(store, [cell()]) == [None]
    swept(store, (cell(), outcome(seconds=2.0)), (cell(mode="planned"), outcome(seconds=4.0)))
    newer = cell(onnxruntime="1.30.0")
    other_size, other_model = cell(size="batch=2", shapes={"x": (2, 8)}), cell(name="other.onnx")
    asked = [newer, other_size, other_model, cell(verb="share")]
    assert expected_seconds(store, asked) == [2.0, 3.0, 3.0, None]


def test_a_store_of_an_earlier_version_and_one_that_sqlite_has_written_anew(store: Path) -> None:
    (job,) = begin(store, cell())
    with sqlite3.connect(store) as connection:
        connection.execute("DROP INDEX cells_shown")
        connection.commit()
        connection.execute("VACUUM")
    check_store(store)
    finish(store, job, outcome(), None)
    assert begin(store, cell()) == [] and states(store) == ["finished"]


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cells (id INTEGER)")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"cell,bytes\n", "it is not an SQLite file"),
        (None, "the database of another program"),
        (b"", "is empty"),
    ],
)
def test_a_file_of_someone_else(store: Path, content: bytes | None, said: str) -> None:
    foreign(store) if content is None else store.write_bytes(content)
    with pytest.raises(OnnxmemError, match=said):
        read_sweep(store)
    if content != b"":
        with pytest.raises(OnnxmemError, match=said):
            check_store(store)


def test_garbage_in_the_middle(store: Path) -> None:
    swept(store, *((cell(name=f"{k}.onnx", sha256=f"{k:064}"), outcome()) for k in range(40)))
    content = bytearray(store.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    store.write_bytes(content)
    with pytest.raises(OnnxmemError, match="is damaged"):
        read_sweep(store)
    with pytest.raises(OnnxmemError, match="is damaged"):
        check_store(store)


def test_there_is_no_store(store: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        read_status(store)
