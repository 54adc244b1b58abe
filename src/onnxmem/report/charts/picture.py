"""Charts as files: SVG and PNG to show, HTML to explore, each of them one file that needs nothing else."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from onnxmem import files
from onnxmem.errors import UsageError, missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.canvas import Picture

# As Vega writes what has a description. It escapes names, and what is escaped for an attribute is for an element, too.
_DESCRIBED = re.compile(r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="rect mark"([^>]*?)/>')
SUFFIXES = (".svg", ".png", ".html")


def save_chart(chart: Picture, path: Path) -> None:
    """Write a chart as the file's suffix says: .svg, .png (twice the size, for sharp screens) or .html (tooltips)."""
    kind = picture_kind(path)
    convert, spec, version = _converter(), _spec(chart), _version()
    if kind == ".html":
        content = _html(convert, spec, version).encode()
    elif kind == ".png":
        content = convert.vegalite_to_png(spec, vl_version=version, scale=2)
    else:
        content = chart_svg(chart).encode()
    files.write_bytes(path, content)


def picture_kind(path: Path) -> str:
    """Which kind of picture does this file name ask for? Ask before long work, so that a typo costs nothing."""
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise UsageError(f"cannot write a picture as '{path.name}'", hint=f"end the name in {', '.join(SUFFIXES)}")
    return kind


def chart_svg(chart: Picture) -> str:
    """A chart as SVG that follows the reader's choice of light or dark."""
    svg = spec_svg(_spec(chart))
    head, opening, rest = svg.partition(">")
    return f"{head}{opening}<style>{theme.dark_style()}</style>{rest}"


def spec_svg(spec: dict[str, Any]) -> str:
    """A chart's specification as plain SVG; what describes a rectangle becomes its title, which browsers show."""
    svg: str = _converter().vegalite_to_svg(spec, vl_version=_version())
    return _DESCRIBED.sub(r'<path class="buffer"\2><title>\1</title></path>', svg)


def _converter() -> Any:
    try:
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("vl-convert-python", "report") from error
    return vl_convert


def _version() -> str:
    """The Vega-Lite that the installed Altair writes for."""
    import altair  # noqa: PLC0415

    return ".".join(altair.SCHEMA_VERSION.split(".")[:2])


def _spec(chart: Picture) -> dict[str, Any]:
    # Without validation: the parts were checked when they were made, and rows by the thousand take seconds.
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


def _html(convert: Any, spec: dict[str, Any], version: str) -> str:
    # The converter has a page of its own, but puts the chart into its script as it is: a tensor called "</script>"
    # would end the script and begin markup. Without "<" no text of the model can leave the string it is in.
    chart = json.dumps(spec, ensure_ascii=True).replace("<", "\\u003c")
    options = json.dumps({"renderer": "svg", "actions": False, "mode": "vega-lite"})
    title = escape(_title(spec))
    script = convert.javascript_bundle(vl_version=version)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ margin: 0; background: {theme.LIGHT.paper}; font-family: {theme.FONT}; }}
#chart {{ overflow-x: auto; }}
/* What is written or ruled over a rectangle must not hide the rectangle's tooltip. */
.mark-text, .mark-rule {{ pointer-events: none; }}
@media (prefers-color-scheme: dark) {{ body {{ background: {theme.DARK.paper}; }} }}
{theme.dark_style()}
</style>
<script>{script}</script>
</head>
<body>
<div id="chart"></div>
<script>vegaEmbed("#chart", {chart}, {options});</script>
</body>
</html>
"""


def _title(spec: dict[str, Any]) -> str:
    title = spec.get("title", "")
    return str(title.get("text", "") if isinstance(title, dict) else title) or "onnxmem"
