"""The memory map in the page: hover, find, click, zoom and move, with the mouse and the keyboard of a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxmem.report.build import make_report
from onnxmem.report.save import save_report
from tests.unit.report import samples

VIEW = "document.querySelector('.map svg').getAttribute('viewBox').split(' ').map(Number)"


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    document = samples.plan(300)
    for row in document["placement"]:
        row |= {"shape": [1, 64, 8, 8], "dtype": "float32", "producer": f"Conv_{row['lower']}", "consumers": ["Add_9"]}
    document["placement"][7]["name"] = samples.HOSTILE[1]
    save_report(make_report([document]), tmp_path / "report.html")
    context = browser.new_context(viewport={"width": 1280, "height": 1400})
    opened = context.new_page()
    opened.errors = []
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.on("console", lambda message: opened.errors.append(message.text))
    opened.goto((tmp_path / "report.html").as_uri())
    yield opened
    assert opened.errors == [] and opened.evaluate("window.hacked") is None
    context.close()


def middle(page: Any, name: str) -> tuple[Any, float, float]:
    """A rectangle of the map by the name of its tensor, and where its middle is."""
    box = page.locator(".map .buffer", has_text=name).first
    box.scroll_into_view_if_needed()
    place = box.bounding_box()
    return box, place["x"] + place["width"] / 2, place["y"] + place["height"] / 2


def largest(page: Any) -> str:
    """The name of the tensor with the largest rectangle: nothing lies over its middle."""
    name: str = page.evaluate("""() => [...document.querySelectorAll('.map .buffer')].map(e => [e, e.getBBox()])
      .sort((a, b) => b[1].width * b[1].height - a[1].width * a[1].height)[0][0].textContent.split('\\n')[0]""")
    return name


def test_hovering_shows_what_a_tensor_is_and_marks_it(page: Any) -> None:
    box, x, y = middle(page, largest(page))
    lines = box.locator("title").text_content().split("\n")
    assert "1×64×8×8 float32" in lines[1] and "to its last reader, Add_9" in lines[2]
    before = box.evaluate("e => getComputedStyle(e).stroke")
    page.mouse.move(x, y)
    assert box.evaluate("e => getComputedStyle(e).stroke") != before


def test_a_click_tells_producer_readers_shape_and_lifetime(page: Any) -> None:
    name = largest(page)
    box, x, y = middle(page, name)
    about = page.locator(".tensor")
    assert about.is_hidden()
    page.mouse.click(x, y)
    assert about.inner_text() == box.locator("title").text_content()
    assert "chosen" in box.get_attribute("class") and "read by Add_9" in about.inner_text()
    page.locator(".map svg").click(position={"x": 3, "y": 3})
    assert about.is_hidden() and page.locator(".chosen").count() == 0


def test_what_is_looked_for_stands_out(page: Any) -> None:
    search = page.get_by_role("searchbox")
    search.fill("onerror")
    assert page.locator(".found").inner_text() == "1 of 300 found"
    shown = page.locator(".map .buffer:not(.other)")
    assert {samples.HOSTILE[1] in text for text in shown.all_text_contents()} == {True}
    search.press("Enter")
    assert page.locator(".tensor").inner_text().startswith(samples.HOSTILE[1])
    search.fill("")
    assert page.locator(".other").count() == 0 and page.locator(".found").inner_text() == ""


def test_the_map_is_zoomed_moved_and_shown_whole_again(page: Any) -> None:
    whole = page.evaluate(VIEW)
    page.get_by_role("button", name="Zoom in").click()
    near = page.evaluate(VIEW)
    assert near[2] == pytest.approx(whole[2] * 0.6) and near[3] == pytest.approx(whole[3] * 0.6)
    svg = page.locator(".map svg").bounding_box()
    x, y = svg["x"] + svg["width"] / 2, svg["y"] + 200
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=4)
    page.mouse.up()
    moved = page.evaluate(VIEW)
    assert moved[0] < near[0] and moved[2:] == near[2:]
    assert page.locator(".tensor").is_hidden(), "moving is no click"
    page.mouse.dblclick(x, y)
    assert page.evaluate(VIEW)[2] < near[2]
    page.get_by_role("button", name="Show the whole map").click()
    assert page.evaluate(VIEW) == pytest.approx(whole)


def test_without_scripts_the_map_is_there_and_the_tools_are_not(browser: Any, tmp_path: Path) -> None:
    save_report(make_report([samples.plan(50)]), tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(".map .buffer title").count() >= 50 and page.locator(".tools").count() == 0
    context.close()
