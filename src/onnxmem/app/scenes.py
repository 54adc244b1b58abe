"""Pictures to try an enhancer on, drawn by arithmetic: nothing has to be shipped or fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.float32]
"""Height × width × 3, from 0 to 1."""
Field = npt.NDArray[Any]


def under_water(side: int) -> Picture:
    """Blue, hazy and dim, with fish, weeds and light from above."""
    across, down, random = _plane(side)
    picture = np.stack([0.55 - 0.25 * down, 0.62 - 0.2 * down, 0.6 - 0.15 * down], axis=-1)
    rays = np.clip(np.sin(9 * across - 5 * down) * (1 - 1.4 * down), 0, 1)
    picture += 0.18 * rays[..., None]
    sand = down > 0.82 + 0.03 * np.sin(11 * across) + 0.015 * np.sin(37 * across)
    ripples = 0.06 * np.sin(90 * down + 8 * np.sin(7 * across))
    picture[sand] = np.stack([0.85 + ripples, 0.72 + ripples, 0.5 + ripples], axis=-1)[sand]
    for stem in (0.1, 0.16, 0.21, 0.83, 0.88, 0.94):
        sway = stem + 0.02 * np.sin(14 * down + 40 * stem)
        _paint(picture, (abs(across - sway) < 0.009) & (down > 0.35 + 0.3 * abs(np.sin(50 * stem))), (0.2, 0.55, 0.2))
    for x, y, size, colour in ((0.36, 0.42, 0.11, (1.0, 0.55, 0.1)), (0.66, 0.3, 0.07, (0.95, 0.8, 0.15)),
                               (0.62, 0.6, 0.09, (0.9, 0.25, 0.3)), (0.3, 0.7, 0.05, (0.8, 0.8, 0.85))):  # fmt: skip
        _fish(picture, (across - x) / size, (down - y) / size, colour)
    # Water swallows red first, haze lies over all of it, and little light makes grain.
    hazy = 0.42 * picture * np.array([0.45, 0.85, 1.0]) + np.array([0.05, 0.2, 0.27])
    return _finished(hazy + random.normal(0, 0.018, picture.shape))


def at_dusk(side: int) -> Picture:
    """A town in orange light, flat and grainy."""
    across, down, random = _plane(side)
    picture = np.stack([1.0 - 0.5 * down, 0.7 - 0.35 * down, 0.45 - 0.1 * down], axis=-1)
    _paint(picture, (across - 0.7) ** 2 + (down - 0.36) ** 2 < 0.008, (1.0, 0.95, 0.75))
    houses = np.random.default_rng(5)
    for row, (top, tone) in enumerate(((0.42, 0.5), (0.52, 0.32))):
        left = -0.02
        while left < 1:
            width, roof = houses.uniform(0.07, 0.14), top + houses.uniform(-0.08, 0.08)
            inside = (across >= left) & (across < left + width) & (down > roof)
            _paint(picture, inside, (tone, tone * 0.9, tone * 1.05))
            pane = inside & ((across - left) % 0.03 > 0.014) & ((down - roof) % 0.05 > 0.028) & (down < 0.85)
            number = np.floor((across - left) / 0.03) + 2 * np.floor((down - roof) / 0.05) + row
            _paint(picture, pane, (tone * 0.6, tone * 0.6, tone * 0.8))
            _paint(picture, pane & (number % 3 == 0), (1.0, 0.85, 0.4))
            left += width
    flat = 0.45 * picture * np.array([1.0, 0.8, 0.62]) + np.array([0.22, 0.13, 0.08])
    return _finished(flat + random.normal(0, 0.02, picture.shape))


SCENES: dict[str, Callable[[int], Picture]] = {"Under water": under_water, "A town at dusk": at_dusk}


def _plane(side: int) -> tuple[Field, Field, np.random.Generator]:
    """How far across and down each point is, from 0 to 1; four wide, three high."""
    down, across = np.mgrid[0 : side * 3 // 4, 0:side].astype(np.float64)
    return across / side, down / (side * 3 // 4), np.random.default_rng(7)


def _paint(picture: Field, where: Field, colour: tuple[float, float, float]) -> None:
    picture[where] = colour


def _fish(picture: Field, x: Field, y: Field, colour: tuple[float, float, float]) -> None:
    body = x**2 + (2.1 * y) ** 2 < 1
    tail = (x > 0.8) & (x < 1.5) & (abs(y) < (x - 0.75) * 0.7)
    _paint(picture, body | tail, colour)
    stripes = body & (abs((x + 2) % 0.55 - 0.27) < 0.1) & (x > -0.5)
    _paint(picture, stripes, (0.97, 0.97, 0.95))
    _paint(picture, (x + 0.65) ** 2 + (y + 0.12) ** 2 < 0.012, (0.05, 0.05, 0.08))


def _finished(picture: Field) -> Picture:
    return np.clip(picture, 0, 1).astype(np.float32)
