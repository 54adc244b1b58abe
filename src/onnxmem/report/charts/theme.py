"""The colours of every picture: few, safe for colour-blind readers, legible on white and on near-black."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

FONT = "Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """What differs between light and dark: the paper, and what is written and ruled on it."""

    ink: str
    muted: str
    grid: str
    paper: str
    peak: str
    """The peak, and limits it has to keep."""


LIGHT = Theme(ink="#1f2933", muted="#5b6874", grid="#e3e7eb", paper="#ffffff", peak="#b8430b")
DARK = Theme(ink="#e6eaee", muted="#9aa7b3", grid="#2c343c", paper="#12171c", peak="#ff9a57")

# Fills are the same in light and dark, so what is written on them keeps its colour too. These two are therefore not
# ink and paper, which dark mode exchanges.
ON_LIGHT = "#14202b"
ON_DARK = "#fdfdfd"

# Small to large: one hue, so that the eye reads an order and not categories.
SIZES = ("#bcd0e2", "#8fb3d3", "#5a8fbd", "#2b679b")
AT_PEAK = "#eaa458"
PIECES = {"stripe": "#8fd0bc", "block": "#a893cc"}
TOGETHER = "#d6e0ea"
OPTIMAL = "#3fa587"
OTHER = "#b4bac1"
FILE, ANONYMOUS = "#a9d3ee", "#4a8fc2"
# Thin lines need more contrast than areas do: 3:1 on white and on near-black. Dashes and markers tell them apart too.
LINES = ("#3b82b8", "#c2690f", "#2f8f73", "#b8608f", "#7d6cc4", "#8f6f4e")
DASHES = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3), (4, 2), (12, 4))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
# What a peak is made of. Neighbours differ in lightness, and each is named where it lies.
PARTS = {
    "libraries": "#c9ced4",
    "weights": "#2b679b",
    "packed copies": "#b5d3ee",
    "arena": "#c98432",
    "outputs": "#8a4b08",
    "heap": "#8fd0bc",
    "stacks": "#7a4d70",
}
# What a process holds, as the system tells it apart.
KINDS = {
    "model files": PARTS["weights"],
    "libraries and other files": PARTS["libraries"],
    "heap": PARTS["heap"],
    "arenas": PARTS["arena"],
    "stacks": PARTS["stacks"],
    "shared memory": PARTS["outputs"],
}
# The same in finer parts, in their order.
FINE_PARTS = {
    "libraries": PARTS["libraries"],
    "interpreter": "#6b7680",
    "inputs": "#d9c9e8",
    "weights": PARTS["weights"],
    "packed copies": PARTS["packed copies"],
    "session": "#46627d",
    "kept by the heap": PARTS["heap"],
    "loading": "#2c7560",
    "activations": "#e8a95c",
    "scratch": "#8f5413",
    "reuse": "#f3d7a8",
    "pattern": "#a94c17",
    "arena slack": "#f0c0a0",
    "outputs": PARTS["outputs"],
    "unknown": "#e9e4c9",
}


def contrast(one: str, other: str) -> float:
    """How far two colours are apart, from 1 to 21, as WCAG counts it: text needs 4.5."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def text_on(fill: str) -> str:
    """The colour for text that lies on this fill."""
    return max(ON_LIGHT, ON_DARK, key=lambda colour: contrast(colour, fill))


def dark_style() -> str:
    """CSS that turns a picture drawn in the light theme dark where the reader's system is.

    Vega writes colours as attributes, which any style sheet overrides: one picture serves both, and a viewer without
    style sheets still shows the light one.
    """
    # In a page, Vega gives its drawing a background in a way that only !important overrides.
    page = f".marks{{background-color:{DARK.paper}!important}}"
    return f"@media (prefers-color-scheme: dark){{{page}{dark_rules()}}}"


def dark_rules(within: str = "") -> str:
    """The exchange of colours alone, for pictures inside something."""
    pairs = [(getattr(LIGHT, field.name), getattr(DARK, field.name)) for field in fields(Theme)]
    return "".join(
        f'{within}[fill="{light}"]{{fill:{dark}}}{within}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in pairs
    )


def recoloured(spec: Any, theme: Theme) -> Any:
    """A picture's specification in another theme: the same exchange, for a picture that is drawn live."""
    exchange = {getattr(LIGHT, field.name): getattr(theme, field.name) for field in fields(Theme)}

    def turn(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: turn(each) for name, each in part.items()}
        if isinstance(part, list):
            return [turn(each) for each in part]
        return exchange.get(part, part) if isinstance(part, str) else part

    return turn(spec)
