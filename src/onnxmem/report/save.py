"""Write a report as the file's name says: .html, .md, .txt or .json."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from onnxmem import files
from onnxmem.errors import UsageError
from onnxmem.report.render.to_html import render_html
from onnxmem.report.render.to_json import render_json
from onnxmem.report.render.to_markdown import render_markdown
from onnxmem.report.render.to_terminal import render_text
from onnxmem.report.report import Report

RENDERERS = {".html": render_html, ".md": render_markdown, ".txt": render_text, ".json": render_json}


def save_report(report: Report, path: str | PathLike[str]) -> None:
    """Write a report, whole or not at all."""
    target = Path(path)
    if target.suffix.lower() not in RENDERERS:
        raise UsageError(f"cannot write a report as '{target.name}'", hint=f"end the name in {', '.join(RENDERERS)}")
    files.write_text(target, RENDERERS[target.suffix.lower()](report))
