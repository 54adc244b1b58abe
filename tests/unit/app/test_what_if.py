from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxmem.app.choice import Choice, Dimension
from tests.unit.report import samples

pytest.importorskip("streamlit", reason="the package streamlit is not installed")
from streamlit.testing.v1 import AppTest

from onnxmem.app.tabs.what_if import Grows, growing, largest_known, largest_sentence, with_points

MIB = 2**20


def script() -> None:
    """What is below the question, with curves that are there."""
    import streamlit as st  # noqa: PLC0415

    from onnxmem.app.tabs.what_if import _explore  # noqa: PLC0415

    _explore(st.session_state["curves"], "batch", st.session_state["budget"])


def curves(name: str = "model.onnx", exact: bool = True) -> dict[str, Any]:
    """What each mode takes at three sizes."""
    document = samples.fit(name)
    for mode in document["answers"][0]["modes"]:
        mode["points"] = [{"size": size, "bytes": (80 + (6 if mode["mode"] == "stock" else 3) * size) * MIB,
                           "needed_bytes": (90 + (6 if mode["mode"] == "stock" else 3) * size) * MIB, "exact": exact}
                          for size in (1, 8, 12)]  # fmt: skip
    return document


def opened(document: dict[str, Any], budget: int | None = None) -> AppTest:
    page = AppTest.from_function(script, default_timeout=600)
    page.session_state["curves"], page.session_state["budget"] = document, budget
    page.run()
    assert not page.exception
    return page


def figures(page: AppTest) -> dict[str, tuple[str, str]]:
    return {metric.label: (metric.value, metric.delta) for metric in page.metric}


def dimension(label: str, value: int, step: int = 1, last: int = 64) -> Dimension:
    return Dimension(label, label, value, step, last, step)


def test_the_slider_moves_the_figures_and_the_line() -> None:
    page = opened(curves())
    assert figures(page) == {"stock": ("128.0 MiB", ""), "planned": ("104.0 MiB", "-24.0 MiB")}
    before = page.get("vega_lite_chart")[0].proto.spec
    page.select_slider[0].set_value(12).run()
    assert figures(page)["stock"] == ("152.0 MiB", "")
    assert page.get("vega_lite_chart")[0].proto.spec != before


def test_a_budget_says_what_fits_and_is_a_line() -> None:
    page = opened(curves(), 120 * MIB)
    assert {mode: delta for mode, (_, delta) in figures(page).items()} == {"stock": "does not fit", "planned": "fits"}
    assert "budget 120.0 MiB" in page.get("vega_lite_chart")[0].proto.spec


def test_what_is_not_exact_says_so() -> None:
    assert figures(opened(curves(exact=False)))["stock"][0] == "≈ 128.0 MiB"


def test_modes_are_chosen() -> None:
    page = opened(curves())
    pills: Any = page.get("button_group")[0]
    pills.set_value(["planned"]).run()
    assert list(figures(page)) == ["planned"]


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_hostile_names_are_drawn_as_they_are(name: str) -> None:
    opened(curves(name), 120 * MIB)


def test_the_largest_is_known_roughly_from_the_curves_and_then_exactly() -> None:
    assert largest_known(curves(), 140 * MIB) == {"stock": 8, "planned": 12}
    assert largest_known(curves(), MIB) == {"stock": None, "planned": None}
    document = samples.fit()
    document["answers"][0]["modes"][1] |= {"holds": 12, "open_end": True}
    said = largest_sentence(document, "batch", 140 * MIB)
    assert "Largest batch that fits into 140.0 MiB: 12 or more" in said and "Run it planned; stock 8." in said
    document["answers"][0]["recommended"] = None
    assert "none" in largest_sentence(document, "batch", MIB)


def test_sizes_that_the_search_looked_at_become_stops_of_the_slider() -> None:
    fitted = curves()
    fitted["answers"][0]["modes"][0]["points"] = [{"size": 9, "bytes": MIB, "needed_bytes": MIB, "exact": True}]
    joined = with_points(curves(), fitted)["answers"][0]["modes"]
    assert [point["size"] for point in joined[0]["points"]] == [1, 8, 9, 12]
    assert [point["size"] for point in joined[1]["points"]] == [1, 8, 12]


def test_sides_of_an_image_grow_together_and_the_batch_comes_first() -> None:
    known = [dimension("height", 224, 8, 896), dimension("width", 224, 8, 896), dimension("batch", 1)]
    found = growing(known)
    assert [each.label for each in found] == ["batch", "image size", "height", "width"]
    words = found[1].words(Choice(path=Path("m.onnx"), dims={"height": 64, "width": 64, "batch": 4}), 896)
    assert words == ("fit", "m.onnx", "--dim", "height=16..896:16", "--dim", "width=height", "--dim", "batch=4")
    uneven = [dimension("height", 224), dimension("width", 320)]
    assert [each.label for each in growing(uneven)] == ["height", "width"]


def test_a_range_has_steps_for_which_formulas_are_exact_and_not_too_many() -> None:
    for last, step in ((896, 8), (512, 1), (64, 1), (40, 7)):
        grows = Grows("x", (dimension("x", 1, step, last),))
        assert grows.step % step == 0 and last / grows.step <= 64
