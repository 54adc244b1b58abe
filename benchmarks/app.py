"""Is the dashboard quick and small? `python -m benchmarks.app`

Asked: the first page within 3 s of `onnxmem app`, a map of 1,000 tensors within 2 s, an answer to a slider within
300 ms, the server below 400 MiB while its children work, and within 10 % of its start after 100 uploads. In the
system's Chromium; times on a busy machine are the browser's, too.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import psutil
from playwright.sync_api import Page, sync_playwright

from onnxmem import zoo
from scripts.browser import opened, serving

WAIT = 60_000
UPLOADS, SLIDES, REDRAWN = 100, 12, 3
TENSOR = '.st-key-map-frame path[aria-roledescription="rect mark"]'
MIB = 2**20


def timed(act: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def look(page: Page, url: str) -> None:
    """Open it: the first page is there when its tabs are."""
    page.goto(url)
    page.get_by_role("tab", name="Overview").wait_for(timeout=WAIT)


def first_page(new_page: Callable[[], Page], model: Path) -> float:
    """From typing the command to the page."""
    page, start = new_page(), time.perf_counter()
    with serving(str(model)) as (_, url):
        look(page, url)
        return time.perf_counter() - start


def slides(page: Page) -> list[float]:
    """From a key on the slider of What if to another figure."""
    page.get_by_role("tab", name="What if").click()
    slider = page.get_by_role("tabpanel").get_by_role("slider").first
    slider.wait_for(timeout=WAIT)
    page.wait_for_timeout(2000)
    seconds = []
    for number in range(SLIDES):
        before = page.get_by_role("tabpanel").inner_text()
        slider.focus()

        def move(before: str = before, key: str = ("ArrowRight", "ArrowLeft")[number % 2]) -> None:
            page.keyboard.press(key)
            page.wait_for_function(
                "before => document.querySelector('[role=tabpanel]:not([hidden])').innerText !== before", arg=before,
                timeout=WAIT, polling=10,
            )  # fmt: skip

        seconds.append(timed(move))
        page.wait_for_timeout(300)
    return seconds


def map_of_a_thousand(page: Page) -> tuple[float, list[float]]:
    """From a click on the tab to the map: the first time with what is left of the estimate, and then drawn anew."""
    page.get_by_text("Do this next").wait_for(timeout=WAIT)

    def draw() -> None:
        page.get_by_role("tab", name="Map").click()
        page.locator(TENSOR).nth(1000).wait_for(state="attached", timeout=WAIT)

    first, again = timed(draw), []
    for _ in range(REDRAWN):
        page.get_by_role("tab", name="Overview").click()
        page.locator(TENSOR).first.wait_for(state="detached", timeout=WAIT)
        page.wait_for_timeout(1000)
        again.append(timed(draw))
    return first, again


def uploads(page: Page, server: psutil.Process, folder: Path) -> list[int]:
    """The server's RSS after each upload of a model of some MiB."""
    model = folder / "upload.onnx"
    onnx.save(zoo.build("squeezenet"), model)
    page.get_by_text("Upload a model").click()
    sizes = []
    for number in range(UPLOADS):
        named = folder / f"upload-{number}.onnx"
        named.write_bytes(model.read_bytes())
        # The field that took the last one goes away.
        page.wait_for_function("document.querySelectorAll('input[type=file]').length === 1", timeout=WAIT)
        page.locator("input[type=file]").set_input_files(named)
        page.get_by_role("heading", name=named.name).wait_for(timeout=WAIT)
        named.unlink()
        sizes.append(server.memory_info().rss)
    return sizes


def thousand(folder: Path) -> Path:
    """A model with more than a thousand activations, of a kind that ONNX Runtime optimizes in seconds."""
    path = folder / "thousand.onnx"
    onnx.save(zoo.build("transformer", layers=44, width=48, heads=4, vocabulary=1000), path)
    return path


def row(what: str, value: str, asked: str) -> None:
    print(f"| {what} | {value} | {asked} |", flush=True)


def main() -> None:
    """The table."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as started, opened(started) as browser:
        folder = Path(name)

        def new_page() -> Page:
            page: Page = browser.new_page(viewport={"width": 1280, "height": 1000})
            return page

        model = folder / "squeezenet.onnx"
        onnx.save(zoo.build("squeezenet"), model)
        print("| what | seen | asked |\n|---|--:|--:|")
        first = sorted(first_page(new_page, model) for _ in range(3))
        row("first page after `onnxmem app`", f"{first[1]:.1f} s ({first[0]:.1f}–{first[-1]:.1f})", "3 s")
        with serving(str(model), str(thousand(folder))) as (_, url):
            page = new_page()
            look(page, url)
            seconds = sorted(slides(page))
            row("a slider", f"{statistics.median(seconds) * 1000:.0f} ms (worst {seconds[-1] * 1000:.0f})", "300 ms")
            page.get_by_role("tab", name="Overview").click()
            page.get_by_role("combobox", name="Model").click()
            page.get_by_role("option", name="thousand.onnx").click()
            page.get_by_role("heading", name="thousand.onnx").wait_for(timeout=WAIT)
            first_time, again = map_of_a_thousand(page)
            drawn = f"{statistics.median(again):.2f} s (worst {max(again):.2f}; the first time {first_time:.1f})"
            row("a map of 1,000 tensors", drawn, "2 s")
            page.close()
        with serving(str(model)) as (process, url):
            server = psutil.Process(process.pid)
            page = new_page()
            look(page, url)
            page.get_by_text("Do this next").wait_for(timeout=WAIT)
            start = server.memory_info().rss
            page.get_by_role("tab", name="Measure").click()
            page.get_by_role("button", name="Measure").click()
            most = start
            while not page.get_by_text("What is resident").first.is_visible():
                most = max(most, server.memory_info().rss)
                page.wait_for_timeout(200)
            row("the server while it measures (RSS)", f"{max(most, server.memory_info().rss) / MIB:.0f} MiB", "400 MiB")
            sizes = uploads(page, server, folder)
            page.close()
            time.sleep(8)
            end = server.memory_info().rss
            row("most during uploads", f"{max(sizes) / MIB:.0f} MiB", "400 MiB")
            row(f"after {UPLOADS} uploads", f"{end / start:.2f} × its start ({start / MIB:.0f} MiB)", "1.10 ×")


if __name__ == "__main__":
    main()
