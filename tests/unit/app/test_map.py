from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxmem.app.choice import Choice
from tests.unit.report import samples

st = pytest.importorskip("streamlit", reason="the package streamlit is not installed")
from streamlit.testing.v1 import AppTest  # noqa: E402

from onnxmem.app.tabs.map import Look, _heard, _order_chart  # noqa: E402


def script() -> None:
    """The tab alone, with an estimate that is there."""
    # AppTest takes the text of this function alone.
    from types import SimpleNamespace  # noqa: PLC0415

    import streamlit as st  # noqa: PLC0415

    from onnxmem.app.tabs.map import show  # noqa: PLC0415
    from onnxmem.app.workspace import workspace  # noqa: PLC0415

    estimate = SimpleNamespace(ended=True, cancelled=False, document=st.session_state["document"])
    show(workspace(), st.session_state["choice"], estimate)  # type: ignore[arg-type]


def opened(document: dict[str, Any], budget: int | None = None) -> AppTest:
    page = AppTest.from_function(script, default_timeout=600)
    page.session_state["document"] = document
    page.session_state["choice"] = Choice(path=Path("model.onnx"), budget=budget)
    page.run()
    assert not page.exception
    return page


def document(name: str = "model.onnx", count: int = 60) -> dict[str, Any]:
    """An estimate with so many buffers, which form a chain of nodes."""
    estimate, plan = samples.estimate(name), samples.plan(count, (name,))
    rows = [row | {"producer": f"node {k}", "consumers": [f"node {k + 1}", f"node {k + 2}"], "shape": [1, 8],
                   "dtype": "float32", "symbolic_shape": ["N", 8], "symbolic_bytes": "32*N"}
            for k, row in enumerate(plan["placement"])]  # fmt: skip
    steps = max(row["upper"] for row in rows)
    estimate["activations"] |= {"placement": rows, "schedule": [{"label": f"step {k}", "op_type": "Add"}
                                                                 for k in range(steps)]}  # fmt: skip
    return estimate


def written(page: AppTest) -> str:
    return "\n".join(each.value for each in (*page.markdown, *page.caption, *page.info))


def drawn(page: AppTest) -> str:
    """The specification of the map."""
    chart = next(each for each in page.get("vega_lite_chart") if '"chosen"' in each.proto.spec)
    spec: str = chart.proto.spec
    return spec


@pytest.mark.parametrize("name", ["model.onnx", *samples.HOSTILE])
def test_the_map_and_its_nodes_are_there_whatever_the_names(name: str) -> None:
    page = opened(document(name))
    assert "nodes" in written(page) and len(page.dataframe) == 1
    assert "Click a tensor" in written(page)
    page.session_state["map look"].begin(None, 0)
    page.run()
    assert not page.exception and "<script>" not in written(page).replace("`", "")


def test_a_chosen_tensor_is_told_with_every_reader_and_a_way_to_its_relatives() -> None:
    page = opened(document())
    page.session_state["map look"].begin(None, 5)
    page.run()
    assert r"tensor\_5" in written(page) and "`node 6`, `node 7`" in written(page)
    assert "Made by `node 5`" in written(page) and "`N × 8`, `32*N` bytes" in written(page)
    assert '"value": [{"id": 5}]' in drawn(page)
    sources, results = page.get("button_group")
    assert "Made from" in sources.proto.label and "Used for" in results.proto.label
    assert {metric.label for metric in page.metric} == {"Size", "Steps alive", "Offset", "Type"}


def test_the_peak_is_jumped_to_and_left_again() -> None:
    page = opened(document())
    every = len(page.dataframe[0].value)
    page.button(key="map peak").click().run()
    peak = page.session_state["map look"].window
    assert peak[0] <= page.session_state["map placed"].peak_step < peak[1]
    assert len(page.dataframe[0].value) < every and "from step" in written(page)
    page.text_input[0].set_value("tensor_5").run()
    page.button(key="map all").click().run()
    assert page.text_input[0].value == "" and len(page.dataframe[0].value) == every


