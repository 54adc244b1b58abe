from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST
from onnxmem.report.charts.buffers import details_of, lifetime, tell
from onnxmem.report.charts.layout import Profile
from onnxmem.report.charts.live_map import SHARED, Live
from onnxmem.report.charts.memory_map import HEIGHT, WIDTH, memory_map
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
    whole, *enlarged = [rows for rows in chart.to_dict()["datasets"].values() if rows and "group" in rows[0]]
    assert len(whole) == len(densenet.problem) == 600
    assert len(enlarged) == 1 and len(enlarged[0]) < 100
    assert len(chart_svg(chart)) < 1_000_000


def test_where_the_peak_is_brief_it_is_enlarged_until_its_tensors_have_names(planned: Callable[..., Plan]) -> None:
    quiet = [(f"/quiet/{k}/Conv_output_0", k, k + 2, 1 << 20) for k in range(300)]
    peak = [(f"/block/peak{k}/Add_output_0", 150, 152, 8 << 20) for k in range(3)]
    chart = memory_map(planned(*quiet, *peak))
    assert {f"/block/peak{k}/Add 8.0 MiB" for k in range(3)} <= set(texts(chart))
    views = chart.to_dict()["vconcat"]
    assert len(views) == 3
    axis = views[2]["layer"][0]["encoding"]["x"]["axis"]["title"]
    first, last = map(int, re.findall(r"\d+", axis))
    assert first <= 150 < last and last - first <= 16
    # Where names fit on the map itself, once is enough.
    assert len(memory_map(planned(*peak)).to_dict()["vconcat"]) == 2


CHAIN = (("a", 0, 4, 8 << 20), ("b", 3, 8, 8 << 20), ("c", 7, 9, 4 << 20), ("d", 0, 9, 1 << 20))


@pytest.mark.parametrize("live", [None, Live()])
def test_buffers_at_one_place_are_outlined_side_by_side(planned: Callable[..., Plan], live: Live | None) -> None:
    plan = planned(*CHAIN, shares=[(0, 1), (1, 2)])
    chart = memory_map(plan, live=live)
    rows = {row["name"]: row for row in rectangles(chart)}
    sides = [rows[name][side] for name in "abcd" for side in ("x", "x2")]
    assert sides == pytest.approx([0, 3, 3, 7, 7, 9, 0, 9])
    assert rows["a"]["y"] == rows["b"]["y"] == rows["c"]["y"]
    told = [tell(row) for row in details_of(plan, None)]
    assert told[0]["place"] == "b is written over it at step 3"
    assert told[1]["place"] == "written over a; c is written over it at step 7"
    assert told[2]["hover"].endswith("\nwritten over b") and "place" not in told[3]
    assert SHARED in chart_svg(chart)
    # What lies in another's place takes nothing while that is there.
    assert Profile.of(plan).live.max() == plan.peak == 9 << 20


@pytest.mark.parametrize("live", [None, Live()])
def test_without_shared_places_the_legend_does_not_speak_of_them(
    planned: Callable[..., Plan], live: Live | None
) -> None:
    chart = memory_map(planned(*CHAIN), live=live)
    assert SHARED not in chart_svg(chart)


def test_no_buffer_is_too_thin_to_be_seen(planned: Callable[..., Plan]) -> None:
    steps, peak = 5000, 1 << 30
    chart = memory_map(planned(("large", 0, steps, peak), ("thin", 0, 1, 64), ("empty", 0, 1, 0)))
    rows = {row["name"]: row for row in rectangles(chart)}
    thin = rows["thin"]
    assert (thin["x2"] - thin["x"]) / steps * WIDTH >= 0.99
    assert (thin["y2"] - thin["y"]) / (peak / 2**30 * 1.02) * HEIGHT >= 1.99
    assert "empty" not in rows


def test_thousands_of_buffers_are_drawn_together(scattered: Callable[..., Plan]) -> None:
    plan = scattered(5000, 3000)
    rows = rectangles(memory_map(plan))
    assert len({row["name"] for row in rows if "size" in row}) >= 2500
    assert any(row["group"] == "the 2,500 smallest, drawn together" for row in rows)
    assert len(rows) < 9000


CONV = {"name": "x", "bytes": 4096, "lower": 0, "upper": 3, "offset": 0, "shape": [1, 32, None], "dtype": "float32",
        "kind": "activation", "producer": "Conv_0", "consumers": ["Relu_1", "Add_2"]}  # fmt: skip


def test_hovering_tells_what_is_known_without_a_script(planned: Callable[..., Plan]) -> None:
    svg = chart_svg(memory_map(planned(("x", 0, 3, 4096)), placement=[CONV]))
    (title,) = re.findall(r"<title>(.*?)</title>", svg)
    assert title.split("&#xA;") == [
        "x",
        "activation, 1×32×? float32, 4.0 KiB (4,096 bytes)",
        "from Conv_0 (step 0) to its last reader, Add_2 (step 2)",
        "read by Relu_1, Add_2",
        "offset 0 B (0 bytes)",
    ]
    assert "peak at step 0 (Conv_0): 4.0 KiB live" in svg


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"kind": "output", "consumers": []}, "from Conv_0 (step 0), kept to the end as an output"),
        ({"producer": None, "consumers": []}, "from step 0 to its last reader at step 2"),
        ({"producer": None, "consumers": [], "upper": 1}, "only at step 0"),
    ],
)
def test_a_lifetime_ends_with_the_last_reader(about: dict[str, Any], expected: str) -> None:
    assert lifetime({**CONV, **about}) == expected


def test_many_readers_are_counted() -> None:
    assert tell({**CONV, "consumers": [f"n{k}" for k in range(9)]})["readers"].endswith("n5 and 3 more")


def test_the_capacity_is_a_line(planned: Callable[..., Plan]) -> None:
    plan = planned(("a", 0, 2, 3 << 20), capacity=4 << 20)
    assert "capacity 4.0 MiB" in texts(memory_map(plan))


def test_wrong_counts_are_refused(unet: Plan) -> None:
    with pytest.raises(UsageError, match="1 row was given for 25 buffers"):
        memory_map(unet, placement=[CONV])


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
