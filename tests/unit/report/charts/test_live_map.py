from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onnxmem.placement.plan import Plan
from onnxmem.report.charts.live_map import Live, beginning_with, relatives
from onnxmem.report.charts.memory_map import memory_map
from onnxmem.report.charts.picture import chart_svg, spec_of


def made(name: str, producer: str | None, *consumers: str, lower: int = 0, upper: int = 1) -> dict[str, Any]:
    return {"name": name, "producer": producer, "consumers": list(consumers), "lower": lower, "upper": upper,
            "bytes": 1 << 20, "offset": 0, "shape": [1], "dtype": "float32"}  # fmt: skip


CHAIN = [
    made("x", None, "split"),
    made("left", "split", "add", "relu"),
    made("right", "split", "add"),
    made("sum", "add"),
    made("other", "relu"),
]


def params(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {param["name"]: param for param in spec["params"]}


def test_relatives_are_what_the_producer_reads_and_what_the_readers_make() -> None:
    found = dict(zip((row["name"] for row in CHAIN), relatives(CHAIN), strict=True))
    assert found["x"] == {"sources": [], "results": [1, 2]}
    assert found["left"] == {"sources": [0], "results": [3, 4]}
    assert found["sum"] == {"sources": [1, 2], "results": []}


def test_a_node_that_writes_where_it_reads_is_no_relative_of_itself() -> None:
    rows = [made("x", "load", "relu in place", "add"), made("y", "add")]
    assert relatives(rows)[0] == {"sources": [], "results": [1]}


def test_a_live_map_has_all_buffers_at_their_exact_times_and_no_second_picture(densenet: Plan) -> None:
    spec = spec_of(memory_map(densenet, live=Live()))
    assert len(spec["vconcat"]) == 2
    rows = next(rows for rows in spec["datasets"].values() if "id" in rows[0])
    assert sorted((row["x"], row["x2"]) for row in rows) == sorted((b.lower, b.upper) for b in densenet.problem)
    assert sorted(row["id"] for row in rows) == list(range(len(densenet.problem)))


def test_what_it_begins_with_can_be_exchanged_without_drawing_it_again(unet: Plan) -> None:
    spec = spec_of(memory_map(unet, live=Live(window=(1, 5), chosen=3, search=".field input")))
    assert params(spec)["marked"]["value"] == {"x": [1, 5]} and params(spec)["chosen"]["value"] == [{"id": 3}]
    assert params(spec)["search"]["bind"]["element"] == ".field input"
    other = params(beginning_with(spec, Live(chosen=0)))
    # An empty value is one: the map would show nothing.
    assert "value" not in other["marked"] and other["chosen"]["value"] == [{"id": 0}]
    assert other["chosen"]["views"] == params(spec)["chosen"]["views"]
    assert params(spec)["marked"]["value"] == {"x": [1, 5]}


@pytest.mark.parametrize("window", [None, (0.4, 2.6)])
def test_it_can_be_drawn_whole_and_zoomed(planned: Callable[..., Plan], window: tuple[float, float] | None) -> None:
    plan = planned(("early", 0, 2, 8 << 20), ("late", 6, 9, 8 << 20), ("always", 0, 9, 4 << 20))
    svg = chart_svg(memory_map(plan, live=Live(window=window), width=600))
    assert ">early</tspan>" in svg and ">always</tspan>" in svg
    assert (">late</tspan>" in svg) == (window is None)


def test_on_a_phone_there_are_no_notes_beside_it(unet: Plan) -> None:
    def texts(width: int) -> int:
        datasets = spec_of(memory_map(unet, live=Live(), width=width))["datasets"]
        return sum("lower bound" in row.get("text", "") for rows in datasets.values() for row in rows)

    assert texts(800) == 1 and texts(250) == 0
