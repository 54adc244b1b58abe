"""What the tabs show, drawn by Streamlit itself: with results as verbs write them, and no process started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxmem.app.choice import Choice
from onnxmem.app.settings import Settings, configure
from onnxmem.app.workspace import Workspace
from onnxmem.estimation.budgets import BudgetFacts
from onnxmem.estimation.estimate import estimate
from onnxmem.estimation.planning import plan
from onnxmem.units import format_bytes, typed_bytes
from tests.helpers import conv_and_pool
from tests.unit.report import samples

testing = pytest.importorskip("streamlit.testing.v1", reason="the package streamlit is not installed")
MIB = 2**20


def draw(tab: str, *given: object) -> None:
    """The script of a page that is one tab; it is run as text, and knows no names of this file."""
    import importlib  # noqa: PLC0415

    importlib.import_module(f"onnxmem.app.tabs.{tab}").show(*given)


def ended(document: Any, *words: str, error: str = "") -> Any:
    """A job that has done its work."""
    return SimpleNamespace(words=words, document=document, error=error, hint="", cancelled=False, ended=True,
                           stages=[], seconds=1.0)  # fmt: skip


@pytest.fixture
def space() -> Iterator[Workspace]:
    made = Workspace()
    yield made
    for other in made.others.values():
        other.close()
    made._stack.close()


@pytest.fixture
def choice(tmp_path: Path) -> Choice:
    return Choice(path=tmp_path / "model.onnx")


def opened(tab: str, space: Workspace, choice: Choice, estimate: Any = None) -> Any:
    given = (tab, space, choice, estimate or ended(samples.estimate()))
    return testing.AppTest.from_function(draw, args=given, default_timeout=600)


def keep(space: Workspace, page: Any, place: tuple[str, ...], words: tuple[str, ...], document: Any) -> None:
    """As if a button had asked for it, and it had come."""
    page.session_state["asked"] = {place: words}
    space._jobs[words] = ended(document, *words)


def text_of(page: Any) -> str:
    return "\n".join(each.value for kind in ("markdown", "caption", "subheader", "info", "warning", "error")
                     for each in getattr(page, kind))  # fmt: skip


def test_release_offers_the_ladder_and_a_session_to_load(space: Workspace, choice: Choice) -> None:
    page = opened("release", space, choice).run()
    assert not page.exception
    buttons = {button.label: button.disabled for button in page.button}
    assert buttons == {"Release step by step": False, "Load": False, "Run": True, "Trim": True, "Unload": True}
    assert [metric.value for metric in page.metric] == ["—", "—", "not loaded"]


def test_release_shows_the_ladder_with_its_explanation(space: Workspace, choice: Choice) -> None:
    page, words = opened("release", space, choice), choice.words("release", "--mode", "stock")
    keep(space, page, words, words, samples.release("model <b>.onnx"))
    page.run()
    assert not page.exception
    assert "What each step gave back" in text_of(page)
    assert page.metric[0].value == "90.0%"
    assert page.get("vega_lite_chart") or page.get("arrow_vega_lite_chart")
    # Names come from files that anybody may have made.
    assert "<b>" not in text_of(page)
    assert "Release again" in [button.label for button in page.button]


def test_workers_begins_with_the_prediction(space: Workspace, choice: Choice) -> None:
    processes = [{"mode": mode, "total_pss_bytes": {"1": each, "4": 4 * each}}
                 for mode, each in (("stock", 90 * MIB), ("mapped", 50 * MIB))]  # fmt: skip
    page = opened("workers", space, choice, ended({**samples.estimate(), "processes": processes})).run()
    assert not page.exception
    assert "by prediction" in text_of(page)
    (chart,) = page.get("vega_lite_chart") or page.get("arrow_vega_lite_chart")
    assert "mapped  200.0 MiB" in str(chart.proto)


def test_workers_says_what_is_missing_and_starts_nothing(space: Workspace, choice: Choice) -> None:
    page = opened("workers", space, choice).run()
    page.multiselect(key="worker counts").set_value([])
    page.button[0].click().run()
    assert "Choose at least one number of workers" in text_of(page)
    assert not space.jobs("share")


def test_workers_shows_what_was_measured(space: Workspace, choice: Choice) -> None:
    page = opened("workers", space, choice)
    keep(space, page, choice.words("share"), choice.words("share", "--workers", "1,2"), samples.share("mapped"))
    page.run()
    assert not page.exception
    assert "Workers against the memory they take together" in text_of(page)
    assert "by prediction" not in text_of(page)


def test_ort_files_have_modes_of_their_own(space: Workspace, tmp_path: Path) -> None:
    page = opened("workers", space, Choice(path=tmp_path / "model.ort")).run()
    assert set(page.multiselect[1].options) == {"ort", "ort-mapped", "ort-mapped-packed"}


def test_compare_needs_a_candidate(space: Workspace, choice: Choice) -> None:
    page = opened("compare", space, choice).run()
    assert page.number_input(key="compared repeat").value == 2
    page.multiselect(key="compared modes").set_value([])
    page.button[0].click().run()
    assert not page.exception
    assert "Choose at least one candidate" in text_of(page)
    assert not space.jobs("compare")


def test_compare_shows_parity_curves_and_advice(space: Workspace, choice: Choice) -> None:
    page = opened("compare", space, choice)
    keep(space, page, choice.words("compare"), ("compare", "x"), samples.compare())
    page.run()
    assert not page.exception
    said = text_of(page)
    assert "The answers are the same" in said and "points measured, lines fitted" in said and "120.0 MiB less" in said


def test_a_slider_says_what_less_memory_costs_and_the_map_shows_the_pieces(space: Workspace, choice: Choice) -> None:
    model = conv_and_pool()
    whole = estimate(model, budget="least", strategies=("best",), processes=False)
    page = opened("map", space, choice, ended(whole.document())).run()
    stops = choice.words("estimate", "--budget", "least", "--strategy", "best")
    space._jobs[stops] = ended(whole.document(), *stops)
    page.button(key="map less").click().run()
    assert isinstance(whole.budget, BudgetFacts)
    steps = whole.budget.steps
    (slider,) = page.select_slider
    assert slider.options == [format_bytes(step.needed) for step in reversed(steps)]
    assert [metric.value for metric in page.metric][:3] == [format_bytes(steps[0].needed), "none", "none"]
    assert "stripes" not in spec_of(page)
    capacity = round(1.02 * steps[-1].needed)
    tiled = choice.words("plan", "--tile", "--capacity", str(capacity))
    space._jobs[tiled] = ended(plan(model, tile=True, capacity=capacity).document(), *tiled)
    slider.set_value(steps[-1].needed).run()
    assert not page.exception
    assert [metric.value for metric in page.metric][2] == str(steps[-1].nodes)
    assert f"--budget {typed_bytes(steps[-1].needed)}" in page.code[0].value
    assert "stripes" in spec_of(page)


def spec_of(page: Any) -> str:
    """The map."""
    return str(next(chart.proto.spec for chart in page.get("vega_lite_chart") if '"chosen"' in chart.proto.spec))


def test_two_measurements_stand_side_by_side(space: Workspace, choice: Choice) -> None:
    for mode, run in (("stock", 60 * MIB), ("planned", 20 * MIB)):
        space._jobs[("measure", mode)] = ended(samples.measure(mode, run), "measure", mode)
    page = opened("history", space, choice).run()
    assert not page.exception
    assert page.header[0].value == "At a glance"
    assert "Peak memory: 80.0 MiB planned, 120.0 MiB stock" in text_of(page)
    assert len(page.multiselect[0].value) == 2


def test_what_cannot_be_compared_says_why(space: Workspace, choice: Choice) -> None:
    space._jobs[("release",)] = ended(samples.release(), "release")
    space._jobs[("share",)] = ended(samples.share(), "share")
    page = opened("history", space, choice).run()
    assert not page.exception
    assert "only measurements are, and these are release, share" in text_of(page)


def test_results_in_files_are_there_and_bad_ones_are_a_sentence(
    space: Workspace, choice: Choice, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(samples.measure()))
    bad.write_text("{")
    configure(Settings(results=(good, bad)))
    try:
        page = opened("history", space, choice).run()
    finally:
        configure(Settings())
    assert not page.exception
    assert page.multiselect[0].value == ["good.json: measure · model.onnx · stock"]
    assert "is not a JSON file" in text_of(page)
