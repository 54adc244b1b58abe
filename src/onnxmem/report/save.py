"""Write a report or a picture as the file's name says: .html, .md, .txt or .json; .svg, .png or .html."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TypeVar

from onnxmem import files
from onnxmem.errors import UsageError
from onnxmem.report.charts.canvas import Picture
from onnxmem.report.charts.picture import chart_png, chart_svg, spec_of
from onnxmem.report.render.to_html import picture_page, render_html
from onnxmem.report.render.to_json import render_json
from onnxmem.report.render.to_markdown import render_markdown
from onnxmem.report.render.to_terminal import render_text
from onnxmem.report.report import Report

RENDERERS = {".html": render_html, ".md": render_markdown, ".txt": render_text, ".json": render_json}
PICTURES: Mapping[str, Callable[[Picture], str | bytes]] = {
    ".svg": chart_svg,
    ".png": chart_png,
    ".html": lambda chart: picture_page(spec_of(chart)),
}

_Content = TypeVar("_Content")


def save_report(report: Report, path: str | PathLike[str]) -> None:
    """Write a report, whole or not at all."""
    _save(report, Path(path), RENDERERS, "report")


def save_chart(chart: Picture, path: str | PathLike[str]) -> None:
    """Write a chart as a file that needs nothing else, whole or not at all."""
    _save(chart, Path(path), PICTURES, "picture")


def _save(content: _Content, path: Path, forms: Mapping[str, Callable[[_Content], str | bytes]], what: str) -> None:
    suffix = path.suffix.lower()
    if suffix not in forms:
        raise UsageError(f"cannot write a {what} as '{path.name}'", hint=f"end the name in {', '.join(forms)}")
    written = forms[suffix](content)
    files.write_bytes(path, written.encode() if isinstance(written, str) else written)
