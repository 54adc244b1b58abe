"""The tabs of the dashboard in a real browser, each on its main path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from PIL import Image

from onnxmem import zoo
from tests.browser.conftest import WAIT, Dashboard, dashboard, settled
from tests.unit.report import samples


def figure(page: Any, label: str) -> str:
    """The value under a label."""
    text: str = page.get_by_test_id("stMetric").filter(has_text=label).first.inner_text()
    return text.rsplit("\n", maxsplit=1)[-1]


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click(timeout=WAIT)


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


def test_release_step_by_step_and_live(app: Dashboard) -> None:
    with app.tab("Release") as page:
        press(page, "Load")
        page.get_by_text("loaded", exact=True).wait_for(timeout=WAIT)
        chart(page, "live").wait_for(timeout=WAIT)
        press(page, "Run")
        page.wait_for_function("() => document.body.innerText.includes('run 1') || "
                               "[...document.querySelectorAll('[aria-label]')].some(e => "
                               "e.getAttribute('aria-label').includes('run 1'))", timeout=WAIT)  # fmt: skip
        press(page, "Unload")
        page.get_by_text("unloaded", exact=True).wait_for(timeout=WAIT)
        page.wait_for_function("() => document.body.innerText.includes('0 B')", timeout=WAIT)
        assert "MiB" in figure(page, "At most so far")
        assert not [child for child in app.children() if "isolated" in " ".join(child.cmdline())]
        press(page, "Release step by step")
        page.get_by_text("What each step gave back").wait_for(timeout=WAIT)
        assert figure(page, "came back").endswith("%")


def test_workers_predicted_and_measured(app: Dashboard) -> None:
    with app.tab("Workers") as page:
        page.get_by_text("by prediction").wait_for(timeout=WAIT)
        chart(page, "predicted-workers").wait_for(timeout=WAIT)
        # One group of one worker, in two modes: what it is about is quick.
        for name in ("Workers at once", "Workers at once", "Modes"):
            page.get_by_role("combobox", name=name).press("Backspace")
        settled(page)
        press(page, "Measure workers")
        page.get_by_role("button", name="Cancel").wait_for(timeout=WAIT)
        page.get_by_text("Memory of 1 worker").wait_for(timeout=2 * WAIT)
        assert "MiB" in figure(page, "together, stock")


def test_compare_modes_and_say_that_the_answers_are_the_same(app: Dashboard) -> None:
    with app.tab("Compare") as page:
        page.get_by_role("spinbutton", name="Processes for each candidate").fill("1")
        settled(page)
        press(page, "Compare")
        page.get_by_text("The answers are the same").wait_for(timeout=2 * WAIT)
        page.get_by_text("All figures, medians").wait_for(timeout=WAIT)


def test_a_picture_before_and_after(app: Dashboard, tmp_path: Path) -> None:
    Image.new("RGB", (200, 120), (40, 90, 160)).save(tmp_path / "mine.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with app.tab("Try it") as page:
        page.get_by_role("button", name="Enhance", disabled=False).wait_for(timeout=WAIT)
        page.get_by_text("Upload a picture").click(timeout=WAIT)
        page.get_by_text("A PNG or JPEG of at most").wait_for(timeout=WAIT)
        field = page.get_by_test_id("stFileUploader").filter(has_text="PNG or JPEG").locator("input[type=file]")
        field.set_input_files(tmp_path / "bad.png", timeout=WAIT)
        chosen(page, "Picture", "bad.png")
        press(page, "Enhance")
        page.get_by_text("is not a PNG or JPEG picture").wait_for(timeout=WAIT)
        field.set_input_files(tmp_path / "mine.png", timeout=WAIT)
        chosen(page, "Picture", "mine.png")
        press(page, "Enhance")
        page.get_by_text("After, planned").wait_for(timeout=WAIT)
        assert page.get_by_test_id("stImage").locator("img").count() >= 3
        page.get_by_text("The answers are the same").wait_for(timeout=2 * WAIT)
        assert "MiB" in figure(page, "Peak memory, stock") and "s" in figure(page, "Time of a run, planned")


def test_earlier_results_side_by_side_and_as_a_page(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="the package streamlit is not installed")
    for mode, run in (("stock", 60 << 20), ("planned", 20 << 20)):
        (tmp_path / f"{mode}.json").write_text(json.dumps(samples.measure(mode, run)))
    # A small model of its own: it would be a large one of the zoo.
    onnx.save(zoo.build("matmul", layers=2, width=16), tmp_path / "model.onnx")
    with dashboard(browser, str(tmp_path)) as app, app.tab("History") as page:
        page.get_by_text("Peak memory: 80.0 MiB planned, 120.0 MiB stock").wait_for(timeout=WAIT)
        press(page, "Make the HTML report")
        page.get_by_role("button", name="Download HTML").wait_for(timeout=WAIT)
        with page.expect_download() as waiting:
            press(page, "Download HTML")
        text = Path(waiting.value.path()).read_text()
        assert text.startswith("<!DOCTYPE html>") and "At a glance" in text
        with page.expect_download() as waiting:
            press(page, "Download JSON")
        assert json.loads(Path(waiting.value.path()).read_text())["schema"] == "onnxmem.report/1"
