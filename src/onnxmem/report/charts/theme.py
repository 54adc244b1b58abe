"""The colours of every picture: few, safe for colour-blind readers, legible on white and on near-black."""

from __future__ import annotations

from typing import Any

FONT = "Helvetica, Arial, sans-serif"

INK = "#1f2933"
MUTED = "#62707d"
GRID = "#e3e7eb"
PAPER = "#ffffff"
PEAK = "#b8430b"

# Fills are the same in light and dark, so what is written on them keeps its colour too. These two are therefore not
# INK and PAPER, which dark mode exchanges.
ON_LIGHT = "#14202b"
ON_DARK = "#fdfdfd"

# Small to large: one hue, so that the eye reads an order and not categories.
SIZES = ("#bcd0e2", "#8fb3d3", "#5a8fbd", "#2b679b")
AT_PEAK = "#eaa458"
TOGETHER = "#c9ced4"
# After Okabe and Ito, without the yellow that vanishes on white and the vermilion that means "peak" here.
KINDS = ("#4a8fc2", "#e6a93c", "#3fa587", "#cc79a7", "#83c3e6", "#a58a6f")
OTHER = "#b4bac1"

_DARK_FILLS = {SIZES[3]}

DARK = {INK: "#e6eaee", MUTED: "#9aa7b3", GRID: "#2c343c", PAPER: "#12171c", PEAK: "#ff9a57"}


def text_on(fill: str) -> str:
    """The colour for text that lies on this fill."""
    return ON_DARK if fill in _DARK_FILLS else ON_LIGHT


def heading(alt: Any, title: str, subtitle: Any) -> Any:
    """The title of a picture, and what it shows in a line or two."""
    return alt.TitleParams(
        title, subtitle=subtitle, anchor="start", fontSize=16, subtitleFontSize=12, subtitlePadding=5, offset=14
    )


def dark_style() -> str:
    """CSS that turns a picture drawn in these colours dark where the reader's system is.

    Vega writes colours as attributes, which any style sheet overrides: one picture serves both, and a viewer without
    style sheets still shows the light one.
    """
    # In a page, Vega gives its drawing a background in a way that only !important overrides.
    page = f".marks{{background-color:{DARK[PAPER]}!important}}"
    return f"@media (prefers-color-scheme: dark){{{page}{dark_rules()}}}"


def dark_rules(within: str = "") -> str:
    """The exchange of colours alone, for pictures inside something."""
    return "".join(
        f'{within}[fill="{light}"]{{fill:{dark}}}{within}[stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in DARK.items()
    )


def styled(chart: Any) -> Any:
    """A chart with this theme's font, axes and legend."""
    return (
        chart.configure(font=FONT, padding=14)
        .configure_view(stroke=None)
        .configure_title(color=INK, subtitleColor=MUTED)
        .configure_axis(
            labelColor=MUTED,
            titleColor=INK,
            titleFontWeight="normal",
            titlePadding=8,
            domainColor=MUTED,
            tickColor=MUTED,
            gridColor=GRID,
        )
        .configure_legend(labelColor=INK, titleColor=INK, titleFontWeight="normal", labelLimit=240)
    )
