"""Where on the page things are: what is drawn by itself must find its place again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxmem.app.choice import Choice
from onnxmem.app.workspace import Workspace
from tests.unit.report import samples

testing = pytest.importorskip("streamlit.testing.v1", reason="the package streamlit is not installed")


def draw(*given: object) -> None:
    """The script of the page; it is run as text, and knows no names of this file."""
    from onnxmem.app.dashboard import show_model  # noqa: PLC0415

    show_model(*given)  # type: ignore[arg-type]


def place_of_tabs(space: Workspace, choice: Choice, document: Any) -> Any:
    job = SimpleNamespace(words=(), document=document, error="", hint="", cancelled=False, ended=document is not None,
                          stages=[], seconds=1.0, cancel=None)  # fmt: skip
    page = testing.AppTest.from_function(draw, args=(space, choice, job), default_timeout=600).run()
    assert not page.exception and bool(page.code) == (document is not None or choice.budget is not None)
    return next(
        place for place, each in page.main.children.items() if page.tabs[0] in getattr(each, "children", {}).values()
    )


def test_the_tabs_are_in_the_same_place_whatever_stands_above_them(tmp_path: Path) -> None:
    space, path = Workspace(), tmp_path / "model.onnx"
    try:
        places = {
            place_of_tabs(space, choice, document)
            for choice in (Choice(path=path), Choice(path=path, budget=2**30))
            for document in (None, samples.estimate())
        }
    finally:
        space._stack.close()
    assert len(places) == 1
