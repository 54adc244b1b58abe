"""From a plan to what can be seen of it: the frame, rectangles big enough to draw, labels that fit, the live bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmem.placement.plan import Plan
from onnxmem.report.names import CHARACTER, DIGIT, LINE, shorten_path

FloatArray = npt.NDArray[np.float64]

CELL = 3.0
# Thinner than this nobody sees a rectangle, and wonders what its memory is.
_THINNEST = (1.0, 2.0)

# Exporters end nearly every tensor's name like this.
_UNINFORMATIVE = re.compile(r"[_/]output_0$")


@dataclass(frozen=True)
class Frame:
    """The part of time and memory that is drawn: steps `first` to `last`, bytes 0 to `top`, on a canvas of pixels."""

    first: int
    last: int
    top: float
    width: float
    height: float

    @classmethod
    def around(cls, plan: Plan, width: float, height: float, *, top: float = 0) -> Frame:
        """A frame that holds every buffer, and reaches up to `top` at least, with a little headroom."""
        problem = plan.problem
        first, last = (int(problem.lowers.min()), int(problem.uppers.max())) if len(problem) else (0, 1)
        return cls(first, last, max(plan.peak, top, 1) * 1.02, width, height)

    def window(self, first: int, last: int, height: float) -> Frame:
        """The same memory over fewer steps."""
        return Frame(max(first, self.first), min(last, self.last), self.top, self.width, height)

    def row(self, left: float, right: float, bottom: float, top: float) -> dict[str, Any]:
        """A rectangle of pixels in steps and bytes."""
        across = {"x": self.first + left / self.step, "x2": self.first + right / self.step}
        return across | {"y": bottom / self.byte, "y2": top / self.byte}

    @property
    def step(self) -> float:
        """Pixels per step."""
        return self.width / (self.last - self.first)

    @property
    def byte(self) -> float:
        """Pixels per byte."""
        return self.height / self.top


@dataclass(frozen=True)
class Boxes:
    """Each buffer's rectangle in pixels from the lower left corner, in the problem's order."""

    left: FloatArray
    right: FloatArray
    bottom: FloatArray
    top: FloatArray

    @classmethod
    def of(cls, plan: Plan, frame: Frame) -> Boxes:
        """Where a plan's buffers lie in a frame; what lies outside has no width."""
        problem, offsets = plan.problem, plan.offsets.astype(np.float64)
        times = ((at - frame.first).astype(np.float64) * frame.step for at in (problem.lowers, problem.uppers))
        left, right = (np.clip(edge, 0, frame.width) for edge in times)
        # What is written over another has its place from then on.
        before, after = plan.shared[:, 0], plan.shared[:, 1]
        right[before] = left[after]
        return cls(left, right, offsets * frame.byte, (offsets + problem.footprints) * frame.byte)

    def by_area(self) -> npt.NDArray[np.int64]:
        """Indices of the boxes that cover anything, largest first."""
        area = (self.right - self.left) * (self.top - self.bottom)
        order = np.argsort(-area, kind="stable")
        return order[area[order] > 0]


def thickened(boxes: Boxes, frame: Frame) -> Boxes:
    """The same boxes, those that cover anything at least as wide and high as can be seen, within the frame."""

    def widened(low: FloatArray, high: FloatArray, least: float, limit: float) -> tuple[FloatArray, FloatArray]:
        thin = (high - low < least) & covering
        begin = np.where(thin, np.clip((low + high - least) / 2, 0, limit - least), low)
        return begin, np.where(thin, begin + least, high)

    covering = (boxes.right > boxes.left) & (boxes.top > boxes.bottom)
    wide, high = _THINNEST
    return Boxes(
        *widened(boxes.left, boxes.right, wide, frame.width), *widened(boxes.bottom, boxes.top, high, frame.height)
    )


