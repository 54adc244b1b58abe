"""What a node needs to compute some rows of its output: which rows of its inputs, and how wide a rim around them.

"Rows" are positions along one axis. A rule is a function of a node, its graph and the axis of its output; it answers
with a `Local`, or None where a part of the output is not proven to be the same, bit for bit, as when all of it is
computed. The rules are in `windows.py`, `elementwise.py` and `layout.py`; `rules.py` names them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from onnxmem.rewriting.static import StaticGraph, StaticNode


class Rows(NamedTuple):
    """Positions `low` up to, not including, `high`."""

    low: int
    high: int

    @property
    def size(self) -> int:
        """How many they are."""
        return self.high - self.low


class Window(NamedTuple):
    """The rows of an input that output rows [a, b) are made of: [a·stride - pad, (b-1)·stride - pad + span)."""

    axis: int
    stride: int = 1
    span: int = 1
    pad: int = 0

    def over(self, rows: Rows) -> Rows:
        """What it reads for these rows; beyond the ends of the input where that is padded."""
        return Rows(rows.low * self.stride - self.pad, (rows.high - 1) * self.stride - self.pad + self.span)


class Local(NamedTuple):
    """How a node can be computed in parts."""

    axis: int
    """Of all its outputs."""
    windows: tuple[Window | None, ...]
    """For each input: what it reads of it; None for what it reads whole, such as a weight."""
    factor: int = 1
    """Its output rows come in groups of this size, of which the windows speak …"""
    margin: int = 0
    """… and these many more groups are computed at each end, because the last ones come out different."""
    least: int = 1
    """With fewer rows than these, or with a number that is not a multiple, kernels would compute in another order."""
    multiple: int = 1
    padded: bool = False
    """Are its pads attributes, which say what lies beyond the ends of input 0?"""

    def enough(self, wanted: Rows, length: int) -> Rows:
        """These rows, and as many beside them as the kernel needs to compute as always, of `length` that there are."""
        size = -(-max(wanted.size, self.least) // self.multiple) * self.multiple
        if size == wanted.size:
            return wanted
        if size >= length:
            return Rows(0, length)
        low = max(0, min(wanted.low, length - size))
        return Rows(low, low + size)

    def groups(self, wanted: Rows, length: int) -> Rows:
        """The groups of rows that hold these, with the margin."""
        if self.factor == 1:
            return wanted
        low, high = wanted.low // self.factor - self.margin, -(-wanted.high // self.factor) + self.margin
        return Rows(max(0, low), min(length // self.factor, high))

    def made(self, wanted: Rows, length: int) -> Rows:
        """The rows it makes where these are wanted: whole groups."""
        groups = self.groups(wanted, length)
        return Rows(groups.low * self.factor, groups.high * self.factor)

    def right(self, wanted: Rows) -> Rows:
        """Those of them that come out as they should: all but the margin."""
        return Rows(wanted.low // self.factor * self.factor, -(-wanted.high // self.factor) * self.factor)


Rule = Callable[[StaticNode, StaticGraph, int], Local | None]


def rank(graph: StaticGraph, name: str) -> int:
    """How many dimensions a tensor has; -1 if that is not known."""
    shape = graph.shape(name)
    return -1 if shape is None else len(shape)


def rest(node: StaticNode, *windows: Window | None) -> tuple[Window | None, ...]:
    """These windows for the first inputs; the others are read whole."""
    return (*windows, *[None] * (len(node.inputs) - len(windows)))
