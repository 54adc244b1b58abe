"""The dashboard in a real browser: its frame, what goes wrong, and how everything ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from tests.browser.conftest import WAIT, Dashboard, dashboard, settled


def eventually(check: Callable[[], object], seconds: float = WAIT / 1000) -> None:
    """It becomes true, in good time."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.1)


def choose(page: Any, name: str) -> None:
    """A model in the sidebar."""
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name=name, exact=True).click()


def metric(page: Any, label: str) -> str:
    """The value of a figure on top."""
    text: str = page.get_by_test_id("stMetric").filter(has_text=label).first.inner_text()
    return text.rsplit("\n", maxsplit=1)[-1]


def estimated(page: Any) -> None:
    page.get_by_text("Do this next").first.wait_for(timeout=WAIT)


def test_the_first_page_answers_and_goes_on_after_mistakes(app: Dashboard) -> None:
    with app.tab() as page:
        estimated(page)
        assert re.fullmatch(r"[\d.]+ MiB", page.get_by_test_id("stMetricValue").first.inner_text())
        page.get_by_text("What the process will be made of").first.wait_for(timeout=WAIT)
        page.locator("code", has_text="onnxmem measure").first.wait_for(timeout=WAIT)
        page.get_by_role("textbox", name="Budget").fill("10MiB")
        page.keyboard.press("Enter")
        page.get_by_text("does not fit").first.wait_for(timeout=WAIT)
        page.get_by_role("textbox", name="Budget").fill("lots")
        page.keyboard.press("Enter")
        page.get_by_text("'lots' is not a size").first.wait_for(timeout=WAIT)
        page.get_by_role("textbox", name="Budget").fill("")
        page.keyboard.press("Enter")
        # A slider asks again, at another size.
        value = page.get_by_test_id("stMetricValue").first
        before = value.inner_text()
        page.get_by_role("slider", name="batch").focus()
        page.keyboard.press("ArrowRight")
        eventually(lambda: value.inner_text() != before)
        page.locator("code", has_text="--dim").first.wait_for(timeout=WAIT)
        # A model that is none is a sentence, and the page goes on.
        choose(page, "c.onnx")
        page.get_by_text("c.onnx' is not an ONNX model").first.wait_for(timeout=WAIT)
        choose(page, "a.onnx")
        estimated(page)


def upload(page: Any, path: Path) -> None:
    if not page.get_by_test_id("stFileUploader").first.is_visible():
        page.get_by_text("Upload a model").click()
    # The field that took the last one goes away.
    page.wait_for_function("document.querySelectorAll('input[type=file]').length === 1", timeout=WAIT)
    page.locator("input[type=file]").set_input_files(path)


def test_uploads_are_checked_kept_and_gone_with_the_tab(app: Dashboard, tmp_path: Path) -> None:
    good, bad, outside = tmp_path / "mine <b>.onnx", tmp_path / "bad.onnx", tmp_path / "outside.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    weight = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../../etc/passwd")
    relu = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(relu), good)
    bad.write_bytes(b"\x00" * 100)
    added = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    outside.write_bytes(helper.make_model(added).SerializeToString())
    with app.tab() as page:
        estimated(page)
        upload(page, bad)
        page.get_by_text("'bad.onnx' is not an ONNX model").first.wait_for(timeout=WAIT)
        upload(page, outside)
        page.get_by_text("keeps weights in other files").first.wait_for(timeout=WAIT)
        upload(page, good)
        page.get_by_role("heading", name="mine _b_.onnx").first.wait_for(timeout=WAIT)
        (kept,) = Path(tempfile.gettempdir()).glob("onnxmem.tmp-*/upload-*/mine _b_.onnx")
        assert kept.parents[1].stat().st_mode & 0o777 == 0o700
    eventually(lambda: not kept.parents[1].exists(), WAIT / 1000)


def measure(page: Any, runs: int) -> None:
    page.get_by_role("spinbutton", name="Steady runs").fill(str(runs))
    page.keyboard.press("Enter")
    # The page draws itself anew, and a button that is replaced under the mouse was not clicked.
    settled(page)
    page.get_by_role("button", name="Measure").click()


