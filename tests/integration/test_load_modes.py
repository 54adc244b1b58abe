"""What is known about loading (weights in the heap, mapped, packed, saved packed) holds for the installed runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.load_modes import LOAD_MODES, measure_mode, model_files, row

MIB = 2**20
WEIGHTS = 16 * MIB
LITTLE = 5 * MIB


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, dict[str, Any]]]:
    """Every row of the benchmark, for a model of 16 MiB."""
    with model_files(layers=4, width=1024) as folder:
        yield {mode.name: row(measure_mode(mode, folder, batch=2, runs=1)) for mode in LOAD_MODES}


def grown(row: dict[str, Any], column: str) -> int:
    return int(row[column]) - int(row["before"])


def test_what_each_way_of_loading_takes(rows: dict[str, dict[str, Any]]) -> None:
    before = rows["inline"]["anonymous"] - grown(rows["inline"], "loaded")
    assert grown(rows["inline"], "loaded") > WEIGHTS
    assert grown(rows["external"], "loaded") == pytest.approx(WEIGHTS + 8 * MIB, abs=8 * MIB)  # packed copies only
    for name in ("external, no prepacking", ".ort mapped, no prepacking"):
        assert rows[name]["anonymous"] - before < LITTLE + 8 * MIB, name
        assert rows[name]["file"] > WEIGHTS, name
    assert grown(rows["external, saved packed"], "loaded") < grown(rows["external"], "loaded")
    assert grown(rows[".ort"], "peak") > 2 * WEIGHTS
    assert grown(rows[".ort mapped"], "loaded") > 2 * WEIGHTS  # the map and the packed copies


def test_everything_is_given_back_when_asked(rows: dict[str, dict[str, Any]]) -> None:
    for name, figures in rows.items():
        assert grown(figures, "trim") < 12 * MIB, name


def test_packed_or_not_the_outputs_are_reproducible(rows: dict[str, dict[str, Any]]) -> None:
    for packs in (True, False):
        assert len({rows[mode.name]["outputs_sha256"] for mode in LOAD_MODES if mode.packs is packs}) == 1
