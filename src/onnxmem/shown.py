"""What notebooks show as a report. On its own: a plan is shown, too, and a session makes plans but no results."""

from __future__ import annotations

import importlib
from typing import Any


class Shown:
    """What notebooks show as a report."""

    def _repr_html_(self) -> str | None:
        # By name: reports know results and not the other way round, and most results are never shown this way.
        page: Any = importlib.import_module("onnxmem.report.render.to_html")
        text: str | None = page.result_html(self)
        return text
