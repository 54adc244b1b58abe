"""A report as one HTML page that loads nothing and runs only the script of its map, or as a part for notebooks."""

from __future__ import annotations

import itertools
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from onnxmem.errors import RuntimeUnsupported, missing_extra
from onnxmem.report.build import make_report
from onnxmem.report.charts import theme
from onnxmem.report.charts.picture import NARROW, embeddable, spec_svg, specification
from onnxmem.report.report import Chart, Report

if TYPE_CHECKING:
    from jinja2 import Template

_PAGE = files("onnxmem.report.render") / "page"
# Several fragments share a notebook's page, and their anchors must differ.
_fragments = itertools.count(1)


def render_html(report: Report, *, fragment: bool = False) -> str:
    """One page with everything in it; with `fragment`, without the page around it."""
    page_template()  # an error of its own, before a chart's
    prefix = f"onnxmem-{next(_fragments)}-" if fragment else "section-"
    pictures = [
        [_picture(chart, f"{prefix}{number}-{k}-") for k, chart in enumerate(section.charts)]
        for number, section in enumerate(report.sections, start=1)
    ]
    return _page(report, pictures=pictures, fragment=fragment, prefix=prefix)


def picture_page(spec: dict[str, Any]) -> str:
    """One chart as a page of its own, with the tools of the map if it is one."""
    title = spec.get("title") or {}
    heading = str(title.get("text", "") if isinstance(title, dict) else title) or "onnxmem"
    picture = embeddable(spec_svg(spec), "picture-")
    return _page(Report(heading, ()), picture=picture, alt=spec.get("description", heading), fragment=False)


def result_html(result: Any) -> str | None:
    """A report or a result as notebooks show it; None without the extra, and they show text instead."""
    try:
        return render_html(result if isinstance(result, Report) else make_report([result]), fragment=True)
    except RuntimeUnsupported:
        return None


def _page(report: Report, **more: Any) -> str:
    template, script = page_template(), _part("map.js")
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {theme.dark_rules('.onnxmem svg ')} }}"
    script_hash = f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
    common = {"style": _part("report.css") + dark, "script": script, "script_hash": script_hash}
    return template.render(report=report, **{"picture": None, "version": version("onnxmem"), **common, **more})


def page_template() -> Template:
    """The template; an error that says what to install if there is none. Ask before long work."""
    try:
        import altair  # noqa: F401, PLC0415
        import jinja2  # noqa: PLC0415
        import vl_convert  # noqa: F401, PLC0415
    except ImportError as error:
        raise missing_extra(error.name or "jinja2", "report") from error
    return _template(jinja2)


@cache
def _template(jinja2: Any) -> Template:
    # Whatever a model, a file or a message is called is text: all of it is escaped. Only drawings and our own style and
    # script are markup.
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template: Template = environment.from_string(_part("report.html.j2"))
    return template


def _part(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def _picture(chart: Chart, prefix: str) -> list[str]:
    """The drawing; and for those that allow it, a second one for narrow screens, of which the page shows one."""
    drawn = [embeddable(spec_svg(specification(chart)), prefix)]
    if width := NARROW.get(chart.kind):
        drawn.append(embeddable(spec_svg(specification(chart, width)), f"{prefix}narrow-"))
    return drawn
