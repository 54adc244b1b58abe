"""The page: the sidebar, the figures on top, and the tabs below. It asks the verbs, and shows what they say."""

from __future__ import annotations

import importlib
from pathlib import Path

import streamlit as st

from onnxmem.app import sidebar
from onnxmem.app.choice import Choice
from onnxmem.app.headline import show_headline
from onnxmem.app.jobs import Job
from onnxmem.app.show import is_dark, measure_page
from onnxmem.app.workspace import Workspace, workspace
from onnxmem.report.charts.theme import ON_LIGHT
from onnxmem.report.render.to_markdown import escape

TABS = {
    "Overview": "overview",
    "Map": "map",
    "What if": "what_if",
    "Measure": "measure",
    "Release": "release",
    "Workers": "workers",
    "Compare": "compare",
    "Try it": "try_it",
    "History": "history",
}
"""Each is the `show(space, choice, estimate)` of a module in `tabs`, loaded when it is first opened."""

_ICON = Path(__file__).with_name("icon.svg")
_STYLE = """<style>
[data-testid="stMainBlockContainer"] { padding-top: 2.5rem; padding-bottom: 2rem; max-width: 1500px; }
[data-testid="stMetricValue"] { font-size: 1.6rem; }
h1 { font-size: 2rem !important; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem !important; }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding-left: 1rem; padding-right: 1rem; }
  [data-testid="stColumn"]:has(> div > [data-testid="stElementContainer"]:only-child [data-testid="stMetric"]) {
    min-width: calc(50% - 1rem) !important; flex: 1 1 calc(50% - 1rem) !important;
  }
}
[class*="st-key-chart-"] { overflow-x: auto; }
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p { color: inherit !important; opacity: 0.85; }
</style>"""
# White on the light blue of the dark theme could not be read.
_DARK_STYLE = f"""<style>
[data-testid^="stBaseButton-primary"] *, [data-testid="stMultiSelect"] span[title],
[data-testid="stMultiSelect"] span[title] ~ :not(input, :has(input))
{{ color: {ON_LIGHT} !important; }}
</style>"""


def main() -> None:
    """Draw it, for the tab and the moment for which the server calls this."""
    st.set_page_config("onnxmem", page_icon=str(_ICON), layout="wide", initial_sidebar_state="auto")
    st.html(_STYLE + (_DARK_STYLE if is_dark() else ""))
    space = workspace()
    with st.sidebar:
        st.title("onnxmem", anchor=False)
        path = sidebar.choose_model(space)
        if path is None:
            choice = None
        else:
            base = space.ask("estimate", str(path))
            dims = sidebar.choose_sizes(path, base.document)
            choice = Choice(path=path, dims=dims, mode=sidebar.choose_mode(), budget=sidebar.choose_budget())
    if choice is None:
        st.title("onnxmem", anchor=False)
        st.container().markdown("The model is being made.")
        return
    show_model(space, choice, space.ask(*choice.words("estimate")))
    measure_page()


def show_model(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Its name, the figures, and the tabs, of which only the open one is drawn.

    The tabs are always the third thing here, whatever there is to say above them: a part of a tab that is drawn by
    itself says where it is by such numbers, and a browser that finds something else there shows an empty page.
    """
    st.title(escape(choice.name), anchor=False)
    with st.container():
        show_headline(space, choice, estimate)
    for tab, module in zip(st.tabs(list(TABS), key="tab", on_change="rerun"), TABS.values(), strict=True):
        if tab.open:
            with tab:
                importlib.import_module(f"onnxmem.app.tabs.{module}").show(space, choice, estimate)
