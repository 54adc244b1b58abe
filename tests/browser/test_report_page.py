"""The HTML report as people see it: desktop and phone, light and dark, on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxmem.report.build import make_report
from onnxmem.report.save import save_report
from tests.unit.report import samples

DESKTOP, PHONE = (1280, 900), (390, 844)
CONTRAST = """() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const behind = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  return Math.min(...[...document.querySelectorAll('h1,h2,p,dt,dd,th,td,li,a,caption,figcaption,summary')]
    .filter(e => e.textContent.trim()).map(e => {
      const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05); }));
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    results = [
        *samples.all_of_them(samples.HOSTILE[0]),
        samples.plan(500, samples.HOSTILE),
        samples.measure("planned"),
        samples.compare("PP-OCRv6_det_small_2026.onnx+tuned"),
    ]
    save_report(make_report(results, "W" * 200 + samples.HOSTILE[1]), path)
    return path


@pytest.fixture(
    scope="module", params=[(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")], ids=str
)
def page(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Any]:
    (width, height), scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened = context.new_page()
    opened.asked, opened.said, opened.scheme = [], [], scheme
    opened.on("request", lambda asked: opened.asked.append(asked.url))
    opened.on("console", lambda said: opened.said.append(said.text))
    opened.on("dialog", lambda dialog: opened.said.append(dialog.message))
    opened.goto(report.as_uri())
    yield opened
    context.close()


def test_it_fits_asks_for_nothing_and_can_be_read(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert len(page.asked) == 1 and page.said == [] and page.evaluate("window.hacked") is None
    assert page.evaluate(CONTRAST) >= 4.5
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 23, 28)" if page.scheme == "dark" else "rgb(255, 255, 255)")


def test_wide_things_scroll_in_their_own_box(page: Any) -> None:
    outside = """() => [...document.querySelectorAll('section *')].filter(e => !e.closest('.scroll') &&
      e.getBoundingClientRect().right > innerWidth + 1 && e.getBoundingClientRect().width > 0).map(e => e.outerHTML)"""
    assert page.evaluate(outside) == []
    page.locator("summary").last.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert page.get_by_role("row").count() > 500
    # One letter to a line is what a table that is squeezed instead of scrolled looks like.
    heights = page.evaluate("[...document.querySelectorAll('td.number')].map(e => e.getBoundingClientRect().height)")
    assert max(heights) < 400
    page.locator("summary").last.click()  # as the others expect it


def test_pictures_have_words(page: Any) -> None:
    pictures = page.get_by_role("img")
    assert pictures.count() == page.locator("figure").count() > 6
    assert all(pictures.nth(k).get_attribute("aria-label") for k in range(pictures.count()))


def test_charts_are_drawn_for_the_width_of_a_phone(page: Any) -> None:
    shown = """kind => [...document.querySelectorAll('.picture.' + kind + ' svg')].map(e =>
      e.getBoundingClientRect()).filter(box => box.width > 0).map(box => box.right)"""
    narrow = page.viewport_size["width"] == PHONE[0]
    assert page.evaluate(shown, "wide" if narrow else "narrow") == []
    ends = page.evaluate(shown, "narrow" if narrow else "wide")
    assert len(ends) > 4 and max(ends) <= page.viewport_size["width"]


def test_on_paper_nothing_is_clipped_and_all_is_light(browser: Any, report: Path, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 794, "height": 1123}, color_scheme="dark")
    page.goto(report.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(31, 41, 51)"
    clipped = "[...document.querySelectorAll('.picture svg')].some(e => e.getBoundingClientRect().right > innerWidth)"
    assert not page.evaluate(clipped)
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
    page.close()
