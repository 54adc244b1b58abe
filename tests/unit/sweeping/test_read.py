"""What a store says: sizes by models, trades, changes and who is to blame; and all of it as tables."""

from __future__ import annotations

import csv
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from onnxmem.errors import MissingDependency, UsageError
from onnxmem.report.build import make_report
from onnxmem.report.render.to_terminal import render_terminal
from onnxmem.sweeping.cell import Settings
from onnxmem.sweeping.export import check_export, export_rows
from onnxmem.sweeping.outcome import NO_MEMORY, failure
from onnxmem.sweeping.read import Filter, read_status, read_sweep
from onnxmem.sweeping.sweep_result import PlannedCell, Sweep, SweepPlan, SweepStatus
from tests.unit.sweeping.samples import ELSEWHERE, MIB, begin, cell, outcome, swept


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A model in two modes at two sizes, one of which it does not have the memory for."""
    path, large = tmp_path / "s.sqlite", {"size": "batch=4", "shapes": {"x": (4, 8)}}
    swept(
        path,
        (cell(), outcome(100 * MIB, 0.010)),
        (cell(mode="planned"), outcome(60 * MIB, 0.012)),
        (cell(mode="tuned"), outcome(110 * MIB, 0.011)),
        (cell(**large), failure(NO_MEMORY, "out of memory in phase 'run'", seconds=1.0)),
        (cell(mode="planned", **large), outcome(90 * MIB, 0.040, seconds=9.0)),
    )
    return path


@pytest.mark.parametrize(
    ("column", "value"),
    [("bytes", b"1"), ("bytes", "many"), ("latency_seconds", "x"), ("seconds", b""), ("model", b"m")],
)
def test_a_store_with_something_else_in_it_is_refused(store: Path, column: str, value: object) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(f"UPDATE cells SET {column} = ? WHERE id = 2", (value,))
    for read in (read_sweep, read_status):
        with pytest.raises(UsageError, match="is damaged"):
            read(store)


def test_models_by_sizes(store: Path) -> None:
    (found,) = read_sweep(store).maps
    assert found.label == "peak RSS" and found.sizes == ("batch=1", "batch=4")
    assert {row.mode: row.bytes for row in found.rows} == {
        "stock": (100 * MIB, None), "planned": (60 * MIB, 90 * MIB), "tuned": (110 * MIB, None)}  # fmt: skip


def test_what_runs_on_a_device_is_a_map_of_its_own(store: Path) -> None:
    on_gpu = cell(settings=Settings(device="cuda"))
    there = outcome(900 * MIB, processor="a GPU, a processor, 2 cores")
    swept(store, (on_gpu, there), (cell(onnxruntime="1.25.0"), outcome()))
    host, gpu = read_sweep(store).maps
    assert (host.label, host.rows[0].mode, host.rows[0].bytes) == ("peak RSS", "stock", (100 * MIB,))
    assert gpu.label == "peak memory of the GPU, cuda" and gpu.rows[0].bytes == (900 * MIB,)
    assert gpu.rows[0].mode == "stock on cuda" and read_sweep(store, mode="stock on cuda").status.cells == 1
    # It is no trade of a mode: they are about different memory.
    assert {trade.best for trade in read_sweep(store).trades} == {True}


def test_savings_count_against_stock(store: Path) -> None:
    def said() -> str:
        return render_terminal(make_report([read_sweep(store)]), width=120, colour=False)

    assert "40.0 MiB  net.onnx planned batch=1, against stock" in said()
    # Where stock takes least there is nothing to be done, however much the others take.
    newer = {"onnxruntime": "1.25.0"}
    swept(store, (cell(**newer), outcome(100 * MIB)), (cell(mode="planned", **newer), outcome(160 * MIB)))
    assert "saved by a mode" not in said() and "in mode" not in said()


def test_which_trade_is_worth_having(store: Path) -> None:
    best = {(trade.mode, trade.size): trade.best for trade in read_sweep(store).trades}
    # Stock is faster, planned smaller; tuned is beaten by stock in both.
    assert best == {("stock", "batch=1"): True, ("planned", "batch=1"): True, ("tuned", "batch=1"): False,
                    ("planned", "batch=4"): True}  # fmt: skip


def test_what_changed_and_with_what(store: Path) -> None:
    assert read_sweep(store).changes == ()
    newer = {"onnxruntime": "1.25.0"}
    swept(
        store,
        (cell(**newer), outcome(150 * MIB)),
        (cell(mode="planned", **newer), outcome(61 * MIB)),
        (cell(mode="tuned", sha256="cd" * 32), outcome(50 * MIB, processor=ELSEWHERE)),
    )
    first, second = read_sweep(store).changes
    assert (first.mode, first.before, first.after, first.grew) == ("tuned", 110 * MIB, 50 * MIB, False)
    assert first.since == ("another model file", f"machine a processor, 2 cores → {ELSEWHERE}")
    assert (second.mode, second.grew, second.since) == ("stock", True, ("ONNX Runtime 1.24.0 → 1.25.0",))
    assert len(read_sweep(store, tolerance="1%").changes) == 3
    # The last sweep asked for three; the others are there, too, for who wants them.
    assert read_sweep(store).status.cells == 3 and read_sweep(store, all_sweeps=True).status.cells == 8


def test_only_some(store: Path) -> None:
    assert read_sweep(store, mode="planned").status.cells == 2
    with pytest.raises(UsageError, match=r"no cell is of model 'other\.onnx'") as error:
        read_sweep(store, model="other.onnx")
    assert error.value.hint == "there are: net.onnx"


def test_results_come_back_equal(store: Path) -> None:
    found, status = read_sweep(store), read_status(store)
    assert Sweep.from_document(found.document()) == found and SweepStatus.from_document(status.document()) == status
    assert found.status.reasons == {NO_MEMORY: 1} and found.failures[0].message == "out of memory in phase 'run'"
    assert not found.ok and found.status.slowest[0].seconds == 9.0


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_it(store: Path, width: int) -> None:
    begin(
        store,
        *(cell(mode=mode) for mode in ("stock", "planned", "tuned")),
        cell(name="a" * 90 + ".onnx", sha256="ef" * 32),
    )
    planned = PlannedCell(verb="measure", model="net.onnx", mode="stock", size="batch=1", finished=False, seconds=2.0)
    plan = SweepPlan(file=store, cells=(planned,), workers=2, parallel=1, seconds=120.0)
    for result in (read_sweep(store, all_sweeps=True), read_status(store), plan):
        text = render_terminal(make_report([result]), width=width, colour=False)
        # The path of a temporary folder is one word, which nobody can break.
        lines = [line for line in text.splitlines() if str(store.parent) not in line and not line.startswith("─")]
        assert max(map(len, lines)) <= width, text
    said = " ".join(render_terminal(make_report([read_sweep(store, all_sweeps=True)]), width=120, colour=False).split())
    assert "4 of 6 cells are finished, 1 failed (1 out of memory) and 1 are waiting." in said
    assert "Run net.onnx in mode planned, as measured at batch=1" in said and "where another has less of both" in said


def test_tables_of_all_cells(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    export_rows(store, Filter(), path)
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 5 and rows[0]["bytes"] == str(100 * MIB) and rows[3]["reason"] == NO_MEMORY
    assert rows[3]["bytes"] == ""


def test_parquet_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match="Parquet needs the package 'pyarrow'"):
        check_export(Path("cells.parquet"))


def test_parquet_where_it_is_there(store: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export_rows(store, Filter(), tmp_path / "cells.parquet")
    table = parquet.read_table(tmp_path / "cells.parquet")
    assert table.num_rows == 5 and table.column("bytes").to_pylist()[3] is None


def test_no_spreadsheet_takes_a_name_for_a_formula(store: Path, tmp_path: Path) -> None:
    names = ("=1+1.onnx", "+net.onnx", "-net.onnx", "@net.onnx", "net=1.onnx")
    swept(store, *((cell(name=name, sha256=name), outcome()) for name in names))
    export_rows(store, Filter(), path := tmp_path / "cells.csv")
    with path.open(newline="") as file:
        assert [row["model"] for row in csv.DictReader(file)] == [f"'{name}" for name in names[:-1]] + [names[-1]]
