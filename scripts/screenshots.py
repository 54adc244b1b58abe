"""The README's pictures of the dashboard: `python -m scripts.screenshots docs/images [MODEL]`

In light, in dark and on a phone, of a model of the zoo unless another is given. Needs the system's Chromium.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from onnxmem import zoo
from scripts.browser import opened, serving

WAIT = 120_000
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 1250}


def overview(page: Page) -> None:
    """With a budget that one mode does not meet."""
    page.get_by_role("textbox", name="Budget").fill("128MiB")
    page.keyboard.press("Enter")
    page.get_by_text("fits", exact=True).first.wait_for(timeout=WAIT)


def memory_map(page: Page) -> None:
    """As it opens."""
    page.get_by_role("tab", name="Map").click()
    page.locator("[role=tabpanel] .marks").first.wait_for(timeout=WAIT)


def measure(page: Page) -> None:
    """Stock and planned, side by side."""
    page.get_by_role("tab", name="Measure").click()
    page.get_by_role("button", name="Measure").click()
    page.get_by_text("What is resident").first.wait_for(timeout=WAIT)
    page.get_by_text("At a glance").first.scroll_into_view_if_needed()


def what_if(page: Page) -> None:
    """The curves."""
    page.get_by_role("tab", name="What if").click()
    page.locator("[role=tabpanel] .marks").first.wait_for(timeout=WAIT)


PICTURES: dict[str, tuple[Any, Any, Any]] = {
    "app-overview": (overview, WIDE, "light"),
    "app-map": (memory_map, WIDE, "dark"),
    "app-measure": (measure, WIDE, "light"),
    "app-phone": (what_if, PHONE, "light"),
}


def take(url: str, folder: Path) -> None:
    """All of them, into this folder."""
    with sync_playwright() as started, opened(started) as browser:
        for name, (act, size, scheme) in PICTURES.items():
            context = browser.new_context(viewport=size, color_scheme=scheme)
            page = context.new_page()
            page.goto(url)
            page.get_by_text("Do this next").wait_for(timeout=WAIT)
            act(page)
            page.wait_for_timeout(2500)  # charts fade in
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            # Few colours: a third of the bytes, and nobody sees it.
            picture.quantize(128).save(folder / f"{name}.png", optimize=True)
            print(folder / f"{name}.png")
            context.close()


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        chosen = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else Path(temporary) / "unet.onnx"
        if not chosen.exists():
            onnx.save(zoo.build("unet"), chosen)
        # From its own folder: the pictures show commands, and those name the model as it is given.
        with serving(chosen.name, folder=chosen.parent) as (_, address):
            take(address, target)
