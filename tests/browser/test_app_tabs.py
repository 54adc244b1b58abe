"""The tabs of the dashboard in a real browser, each on its main path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from PIL import Image

from onnxmem import zoo
from tests.browser.conftest import WAIT, Dashboard, dashboard, settled
from tests.unit.report import samples


@pytest.fixture(scope="module")
def page(app: Dashboard) -> Iterator[Any]:
    """One page for all tests, each of which is about another tab of it: to open one takes ten seconds."""
    with app.tab() as opened:
        yield opened


def panel(page: Any, name: str) -> Any:
    """What is in a tab, once it is chosen, and the server has drawn it."""
    playwright = pytest.importorskip("playwright.sync_api")
    found, state = page.get_by_role("tabpanel", name=name), ""
    for _ in range(2):  # a click on a page that is just being replaced may be lost: one would click again
        page.get_by_role("tab", name=name).click()
        try:
            found.locator("[data-testid]").first.wait_for(timeout=WAIT)
        except playwright.TimeoutError:
            state += page.locator("[data-test-script-state]").first.get_attribute("data-test-script-state") or "?"
            page.get_by_role("tab", name="Overview").click()
        else:
            settled(page)  # a button that is drawn once more loses the click that it gets meanwhile
            return found
    raise AssertionError(f"the tab {name} stays empty; the page was {state} and shows {page.inner_text('body')[:2000]}")


def figure(panel: Any, label: str) -> str:
    """The value under a label."""
    text: str = panel.get_by_test_id("stMetric").filter(has_text=label).first.inner_text()
    return text.rsplit("\n", maxsplit=1)[-1]


def press(panel: Any, name: str) -> None:
    panel.get_by_role("button", name=name, exact=True).click(timeout=WAIT)


def chosen(page: Any, label: str, value: str) -> None:
    """Wait until a list shows this as what is chosen: as its text, or as the value of its field."""
    page.wait_for_function(
        """([label, value]) => [...document.querySelectorAll('[data-testid="stSelectbox"]')].some(list =>
           list.innerText.includes(label) && (list.innerText.includes(value) ||
           [...list.querySelectorAll('input')].some(field => field.value.includes(value))))""",
        arg=[label, value], timeout=WAIT,
    )  # fmt: skip


def chart(page: Any, key: str) -> Any:
    return page.locator(f".st-key-chart-{key} [role='graphics-document'], .st-key-chart-{key} canvas").first


def test_release_step_by_step_and_live(app: Dashboard, page: Any) -> None:
    tab = panel(page, "Release")
    press(tab, "Load")
    tab.get_by_text("loaded", exact=True).first.wait_for(timeout=WAIT)
    chart(page, "live").wait_for(timeout=WAIT)
    press(tab, "Run")
    page.wait_for_function("() => document.body.innerText.includes('run 1') || "
                           "[...document.querySelectorAll('[aria-label]')].some(e => "
                           "e.getAttribute('aria-label').includes('run 1'))", timeout=WAIT)  # fmt: skip
    press(tab, "Unload")
    tab.get_by_text("unloaded", exact=True).first.wait_for(timeout=WAIT)
    page.wait_for_function("() => document.body.innerText.includes('0 B')", timeout=WAIT)
    assert "MiB" in figure(tab, "At most so far")
    assert not [child for child in app.children() if "isolated" in " ".join(child.cmdline())]
    press(tab, "Release step by step")
    tab.get_by_text("What each step gave back").first.wait_for(timeout=WAIT)
    assert figure(tab, "came back").endswith("%")


def test_workers_predicted_and_measured(page: Any) -> None:
    tab = panel(page, "Workers")
    tab.get_by_text("by prediction").first.wait_for(timeout=WAIT)
    chart(page, "predicted-workers").wait_for(timeout=WAIT)
    # One group of one worker, in two modes: what it is about is quick.
    for name in ("Workers at once", "Workers at once", "Modes"):
        tab.get_by_role("combobox", name=name).press("Backspace")
    settled(page)
    press(tab, "Measure workers")
    tab.get_by_role("button", name="Cancel").first.wait_for(timeout=WAIT)
    tab.get_by_text("Memory of 1 worker").first.wait_for(timeout=2 * WAIT)
    assert "MiB" in figure(tab, "together, stock")


def test_compare_modes_and_say_that_the_answers_are_the_same(page: Any) -> None:
    tab = panel(page, "Compare")
    tab.get_by_role("spinbutton", name="Processes for each candidate").fill("1")
    settled(page)
    press(tab, "Compare")
    tab.get_by_text("The answers are ").first.wait_for(timeout=2 * WAIT)
    tab.get_by_text("All figures, medians").first.wait_for(timeout=WAIT)


def test_a_picture_before_and_after(page: Any, tmp_path: Path) -> None:
    Image.new("RGB", (200, 120), (40, 90, 160)).save(tmp_path / "mine.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    tab = panel(page, "Try it")
    tab.get_by_role("button", name="Enhance", disabled=False).first.wait_for(timeout=WAIT)
    tab.get_by_text("Upload a picture").click(timeout=WAIT)
    tab.get_by_text("A PNG or JPEG of at most").first.wait_for(timeout=WAIT)
    field = tab.get_by_test_id("stFileUploader").filter(has_text="PNG or JPEG").locator("input[type=file]")
    field.set_input_files(tmp_path / "bad.png", timeout=WAIT)
    chosen(page, "Picture", "bad.png")
    press(tab, "Enhance")
    tab.get_by_text("is not a PNG or JPEG picture").first.wait_for(timeout=WAIT)
    field.set_input_files(tmp_path / "mine.png", timeout=WAIT)
    chosen(page, "Picture", "mine.png")
    press(tab, "Enhance")
    tab.get_by_text("After, planned").first.wait_for(timeout=WAIT)
    assert tab.get_by_test_id("stImage").locator("img").count() >= 3
    tab.get_by_text("The answers are ").first.wait_for(timeout=2 * WAIT)
    assert "MiB" in figure(tab, "Peak memory, stock") and "s" in figure(tab, "Time of a run, planned")


def test_a_slider_moves_the_figures_and_a_budget_says_how_large(page: Any) -> None:
    """Curves once, then sliders and a budget that are answered from them."""
    tab = panel(page, "What if")
    slider = tab.get_by_role("slider", name="Look at batch")
    slider.wait_for(timeout=WAIT)
    before = tab.get_by_test_id("stMetricValue").all_inner_texts()
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("""before => {
        const panel = document.querySelector('[role=tabpanel]:not([inert])');
        return ![...panel.querySelectorAll('[data-testid=stMetricValue]')].some(e => before.includes(e.innerText));
    }""", arg=before, timeout=WAIT)  # fmt: skip
    page.get_by_role("textbox", name="Budget").fill("300MiB")
    page.keyboard.press("Enter")
    tab.get_by_role("heading", name="Largest batch that fits into 300.0 MiB").first.wait_for(timeout=WAIT)
    tab.locator("text", has_text="budget 300.0 MiB").first.wait_for(timeout=WAIT)


def test_earlier_results_side_by_side_and_as_a_page(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="the package streamlit is not installed")
    for mode, run in (("stock", 60 << 20), ("planned", 20 << 20)):
        (tmp_path / f"{mode}.json").write_text(json.dumps(samples.measure(mode, run)))
    # A small model of its own: it would be a large one of the zoo.
    onnx.save(zoo.build("matmul", layers=2, width=16), tmp_path / "model.onnx")
    with dashboard(browser, str(tmp_path)) as app, app.tab("History") as page:
        page.get_by_text("Peak memory: 80.0 MiB planned, 120.0 MiB stock").first.wait_for(timeout=WAIT)
        settled(page)  # the page draws itself anew with the estimate, and a button that is just replaced is not clicked
        press(page, "Make the HTML report")
        page.get_by_role("button", name="Download HTML").first.wait_for(timeout=WAIT)
        settled(page)
        with page.expect_download() as waiting:
            press(page, "Download HTML")
        text = Path(waiting.value.path()).read_text()
        assert text.startswith("<!DOCTYPE html>") and "At a glance" in text
        with page.expect_download() as waiting:
            press(page, "Download JSON")
        assert json.loads(Path(waiting.value.path()).read_text())["schema"] == "onnxmem.report/1"
