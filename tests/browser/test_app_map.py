"""The tab Map in a real browser: what is done in it without the server, and what the server hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import WAIT, Dashboard, settled

MAP = '.st-key-map-frame [class*="st-key-chart-map"]'
RECTANGLE = '.st-key-map-frame path[aria-roledescription="rect mark"]'
SHADED = 0.5


@pytest.fixture(scope="module")
def opened(app: Dashboard) -> Any:
    with app.tab("Map") as page:
        page.locator(RECTANGLE).first.wait_for(timeout=WAIT)
        settled(page)
        yield page


@pytest.fixture
def page(opened: Any) -> Any:
    """The same page for all, and for each as if nothing had been done in it."""
    settled(opened)  # while it draws itself anew, what was there may be there, too
    old = opened.locator(MAP).get_attribute("class")
    opened.get_by_role("button", name="Show all").click()
    opened.wait_for_function("""([map, old, rectangle]) => {
        const drawn = [...document.querySelectorAll(rectangle)];
        return document.querySelector(map)?.getAttribute('class') !== old && drawn.length
          && drawn.every(e => Number(e.getAttribute('opacity') ?? 1) === 1);
    }""", arg=[MAP, old, RECTANGLE], timeout=WAIT)  # fmt: skip
    opened.get_by_text("Click a tensor to see").first.wait_for(timeout=WAIT)
    settled(opened)
    assert opened.get_by_text("Click a tensor to see").count() == 1
    return opened


def opacities(page: Any) -> dict[str, float]:
    """How strongly each tensor is drawn."""
    found: dict[str, float] = page.evaluate(
        """selector => Object.fromEntries([...document.querySelectorAll(selector)].map(
             e => [e.getAttribute('aria-label'), Number(e.getAttribute('opacity') ?? 1)]))""",
        RECTANGLE,
    )
    return found


def widths(page: Any) -> list[float]:
    """Of the rectangles, in pixels."""
    found: list[float] = page.evaluate(
        "selector => [...document.querySelectorAll(selector)].map(e => e.getBBox().width)", RECTANGLE
    )
    return found


def nodes(page: Any) -> str:
    """What stands above the table of nodes."""
    text: str = page.locator("strong", has_text="nodes").first.inner_text()
    return text


def test_marking_the_curve_zooms_the_map_and_the_table(page: Any) -> None:
    before, whole = widths(page), nodes(page)
    curve = page.locator(".st-key-map-frame .mark-area path").last
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    left, width, middle = box["x"], box["width"], box["y"] + box["height"] / 2
    page.mouse.move(left + 0.2 * width, middle)
    page.mouse.down()
    page.mouse.move(left + 0.45 * width, middle, steps=5)
    page.mouse.up()
    page.locator("strong", has_text="from step").first.wait_for(timeout=WAIT)
    assert max(widths(page)) > 2 * max(before)
    page.get_by_role("button", name="Show all").click()
    page.locator("strong", has_text=whole).first.wait_for(timeout=WAIT)
    page.wait_for_function("([selector, width]) => document.querySelector(selector)?.getBBox().width <= width",
                           arg=[RECTANGLE, max(before) + 1], timeout=WAIT)  # fmt: skip


def test_a_click_tells_all_about_a_tensor_and_lights_up_its_relatives(page: Any) -> None:
    assert set(opacities(page).values()) == {1}
    largest = max(range(len(widths(page))), key=widths(page).__getitem__)
    rectangle = page.locator(RECTANGLE).nth(largest)
    name = rectangle.get_attribute("aria-label")
    rectangle.click(force=True)
    panel = page.locator(".st-key-map-tensor")
    panel.get_by_role("heading", name=name).first.wait_for(timeout=WAIT)
    panel.get_by_text("Read by").first.wait_for(timeout=WAIT)
    settled(page)
    told = panel.inner_text()
    assert "Made by" in told and "Read by" in told and "Steps alive" in told and "Offset" in told
    shown = opacities(page)
    lit = {tensor for tensor, opacity in shown.items() if opacity > SHADED}
    assert name in lit and 1 < len(lit) < len(shown)
    # From here to a relative.
    other = panel.get_by_role("radio").or_(panel.locator('[data-testid="stPills"] button')).first
    label = other.inner_text().split(" · ")[0]
    other.click()
    panel.get_by_role("heading", name=label).first.wait_for(timeout=WAIT)


def test_what_is_typed_shades_the_rest_at_once(page: Any) -> None:
    wanted = max(opacities(page), key=len)
    page.get_by_role("textbox", name="Find a tensor").fill(wanted)
    page.wait_for_function("""selector => [...document.querySelectorAll(selector)].some(
        e => Number(e.getAttribute('opacity') ?? 1) < 0.5)""", arg=RECTANGLE, timeout=WAIT)  # fmt: skip
    lit = {tensor for tensor, opacity in opacities(page).items() if opacity > SHADED}
    assert wanted in lit and len(lit) < len(opacities(page))
    page.get_by_text(" found").first.wait_for(timeout=WAIT)


def test_the_peak_is_a_button_away(page: Any) -> None:
    page.get_by_role("button", name="Jump to peak").click()
    page.locator("strong", has_text="from step").first.wait_for(timeout=WAIT)
    settled(page)  # until then the map as it was may be there, too
    assert page.locator(".st-key-map-frame text", has_text="peak at step").count() == 1
