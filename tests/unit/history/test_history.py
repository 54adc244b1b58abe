"""A history says where something grew, by how much, and with what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxmem.errors import UsageError
from onnxmem.history.entry import Entry
from onnxmem.history.history import History, read_history
from onnxmem.history.store import append
from onnxmem.history.tolerance import Tolerance
from onnxmem.unknown import Unknown
from tests.unit.history.samples import MIB, entry, key


def recorded(path: Path, *entries: Entry) -> Path:
    for each in entries:
        append(path / "h.sqlite", each, {})
    return path / "h.sqlite"


def test_it_grew_with_this_commit_and_that_version(tmp_path: Path) -> None:
    file = recorded(
        tmp_path,
        entry(100 * MIB, 1),
        entry(104 * MIB, 2),
        entry(120 * MIB, 3, commit="d" * 40, onnxruntime="1.26.0", sha256="cd" * 32),
        entry(90 * MIB, 4, commit="d" * 40, onnxruntime="1.26.0", sha256="cd" * 32),
    )
    history = read_history(file)
    (series,) = history.series
    assert [point.change for point in series.points[1:]] == [4 * MIB, 16 * MIB, -30 * MIB]
    assert isinstance(series.points[0].change, Unknown) and series.change == -10 * MIB
    ((_, grown),) = history.grown
    assert grown.entry.date.startswith("2026-11-03")
    assert grown.since == ("another model file", "ONNX Runtime 1.24.0 → 1.26.0", "commit dddddddddd")
    assert len(read_history(file, tolerance="1MiB").grown) == 2
    assert History.from_document(json.loads(json.dumps(history.document()))) == history
    assert "4 results in 1 series" in repr(history)


def test_only_what_compares_is_one_series(tmp_path: Path) -> None:
    file = recorded(tmp_path, entry(day=1), entry(day=2, key=key(threads=1)), entry(None, 3), entry(200 * MIB, 4))
    many, one = read_history(file).series[::-1]
    assert len(one.points) == 3 or len(many.points) == 3
    assert not read_history(file).grown, "nobody knows what was before"
    assert read_history(file, figure="steady").series[0].points[0].size == 90 * MIB


def test_a_model_by_its_name_or_path(tmp_path: Path) -> None:
    file = recorded(tmp_path, entry(), entry(key=key(model="other.onnx")))
    assert len(read_history(file, "models/net.onnx").series) == 1
    with pytest.raises(UsageError, match=r"no results of 'x.onnx'") as raised:
        read_history(file, "x.onnx")
    assert "net.onnx, other.onnx" in raised.value.hint
    with pytest.raises(UsageError, match="no figure 'weight'"):
        read_history(file, figure="weight")


@pytest.mark.parametrize(
    ("text", "most"), [("5%", 105), ("2.5 %", 102), ("0%", 100), ("4MiB", 4 * MIB + 100), ("10", 110)]
)
def test_tolerances(text: str, most: int) -> None:
    assert Tolerance.parse(text).above(100) == most
    assert Tolerance.from_document(Tolerance.parse(text).document()) == Tolerance.parse(text)


@pytest.mark.parametrize("text", ["", "much", "-5%", "5%%", "1e3%"])
def test_what_is_no_tolerance(text: str) -> None:
    with pytest.raises(UsageError, match="is not a tolerance"):
        Tolerance.parse(text)


def test_keys_say_what_differs() -> None:
    other = key(mode="planned", shapes={"x": (1, 3, 9, 9)}, threads=2)
    assert key().differences(other) == ("in mode planned", "with inputs x 1×3×9×9", "with threads 2")
    assert other.differences(key())[2] == "with threads of all cores"
    assert key().differences(key()) == ()
    assert other.label == "net.onnx, planned, x 1×3×9×9, threads 2"
