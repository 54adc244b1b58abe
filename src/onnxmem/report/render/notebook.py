"""Results as notebooks show them."""

from __future__ import annotations

from typing import Any

from onnxmem.errors import RuntimeUnsupported
from onnxmem.report.build import make_report
from onnxmem.report.render.to_html import render_html
from onnxmem.report.report import Report


def fragment(result: Any) -> str | None:
    """A report or a result as a part of a page; None without the extra, and the notebook shows text instead."""
    try:
        return render_html(result if isinstance(result, Report) else make_report([result]), fragment=True)
    except RuntimeUnsupported:
        return None
