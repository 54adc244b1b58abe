"""Write a report as the file's name says: .html, .md, .txt or .json."""

from __future__ import annotations

from pathlib import Path

from onnxmem import files
from onnxmem.errors import UsageError
from onnxmem.report.render.to_html import page_template, render_html
from onnxmem.report.render.to_json import render_json
from onnxmem.report.render.to_markdown import render_markdown
from onnxmem.report.render.to_terminal import render_text
from onnxmem.report.report import Report

RENDERERS = {".html": render_html, ".md": render_markdown, ".txt": render_text, ".json": render_json}


def save_report(report: Report, path: Path) -> None:
    """Write a report, whole or not at all."""
    kind = report_kind(path)
    files.write_text(path, RENDERERS[kind](report))


def report_kind(path: Path, *kinds: str) -> str:
    """Which kind of report does this file name ask for? Ask before long work, so that a typo costs nothing."""
    allowed = kinds or tuple(RENDERERS)
    kind = path.suffix.lower()
    if kind not in allowed:
        raise UsageError(f"cannot write a report as '{path.name}'", hint=f"end the name in {', '.join(allowed)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{path}': there is no such folder")
    if kind == ".html":
        page_template()
    return kind
