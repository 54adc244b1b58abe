from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST
from onnxmem.report.charts.memory_map import memory_map
from onnxmem.report.charts.picture import chart_svg


def texts(chart: Any) -> list[str]:
    """What is written into the map, without titles and axes."""
    rows = [row for rows in chart.to_dict()["datasets"].values() for row in rows]
    return [row["text"].replace("\n", " ") for row in rows if "text" in row]


def rectangles(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows if "group" in row]


def test_an_optimal_plan_says_so_on_one_line(unet: Plan) -> None:
    assert unet.optimal
    chart = memory_map(unet, title="U-Net, file order")
    size = f"{unet.peak / 2**20:.1f} MiB"
    assert f"peak = lower bound {size}: optimal" in texts(chart)
    title = chart.to_dict()["title"]
    assert title["text"] == "U-Net, file order"
    assert title["subtitle"][0] == f"strategy best: peak {size}, equal to the lower bound: optimal"


def test_a_gap_is_shown_as_two_lines(planned: Callable[..., Plan]) -> None:
    plan = planned(("a", 0, 2, 3 << 20), ("b", 1, 3, 1 << 20), strategy="naive", capacity=5 << 20)
    looser = planned(("a", 0, 1, 3 << 20), ("b", 1, 3, 1 << 20), strategy="naive", capacity=5 << 20)
    assert "peak = lower bound 4.0 MiB: optimal" in texts(memory_map(plan))
    assert {"peak 4.0 MiB", "lower bound 3.0 MiB", "capacity 5.0 MiB"} <= set(texts(memory_map(looser)))
    assert "33.3% above the lower bound 3.0 MiB; fits into" in memory_map(looser).to_dict()["title"]["subtitle"][0]


def test_a_capacity_that_dwarfs_the_plan_does_not_flatten_the_map(planned: Callable[..., Plan]) -> None:
    chart = memory_map(planned(("a", 0, 2, 3 << 20), capacity=1 << 40))
    assert not any("capacity" in text for text in texts(chart))
    assert "capacity 1.0 TiB" in chart.to_dict()["title"]["subtitle"][0]


def test_every_buffer_of_a_large_network_is_one_rectangle(densenet: Plan) -> None:
    chart = memory_map(densenet)
    assert len(rectangles(chart)) == len(densenet.problem) == 600
    assert len(chart_svg(chart)) < 1_000_000


def test_thousands_of_buffers_are_drawn_together(scattered: Callable[..., Plan]) -> None:
    plan = scattered(5000, 3000)
    rows = rectangles(memory_map(plan))
    assert sum("size" in row for row in rows) == 2500
    assert any(row["group"] == "the 2,500 smallest, drawn together" for row in rows)
    assert len(rows) < 8000


def test_tooltips_name_what_is_known(planned: Callable[..., Plan]) -> None:
    plan = planned(("x", 0, 2, 4096))
    names = ["Conv_0", "Relu_1"]
    (row,) = rectangles(memory_map(plan, kinds=["Conv"], dims=["1×32×32"], step_names=names))
    told = {key: row[key] for key in ("name", "kind", "dims", "size", "lifetime", "offset")}
    assert told == {
        "name": "x",
        "kind": "Conv",
        "dims": "1×32×32",
        "size": "4.0 KiB (4,096 bytes)",
        "lifetime": "step 0 (Conv_0) up to 2",
        "offset": "0 B (0 bytes)",
    }


def test_only_the_largest_kinds_have_a_colour_of_their_own(planned: Callable[..., Plan]) -> None:
    plan = planned(*((f"t{k}", 0, 1, 1000 - k) for k in range(9)))
    groups = {row["group"] for row in rectangles(memory_map(plan, kinds=[f"Op{k}" for k in range(9)]))}
    assert groups == {*(f"Op{k}" for k in range(6)), "3 other kinds"}


def test_wrong_counts_are_refused(unet: Plan) -> None:
    with pytest.raises(UsageError, match="1 kinds were given for 25 buffers"):
        memory_map(unet, kinds=["Conv"])
    with pytest.raises(UsageError, match="1 dims were given for 25 buffers"):
        memory_map(unet, dims=["1"])


def test_nothing_to_draw_is_said_in_the_picture(planned: Callable[..., Plan]) -> None:
    assert "no buffers: there is nothing to place" in chart_svg(memory_map(planned()))
    assert "all buffers are empty: no memory is needed" in chart_svg(memory_map(planned(("a", 0, 1, 0))))


def test_extremes_are_drawn(planned: Callable[..., Plan]) -> None:
    for buffer in (("a", 0, 1, 1), ("a", 0, 1, LARGEST), ("a", -5, LARGEST // 2, 7)):
        assert "<svg" in chart_svg(memory_map(planned(buffer)))


def test_without_altair_the_error_says_what_to_install(unet: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(RuntimeUnsupported, match="altair") as caught:
        memory_map(unet)
    assert caught.value.hint == "pip install altair jinja2 vl-convert-python"
