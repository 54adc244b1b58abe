"""A network that enhances images and says how sure it is: an encoder–decoder with two heads, about 15 M parameters.

The encoder halves the image four times and keeps what it saw at each scale; the decoder goes back up and joins it.
One head adds a correction to the image, the other estimates, for each pixel, how far that correction may be off.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (44, 88, 176, 352, 704)


class Block(nn.Module):
    """Two convolutions around a residual: detail passes, and what is learned is added to it."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, padding=1)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        self.match = nn.Conv2d(inside, outside, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Same size, other channels."""
        detail = self.second(functional.gelu(self.first(x)))
        return functional.gelu(detail + self.match(x))


class Up(nn.Module):
    """Twice the size, joined with what the encoder saw there."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(inside, outside, 1)
        self.block = Block(2 * outside, outside)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """`seen` is twice as large as `x`."""
        larger = functional.interpolate(self.narrow(x), scale_factor=2.0, mode="nearest")
        return self.block(torch.cat([larger, seen], dim=1))


class Enhancer(nn.Module):
    """An image in [0, 1] whose sides are multiples of 16; out come the better image and its uncertainty."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(pairwise(WIDTHS))
        self.stem = Block(3, WIDTHS[0])
        self.down = nn.ModuleList(Block(narrow, wide) for narrow, wide in pairs)
        self.up = nn.ModuleList(Up(wide, narrow) for narrow, wide in reversed(pairs))
        self.bottom = nn.Sequential(nn.Conv2d(WIDTHS[-1], 288, 1), nn.GELU(), nn.Conv2d(288, WIDTHS[-1], 1))
        self.correction = nn.Conv2d(WIDTHS[0], 3, 3, padding=1)
        self.uncertainty = nn.Sequential(
            nn.Conv2d(WIDTHS[0], 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 1, 1), nn.Softplus()
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The enhanced image, and one standard deviation for each pixel."""
        x = self.stem(image)
        seen = []
        for block in self.down:
            seen.append(x)
            x = block(functional.avg_pool2d(x, 2))
        x = x + self.bottom(x)
        for up in self.up:
            x = up(x, seen.pop())
        return torch.clamp(image + self.correction(x), 0.0, 1.0), self.uncertainty(x)


def make() -> Enhancer:
    """The network, for `onnxmem compare examples/enhance/enhancer.py:make`."""
    return Enhancer()
