"""What a notebook shows of a result."""

from __future__ import annotations

import importlib
from typing import Any


class Shown:
    """A result that notebooks show as a report."""

    def _repr_html_(self) -> str | None:
        # By name: reports know results and not the other way round, and most results are never shown this way.
        notebook: Any = importlib.import_module("onnxmem.report.notebook")
        text: str | None = notebook.fragment(self)
        return text
