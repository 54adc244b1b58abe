"""A browser to look at pages with: the system's Chromium, where there is one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import psutil
import pytest

from onnxmem import zoo
from scripts.browser import find, opened, serving

WAIT = 60_000
"""As long as anything may take on a busy machine, in milliseconds."""


# For this folder, not for the session: while Playwright is at work, its event loop is in the way of other tests'.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Debian: apt-get install chromium. Elsewhere: ONNXMEM_CHROMIUM names it."""
    if find() is None:
        pytest.skip("no Chromium here; apt-get install chromium, or set ONNXMEM_CHROMIUM to its path")
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as started, opened(started) as running:
        yield running


def settled(page: Any) -> None:
    """The server has drawn all it was asked for, and the page has not moved for a moment: what is there stays.

    What is about to be replaced is pale, and becomes so bit by bit.
    """
    page.evaluate("window.lastShape = null")  # from now on, not since it was asked last
    page.wait_for_function("""() => {
        const idle = document.querySelector('[data-test-script-state="notRunning"]');
        const shape = document.documentElement.scrollHeight + ':' + document.querySelectorAll('*').length;
        const fades = document.getAnimations().some(each => each instanceof CSSTransition);
        const moved = !idle || fades || window.lastShape !== shape;
        window.lastShape = shape;
        window.lastMoved = moved ? performance.now() : window.lastMoved;
        return performance.now() - window.lastMoved > 600;
    }""", polling=100, timeout=WAIT)  # fmt: skip


class Dashboard:
    """A dashboard that runs, and tabs of a browser that look at it."""

    def __init__(self, server: subprocess.Popen[str], url: str, browser: Any) -> None:
        self.server, self.url, self.browser = server, url, browser
        self._contexts: dict[str, Any] = {}

    def children(self) -> list[psutil.Process]:
        """The processes of verbs that are at work, and theirs."""
        return list(psutil.Process(self.server.pid).children(recursive=True))

    @contextmanager
    def tab(self, tab: str = "", **context: Any) -> Iterator[Any]:
        """A page of its own, once the model is chosen and estimated; nothing may go wrong in it unseen."""
        # Tabs share what the browser has fetched and compiled, and nothing else.
        if str(context) not in self._contexts:
            made = self.browser.new_context(viewport={"width": 1280, "height": 1000}, **context)
            made.set_default_timeout(WAIT)
            self._contexts[str(context)] = made
        page = self._contexts[str(context)].new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(self.url)
        page.get_by_role("tab", name="Overview").first.wait_for(timeout=WAIT)
        if tab:
            page.get_by_role("tab", name=tab).click()
        try:
            yield page
        except Exception as error:  # one of a wait does not say what was there instead
            error.add_note(page.locator("body").inner_text(timeout=WAIT))
            raise
        page.close()
        assert errors == []


@contextmanager
def dashboard(browser: Any, *words: str) -> Iterator[Dashboard]:
    """`onnxmem app` with these words."""
    with serving(*words) as (server, url):
        yield Dashboard(server, url, browser)


@pytest.fixture(scope="package")
def app(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard on a folder with a small model, a larger one, and a file that is none."""
    pytest.importorskip("streamlit", reason="the package streamlit is not installed")
    folder = tmp_path_factory.mktemp("models")
    onnx.save(zoo.build("squeezenet"), folder / "a.onnx")
    onnx.save(zoo.build("unet", channels=8), folder / "b.onnx")
    (folder / "c.onnx").write_bytes(b"this is no model")
    with dashboard(browser, str(folder)) as running:
        yield running
