"""The tab What if in a real browser: curves once, then sliders and a budget that are answered from them."""

from __future__ import annotations

from tests.browser.conftest import WAIT, Dashboard


def test_the_slider_moves_the_figures_and_a_budget_says_how_large(app: Dashboard) -> None:
    with app.tab("What if") as page:
        slider = page.get_by_role("slider", name="Look at batch")
        slider.wait_for(timeout=WAIT)
        figures = page.get_by_role("tabpanel", name="What if").get_by_test_id("stMetricValue")
        before = figures.all_inner_texts()
        slider.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("""before => {
            const panel = document.querySelector('[role=tabpanel]:not([inert])');
            return ![...panel.querySelectorAll('[data-testid=stMetricValue]')].some(e => before.includes(e.innerText));
        }""", arg=before, timeout=WAIT)  # fmt: skip
        page.get_by_role("textbox", name="Budget").fill("300MiB")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Largest batch that fits into 300.0 MiB").wait_for(timeout=WAIT)
        page.locator("text", has_text="budget 300.0 MiB").first.wait_for(timeout=WAIT)
