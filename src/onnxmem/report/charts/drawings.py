"""Every picture of a report by its name: from the data of a `Chart` to Altair's chart of it."""

from __future__ import annotations

import importlib
from typing import Any

from onnxmem.report.charts.canvas import Picture
from onnxmem.report.report import Chart

DRAWINGS = {
    "history": "history:history_chart",
    "memory map": "memory_map:placement_map",
    "peak parts": "parts:peak_parts",
    "side by side": "bars:side_by_side",
    "sizes": "scaling:scaling_chart",
    "strategies": "bars:strategies",
    "timeline": "timeline:timeline_chart",
    "waterfall": "waterfall:waterfall_chart",
    "workers": "workers:share_chart",
}
"""Where in this folder each is drawn. By name, so that a report without pictures loads none of it."""


NARROW = {"history": 250, "peak parts": 330, "side by side": 230, "sizes": 250, "strategies": 210, "timeline": 240,
          "waterfall": 190, "workers": 170}  # fmt: skip
"""How wide those are between their axes that can be drawn for a phone: scaled down, nobody could read them."""


def draw(chart: Chart, **more: Any) -> Picture:
    """The chart, live: for a dashboard or a notebook, or `save_chart`."""
    place, function = DRAWINGS[chart.kind].split(":")
    draws = getattr(importlib.import_module(f"onnxmem.report.charts.{place}"), function)
    drawn: Picture = draws(chart.document, **more)
    return drawn


def specification(chart: Chart, width: int | None = None) -> dict[str, Any]:
    """The same as Vega-Lite, without the title: a page has its own, which wraps, is searched and read aloud.

    `width`: one of NARROW's instead of its own.
    """
    more = {} if width is None else {"width": width}
    # Without validation: the parts were checked when they were made, and rows by the thousand take seconds.
    spec: dict[str, Any] = draw(chart, **more).to_dict(validate=False)
    spec.pop("title", None)
    return spec