def test_steps_can_be_chosen_without_a_mouse_and_what_was_marked_is_taken_over() -> None:
    page = opened(document())
    steps = page.slider[0].value[1]
    page.slider[0].set_value((10, 20)).run()
    assert page.session_state["map look"].window == (10, 20) and "from step 10" in written(page)
    page.slider[0].set_value((10, 10)).run()
    assert page.session_state["map look"].window == (10, 11)
    page.slider[0].set_value((0, steps)).run()
    assert page.session_state["map look"].window is None
    page.session_state["map look"].window = (3.4, 7.6)  # as a browser tells it
    page.run()
    assert page.slider[0].value == (3, 8) and not page.exception


def test_what_is_looked_for_is_counted_and_filters_the_nodes() -> None:
    page = opened(document())
    page.text_input[0].set_value("TENSOR_5").run()
    # 5 and 50 to 59.
    assert "11 of 60 tensors found" in written(page)
    assert len(page.dataframe[0].value) <= 11


def test_what_the_browser_tells_is_taken_and_the_rest_stays() -> None:
    look = Look(())
    look.begin((2.0, 9.0), 3)
    for selection, window, chosen in (
        ({"chosen": [{"id": 7}]}, (2.0, 9.0), 7),
        ({"marked": {"x": [1.5, 4]}}, (1.5, 4.0), 7),
        ({"marked": {}, "chosen": [{}]}, None, None),
        ({"chosen": [{"id": 2}]}, None, 2),
        ({"chosen": {}}, None, None),
    ):
        st.session_state[look.key] = {"selection": selection}
        _heard(look, look.key)
        assert (look.window, look.chosen) == (window, chosen)
    late = look.key
    look.begin(None, None)
    st.session_state[late] = {"selection": {"chosen": [{"id": 2}]}}
    _heard(look, late)
    assert look.chosen is None, "a map that was replaced has no say"


def test_a_budget_becomes_a_line_of_what_it_leaves() -> None:
    estimate = document()
    peak = estimate["activations"]["strategies"][-1]["peak_bytes"]
    parts = [{"name": "libraries", "bytes": 50 << 20}, {"name": "activations", "bytes": peak}]
    rest = dict.fromkeys(("load_peak_bytes", "loaded_bytes", "steady_bytes"), 1) | {"total_pss_bytes": {"4": 4}}
    estimate["processes"] = [{"mode": "planned", "peak_bytes": peak + (50 << 20), "parts": parts, **rest}]
    top = max(row["offset"] + row["bytes"] for row in estimate["activations"]["placement"])
    assert "the budget leaves" in drawn(opened(estimate, budget=(50 << 20) + top))
    assert "the budget leaves" not in drawn(opened(estimate))


def test_without_buffers_the_page_says_why_there_is_no_map() -> None:
    estimate = document()
    estimate["activations"] |= {"placement": None, "placement_note": "more than 20,000 buffers are not listed"}
    assert "more than 20,000 buffers are not listed" in written(opened(estimate))


def test_an_order_is_optimal_only_if_no_other_order_takes_less() -> None:
    own = {"optimal": True, "lower_bound_bytes": 8, "peak_bytes": 8}
    best = {"optimal": True, "lower_bound_bytes": 6, "peak_bytes": 6}
    chart = _order_chart({"file": own, "best": best | {"order_search": {"optimal": True, "proven_bound_bytes": 6}}})
    assert [row["optimal"] for row in chart.document["strategies"]] == [False, True]
    assert chart.document["lower_bound_bytes"] == 6
    # Nothing is proven about all orders before they were searched, or if the search gave up.
    assert not any(row["optimal"] for row in _order_chart({"file": own}).document["strategies"])
    unsure = _order_chart({"file": own, "best": best | {"order_search": {"optimal": False, "proven_bound_bytes": 5}}})
    assert unsure.document["lower_bound_bytes"] == 5
    assert not any(row["optimal"] for row in unsure.document["strategies"])
