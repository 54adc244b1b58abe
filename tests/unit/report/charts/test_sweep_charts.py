"""The pictures of a sweep: models by sizes, and memory against latency."""

from __future__ import annotations

from typing import Any

import pytest

from onnxmem.report.charts.picture import NARROW, specification
from onnxmem.report.report import Chart

MIB = 2**20


def size_map(*rows: tuple[str, str, list[int | None]], sizes: int = 2) -> Chart:
    document = {
        "label": "peak RSS",
        "sizes": [f"batch={k}" for k in range(sizes)],
        "rows": [{"model": model, "mode": mode, "processor": "", "bytes": values} for model, mode, values in rows],
    }
    return Chart("size map", "", "", document)


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of its first layer."""
    data = spec["layer"][0].get("data") or spec["data"]
    return list(data["values"] if "values" in data else spec["datasets"][data["name"]])


@pytest.mark.parametrize("width", [None, NARROW["size map"]])
def test_more_memory_is_darker_and_what_is_not_known_is_left_out(width: int | None) -> None:
    chart = size_map(("a.onnx", "stock", [MIB, 1000 * MIB]), ("<b>.onnx", "planned", [None, 30 * MIB]))
    cells = rows_of(specification(chart, width))
    assert len(cells) == 3
    least, most, middle = (cells[k]["fill"] for k in (0, 1, 2))
    assert least != middle != most != least and cells[1]["hover"].endswith("1000.0 MiB")


def test_names_that_look_alike_are_two_rows() -> None:
    long = "x" * 80
    chart = size_map((f"{long}1.onnx{long}", "stock", [MIB, MIB]), (f"{long}2.onnx{long}", "stock", [MIB, MIB]))
    assert len({row["name"] for row in rows_of(specification(chart))}) == 2


def test_figures_are_written_where_there_is_room() -> None:
    assert all(row["text"] for row in rows_of(specification(size_map(("a", "", [MIB] * 4), sizes=4))))
    assert not any(row["text"] for row in rows_of(specification(size_map(("a", "", [MIB] * 12), sizes=12))))


@pytest.mark.parametrize("width", [None, NARROW["trades"]])
def test_trades_join_the_modes_of_a_model(width: int | None) -> None:
    each = {"model": "a.onnx", "size": "batch=1", "processor": ""}
    trades = [
        {**each, "mode": "stock", "bytes": 100 * MIB, "latency_seconds": 0.01, "best": True},
        {**each, "mode": "planned", "bytes": 50 * MIB, "latency_seconds": 0.0, "best": True},
        {**each, "mode": "tuned", "bytes": 120 * MIB, "latency_seconds": 0.02, "best": False},
    ]
    spec = specification(Chart("trades", "", "", {"trades": trades}), width)
    points = rows_of(spec)
    assert {row["mode"] for row in points} == {"stock", "planned", "tuned"} and len(
        {row["model"] for row in points}
    ) == 1
    # A logarithm has no place for nothing: what is too fast to be timed is drawn at the edge.
    assert min(row["x"] for row in points) > 0
