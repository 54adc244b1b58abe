"""The benchmark of predictions: what it measures, what counts as an error, and when it says that a limit is met."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import accuracy, peers
from benchmarks.accuracy import Row, limits, summary
from benchmarks.sized_models import keys, locate, sizes, unseen
from benchmarks.truth import Cell, Store, Truth, cells
from onnxmem.measurement.signature import read_signature

MIB = 2**20


def row(*, peak: float = 1.0, growth: float = 1.0, measured_growth: int = 50 * MIB, mode: str = "stock") -> Row:
    """A cell that took 100 MiB, predicted as so many times what was measured."""
    truth = Truth(
        before_load=40 * MIB,
        load_peak=50 * MIB,
        loaded=50 * MIB,
        run_growth=measured_growth,
        peak=100 * MIB,
        activations=None,
    )
    said = {"load_peak": 50 * MIB, "loaded": 50 * MIB}
    said |= {"run_growth": int(measured_growth * growth), "peak": int(100 * MIB * peak)}
    return Row(cell=Cell(sized=sizes("det")[0], mode=mode, threads=1), truth=truth, predicted=dict(said))


def test_every_model_has_one_usual_size_and_up_to_three_different_ones() -> None:
    for key in (*keys(), *unseen()):
        found = sizes(key)
        assert len([sized for sized in found if sized.usual]) == 1, key
        assert (
            len({str(sized.shapes) for sized in found}) == len({sized.size for sized in found}) == len(found) in (1, 3)
        )


def test_the_shapes_of_a_size_are_those_of_the_models_inputs(tmp_path: Path) -> None:
    path = locate("zoo-nas", tmp_path)
    for sized in sizes("zoo-nas"):
        arrays = sized.feeds(path)
        assert {name: array.shape for name, array in arrays.items()} == sized.shapes
    declared = read_signature(path).shapes["image"]
    assert declared is not None
    assert len([dim for dim in declared if not isinstance(dim, int)]) == 3


def test_more_threads_are_measured_at_the_usual_size_only() -> None:
    found = list(cells(["det"], ["stock"], [1, 2]))
    assert [(cell.sized.size, cell.threads) for cell in found] == [
        ("320px", 1),
        ("640px", 1),
        ("640px", 2),
        ("960px", 1),
    ]


def test_growth_counts_where_it_is_above_eight_mib() -> None:
    assert row(growth=2.0).error("run_growth") == pytest.approx(1.0)
    assert row(growth=2.0, measured_growth=8 * MIB).error("run_growth") is None


def test_the_limits_are_met_or_not() -> None:
    good = limits([row(peak=1.02, growth=0.95)])
    assert [entry.rpartition(": ")[2] for entry in good[:3]] == ["met", "met", "met"]
    bad = limits([row(peak=1.05), row(growth=0.7)])
    assert [entry.rpartition(": ")[2] for entry in bad[:3]] == ["met", "NOT met", "NOT met"]
    assert "1 of 2 cells" in bad[3]


def test_what_was_not_predicted_is_said_and_counted() -> None:
    unsaid = Row(cell=row().cell, truth=row().truth, predicted={}, reason="no idea")
    assert "no idea" in summary([unsaid])[0]
    assert limits([row(), unsaid])[3].endswith("without a prediction: 1")


def test_what_fit_keeps_free_is_counted_against_what_was_measured() -> None:
    truth = row().truth
    enough = Row(cell=row().cell, truth=truth, predicted={"safe": truth.peak})
    short = Row(cell=row().cell, truth=truth, predicted={"safe": truth.peak - 1})
    assert limits([enough, short])[4].endswith("safe: 1 of 2 cells")


def test_a_line_of_the_table_has_as_many_entries_as_its_head() -> None:
    assert accuracy.line(row()).count("|") == accuracy.table_line(accuracy.HEAD).count("|")


def test_a_tool_is_asked_once_and_its_failure_is_kept_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(python: Path, peer: str, model: Path, feeds: Path) -> dict[str, str]:
        asked.append(peer)
        assert np.load(feeds)["image"].shape == sizes("zoo-nas")[0].shapes["image"]
        assert onnx.load(model).graph.node
        return {"reason": "ValueError: not today"}

    monkeypatch.setattr(peers, "_run", run)
    store, sized = Store(tmp_path), sizes("zoo-nas")[0]
    for _ in range(2):
        said = peers.ask(store, Path("python"), "tigris", sized)
        assert (said.activations, said.reason) == (None, "ValueError: not today")
    assert asked == ["tigris"]