def clumps(boxes: Boxes, which: npt.NDArray[np.int64], frame: Frame) -> list[tuple[float, float, float, float]]:
    """The area that many small boxes touch, on a coarse grid: (left, right, bottom, top) in pixels.

    A thousand slivers drawn singly are a large file and a grey haze; their outline is neither.
    """
    columns, rows = int(frame.width // CELL), int(frame.height // CELL)
    left, bottom = (
        np.clip((edge[which] // CELL).astype(int), 0, n - 1)
        for edge, n in ((boxes.left, columns), (boxes.bottom, rows))
    )
    right = np.clip(np.ceil(boxes.right[which] / CELL).astype(int), left + 1, columns)
    top = np.clip(np.ceil(boxes.top[which] / CELL).astype(int), bottom + 1, rows)
    corners = np.zeros((columns + 1, rows + 1), dtype=np.int64)
    for column, row, sign in ((left, bottom, 1), (right, top, 1), (left, top, -1), (right, bottom, -1)):
        np.add.at(corners, (column, row), sign)
    touched = corners.cumsum(axis=0).cumsum(axis=1) > 0

    merged: list[tuple[float, float, float, float]] = []
    begun: dict[tuple[int, int], int] = {}
    for column in range(columns + 1):
        edges = np.flatnonzero(np.diff(touched[column].astype(np.int8), prepend=0)).tolist()
        runs = set(zip(edges[::2], edges[1::2], strict=True))
        for run in [run for run in begun if run not in runs]:
            merged.append((begun.pop(run) * CELL, column * CELL, run[0] * CELL, run[1] * CELL))
        for run in runs:
            begun.setdefault(run, column)
    return merged


@dataclass(frozen=True)
class Label:
    """What is written into a rectangle; `upright` text runs upwards. Without room for a name, it is the size alone."""

    lines: tuple[str, ...]
    upright: bool
    named: bool = True


def label(name: str, size: str, width: float, height: float) -> Label | None:
    """Name and size as far as they fit a rectangle: both, on one line or two, or the size alone, or nothing."""
    name = _UNINFORMATIVE.sub("", name) or name
    ways = ((width, height, False), (height, width, True))
    fitting = [way for way in ways if way[1] >= LINE]
    for along, across, upright in fitting:
        room = int((along - 6) / CHARACTER)
        beside = room - len(size) - 3
        two = across >= 2 * LINE + 4 and room >= max(len(size), min(len(name), 6))
        if beside >= len(name) or (beside >= 9 and not two):
            return Label((f"{shorten_path(name, beside)} · {size}",), upright)
        if two:
            return Label((shorten_path(name, room), size), upright)
    enough = len(size) * DIGIT + 6
    return next((Label((size,), upright, False) for along, _, upright in fitting if along >= enough), None)


@dataclass(frozen=True)
class Profile:
    """Over time, from each step `at` on: the sum of live footprints, and the top of the highest live buffer."""

    at: FloatArray
    live: FloatArray
    top: FloatArray

    @classmethod
    def of(cls, plan: Plan, columns: int = 1600) -> Profile:
        """A plan's profile; where events are denser than `columns`, each column keeps its highest values."""
        problem = plan.problem
        steps, places = np.unique(np.concatenate([problem.lowers, problem.uppers]), return_inverse=True)
        before, after = plan.shared[:, 0], plan.shared[:, 1]
        deltas = np.concatenate([problem.footprints, -problem.footprints]).astype(np.float64)
        changes = np.bincount(places, weights=deltas)
        # While both are there, what is written over the other takes nothing.
        np.subtract.at(changes, places[after], problem.footprints[after])
        np.add.at(changes, places[before + len(problem)], problem.footprints[after])
        live = np.maximum(np.cumsum(changes), 0.0)
        ends = plan.offsets.astype(np.float64) + problem.footprints
        top = np.zeros(len(steps))
        for index in np.argsort(ends, kind="stable").tolist():  # what is painted last is highest
            top[places[index] : places[index + len(problem)]] = ends[index]
        if len(steps) > columns:
            column = ((steps - steps[0]) / (steps[-1] - steps[0]) * (columns - 1)).astype(np.int64)
            starts = np.flatnonzero(np.diff(column, prepend=-1))
            # What is live when a column begins is in it, too.
            before = np.maximum(starts - 1, 0)
            live, top = (np.maximum(np.maximum.reduceat(level, starts), level[before]) for level in (live, top))
            steps = steps[starts]
        return cls(steps.astype(np.float64), live, top)


def spread(positions: list[float], gap: float, top: float) -> list[float]:
    """Positions moved apart until neighbours keep `gap`, none above `top` or below half a gap, order kept."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed: list[float] = []
    for i in order:
        placed.append(max(positions[i], gap / 2 if not placed else placed[-1] + gap))
    limit = top
    for k in reversed(range(len(placed))):
        placed[k] = min(placed[k], limit)
        limit = placed[k] - gap
    result = [0.0] * len(positions)
    for i, place in zip(order, placed, strict=True):
        result[i] = place
    return result
