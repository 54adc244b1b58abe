"""Every picture of a report by its name: from the data of a `Chart` to Altair's chart of it, and that as SVG or PNG."""

from __future__ import annotations

import importlib
import re
from typing import Any
from xml.etree import ElementTree

from onnxmem.errors import missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.canvas import Picture
from onnxmem.report.damaged import verb_of, whole
from onnxmem.report.report import Chart

DRAWINGS = {
    "fit": "curves:fit_chart",
    "history": "history:history_chart",
    "live": "timeline:live_chart",
    "memory map": "memory_map:placement_map",
    "peak parts": "parts:peak_parts",
    "side by side": "bars:side_by_side",
    "size map": "size_map:size_map",
    "sizes": "curves:scaling_chart",
    "strategies": "bars:strategies",
    "timeline": "timeline:timeline_chart",
    "trades": "trades:trades_chart",
    "waterfall": "bars:waterfall_chart",
    "workers": "curves:share_chart",
}
"""Where in this folder each is drawn. By name, so that a report without pictures loads none of it."""

NARROW = {"fit": 170, "history": 250, "live": 240, "peak parts": 330, "side by side": 230,
          "size map": 150, "sizes": 250, "strategies": 210, "timeline": 240, "trades": 240, "waterfall": 190,
          "workers": 170}  # fmt: skip
"""How wide those are between their axes that can be drawn for a phone: scaled down, nobody could read them."""

# As Vega writes what has a description. It escapes names, and what is escaped for an attribute is for an element, too.
_DESCRIBED = r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="{}"([^>]*?)/>'
_SPACE = "{http://www.w3.org/2000/svg}"
_TAGS = {"svg", "g", "path", "text", "title", "tspan", "rect", "line", "circle", "defs", "clipPath"}
_ID = re.compile(r'\b(id="|url\(#)')


class NotADrawing(ValueError):
    """Something in the SVG is not part of a drawing."""


def draw(chart: Chart, **more: Any) -> Picture:
    """The chart, live: for a dashboard or a notebook, or `save_chart`."""
    try:
        from altair.utils.schemapi import debug_mode  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    place, function = DRAWINGS[chart.kind].split(":")
    draws = getattr(importlib.import_module(f"onnxmem.report.charts.{place}"), function)
    # Altair would check every part against its schema, for a quarter of the time; what is drawn here, tests check.
    with debug_mode(arg=False), whole(verb_of(chart.document)):
        drawn: Picture = draws(chart.document, **more)
    return drawn


def specification(chart: Chart, width: int | None = None) -> dict[str, Any]:
    """The same as Vega-Lite, without the title: a page has its own, which wraps, is searched and read aloud.

    `width`: one of NARROW's instead of its own.
    """
    spec = spec_of(draw(chart, **({} if width is None else {"width": width})))
    spec.pop("title", None)
    return spec


def spec_of(chart: Picture) -> dict[str, Any]:
    """A chart as Vega-Lite."""
    # Without validation, as above: rows by the thousand take seconds.
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


def chart_png(chart: Picture) -> bytes:
    """A chart in twice its size, for sharp screens."""
    content: bytes = _convert("png", spec_of(chart), scale=2)
    return content


def chart_svg(chart: Picture) -> str:
    """A chart as SVG that follows the reader's choice of light or dark."""
    head, opening, rest = spec_svg(spec_of(chart)).partition(">")
    return f"{head}{opening}<style>{theme.dark_style()}</style>{rest}"


def spec_svg(spec: dict[str, Any]) -> str:
    """A chart's specification as plain SVG; what describes a rectangle or point becomes its title: browsers show it."""
    svg: str = _convert("svg", spec)
    for mark, kind in (("rect mark", "buffer"), ("point", "point")):
        svg = re.sub(_DESCRIBED.format(mark), rf'<path class="{kind}"\2><title>\1</title></path>', svg)
    return svg


def _convert(form: str, spec: dict[str, Any], **more: Any) -> Any:
    try:
        import altair  # noqa: PLC0415
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("vl-convert-python", "report") from error
    # For the Vega-Lite that the installed Altair writes.
    version = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    return getattr(vl_convert, f"vegalite_to_{form}")(spec, vl_version=version, **more)


def embeddable(svg: str, prefix: str) -> str:
    """The drawing, with its identifiers under a prefix: several of them in one page must not share any.

    Only drawings may be put into a page: no scripts, no links, nothing from elsewhere. The converter escapes names;
    this is the second lock, in case it one day does not.
    """
    for element in ElementTree.fromstring(svg).iter():
        tag = element.tag.removeprefix(_SPACE)
        if tag not in _TAGS:
            raise NotADrawing(f"<{tag}> is not part of a drawing")
        for name in element.attrib:
            if name.lower().startswith("on") or name.endswith("href"):
                raise NotADrawing(f"<{tag} {name}> is not part of a drawing")
    # The page says what is to be seen; a screen reader should not spell out the axes after that.
    return _ID.sub(rf"\1{prefix}", svg).replace("<svg", '<svg aria-hidden="true"', 1)
