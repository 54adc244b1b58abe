"""What did it take over time, and where did it grow? A file of results → series, with what had changed at each step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxmem.documents import Record, stored
from onnxmem.errors import UsageError
from onnxmem.history.entry import Entry, Key
from onnxmem.history.figures import Figure, find_figure
from onnxmem.history.store import read_entries
from onnxmem.history.tolerance import USUAL, Tolerance
from onnxmem.result import Result
from onnxmem.unknown import Bytes, Unknown, combine, known, subtract


@dataclass(frozen=True, kw_only=True)
class Point(Record):
    """One result of a series."""

    entry: Entry
    size: Bytes = stored("bytes")
    """The figure that the history is about."""
    change: Bytes = stored("change_bytes")
    """Since the result before."""
    grew: bool
    """Whether that is more than the tolerance."""
    since: tuple[str, ...]
    """What else was changed since then."""


@dataclass(frozen=True, kw_only=True)
class Series(Record):
    """Results that compare, the oldest first."""

    key: Key
    points: tuple[Point, ...]

    @property
    def change(self) -> Bytes:
        """From the first to the last that are known."""
        sizes = known(point.size for point in self.points)
        return sizes[-1] - sizes[0] if sizes else Unknown("no result is known")


@dataclass(frozen=True, kw_only=True)
class History(Result):
    """What models took over time."""

    SCHEMA = "onnxmem.history/1"

    file: Path
    figure: Figure
    tolerance: Tolerance
    series: tuple[Series, ...]

    @property
    def grown(self) -> tuple[tuple[Series, Point], ...]:
        """Where something grew by more than the tolerance, the newest first."""
        found = [(series, point) for series in self.series for point in series.points if point.grew]
        return tuple(sorted(found, key=lambda each: each[1].entry.date, reverse=True))

    def __repr__(self) -> str:
        results = sum(len(series.points) for series in self.series)
        return f"<History of {self.figure.label}: {results} results in {len(self.series)} series>"


def read_history(
    path: str | os.PathLike[str], model: str | None = None, *, figure: str = "peak", tolerance: str = USUAL
) -> History:
    """What did it take over time? `read_history("memory.sqlite", "model.onnx")` reads what `check` has recorded.

    A result that takes more than the `tolerance` above the one before it counts as grown. The newest series come first.
    """
    file, chosen, allowed = Path(path), find_figure(figure), Tolerance.parse(tolerance)
    name = None if model is None else Path(model).name
    entries = read_entries(file, name)
    if not entries and name is not None:
        models = dict.fromkeys(entry.key.model for entry in read_entries(file))
        raise UsageError(
            f"'{file}' has no results of '{name}'", hint=f"it has: {', '.join(models) or 'no results at all'}"
        )
    return History(file=file, figure=chosen, tolerance=allowed, series=_series(entries, chosen, allowed))


def _series(entries: Sequence[Entry], figure: Figure, tolerance: Tolerance) -> tuple[Series, ...]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.key.identity, []).append(entry)
    newest = sorted(groups.values(), key=lambda group: group[-1].date, reverse=True)
    return tuple(Series(key=group[-1].key, points=_points(group, figure, tolerance)) for group in newest)


def _points(entries: Sequence[Entry], figure: Figure, tolerance: Tolerance) -> tuple[Point, ...]:
    points: list[Point] = []
    for number, entry in enumerate(entries):
        size = figure.of(entry.figures)
        before = entries[number - 1] if number else None
        last = figure.of(before.figures) if before else Unknown("it is the first")
        grew = combine(lambda now, then: now > tolerance.above(then), size, last)
        point = Point(
            entry=entry,
            size=size,
            change=subtract(size, last),
            grew=grew is True,
            since=before.changes(entry) if before else (),
        )
        points.append(point)
    return tuple(points)
