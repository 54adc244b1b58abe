from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

_Column = npt.NDArray[np.int64]

MOST_FOR_SEARCH: int
MOST_IN_TABLES: int
MEMORY: int

def place_in_order(
    lowers: _Column,
    uppers: _Column,
    sizes: _Column,
    order: _Column,
    best_fit: bool,
    seconds: float,
) -> tuple[_Column | None, bool]:
    """Offsets (None if time ran out or Ctrl-C was pressed), and whether Ctrl-C was pressed."""

def place_at_once(lowers: _Column, uppers: _Column, sizes: _Column) -> tuple[_Column, int, int]:
    """The best of a few greedy plans: offsets, their peak, and the most that is alive at once."""

def search(
    lowers: _Column,
    uppers: _Column,
    sizes: _Column,
    capacity: int,
    seconds: float,
    seed: int,
    lanes: int,
    memory: int = ...,
    work: int = ...,
    shrink: _Column | None = None,
) -> tuple[Literal["fits", "impossible", "unknown"], _Column | None, bool]:
    """Does it fit? The verdict, offsets if it does, and whether Ctrl-C was pressed.

    `shrink` has rows (buffer, step, size), by buffer and step: from that step on, the buffer takes only that much.
    """

def largest_part(lowers: _Column, uppers: _Column, sizes: _Column) -> int:
    """How many buffers the largest independent part has."""

class Reduced(TypedDict):
    unit: int
    parts: list[list[tuple[int, int, int, int]]]

def reduce(lowers: _Column, uppers: _Column, sizes: _Column) -> Reduced:
    """The problem in units and sections: per part, each buffer's row, first and last section (half-open), size."""