def test_cancel_ends_the_work_and_then_it_measures(app: Dashboard) -> None:
    with app.tab("Measure") as page:
        measure(page, runs=1000)
        page.get_by_role("button", name="Cancel").first.wait_for(timeout=WAIT)
        eventually(lambda: any("measure" in " ".join(child.cmdline()) for child in _alive(app)))
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("Cancelled: nothing is left running").first.wait_for(timeout=WAIT)
        eventually(lambda: not _alive(app), 30)
        # And then it measures: both modes, on one scale.
        measure(page, runs=2)
        page.get_by_text("in mode planned, measured").first.wait_for(timeout=2 * WAIT)
        page.get_by_text("in mode stock, measured").first.wait_for(timeout=WAIT)
        assert re.search(r"\d ms", metric(page, "Latency"))
        # A phase before the last: less is resident, in both.
        bars = page.locator("[aria-label^='stock: ']").first
        before = bars.get_attribute("aria-label")
        page.get_by_role("slider", name="At the end of phase").focus()
        page.keyboard.press("Home")
        eventually(lambda: bars.get_attribute("aria-label") != before)


def _alive(app: Dashboard) -> list[psutil.Process]:
    return [child for child in app.children() if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_two_tabs_do_not_disturb_each_other_and_a_closed_one_ends_its_work(app: Dashboard) -> None:
    with app.tab() as other:
        choose(other, "b.onnx")
        other.get_by_role("heading", name="b.onnx").first.wait_for(timeout=WAIT)
        estimated(other)
        with app.tab("Measure") as page:
            page.get_by_role("heading", name="a.onnx").first.wait_for(timeout=WAIT)
            measure(page, runs=1000)
            page.get_by_role("button", name="Cancel").first.wait_for(timeout=WAIT)
            eventually(lambda: _alive(app))
        eventually(lambda: not _alive(app), 30)
        # The other tab has its own model and budget, and lives.
        other.get_by_role("textbox", name="Budget").fill("8GiB")
        other.keyboard.press("Enter")
        other.get_by_text("fits", exact=True).first.wait_for(timeout=WAIT)


def test_whoever_has_no_token_or_another_name_sees_nothing(browser: Any) -> None:
    with dashboard(browser, "--address", "0.0.0.0") as running:
        plain = running.url.split("?")[0]
        port = plain.rsplit(":", 1)[1].strip("/")
        context = browser.new_context()
        page = context.new_page()
        answer = page.goto(f"http://127.0.0.1:{port}/")
        assert answer.status == 403 and "token" in page.inner_text("body")
        token = running.url.split("token=")[1]
        page.goto(f"http://127.0.0.1:{port}/?token={token}")
        page.get_by_role("tab", name="Overview").first.wait_for(timeout=WAIT)
        assert "token" not in page.url
        context.close()


def test_it_ends_with_everything_it_began(browser: Any, tmp_path: Path) -> None:
    with dashboard(browser) as running, running.tab("Measure") as page:
        page.get_by_role("button", name="Measure").click(timeout=WAIT)
        eventually(lambda: _alive(running))
        children = _alive(running)
        running.server.send_signal(signal.SIGTERM)
        running.server.wait(30)
        eventually(lambda: not any(child.is_running() for child in children), 30)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_and_use_it(app: Dashboard, scheme: str) -> None:
    """Every tab as it opens: names, contrast, headings, roles."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the package is not installed").Axe()
    with app.tab(color_scheme=scheme) as page:
        estimated(page)
        found = []
        tabs = page.get_by_role("tab").all()
        # The colours of the dark theme are the same in all.
        for tab in tabs if scheme == "light" else tabs[:4:3]:
            tab.click()
            page.get_by_role("tabpanel").first.wait_for(timeout=WAIT)
            settled(page)
            for violation in axe.run(page).response["violations"]:
                # Vega draws the brush as a symbol, and leaves no way to name it.
                nodes = [node["html"][:200] for node in violation["nodes"] if "marked_brush" not in node["html"]]
                if violation["impact"] in ("serious", "critical"):
                    found += [(tab.inner_text(), violation["id"], node) for node in nodes]
        assert found == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.onnx"], "there is no such file or folder"),
        (["--history", "nowhere.sqlite"], "there is no such file"),
        (["--upload-limit", "much"], "'much' is not a size"),
    ],
)
def test_mistakes_are_sentences(words: list[str], sentence: str) -> None:
    command = [sys.executable, "-m", "onnxmem", "app", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2 and sentence in run.stderr and "Traceback" not in run.stderr
