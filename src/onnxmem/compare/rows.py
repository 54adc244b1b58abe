"""Who wins what, and by how much? One row for each figure; nobody wins within the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.compare.figure import Figure, Known, plain, spread
from onnxmem.compare.parity import Parity
from onnxmem.compare.result import AtSize, Result
from onnxmem.compare.sizes import Size
from onnxmem.unknown import Unknown

BYTES, SECONDS, TIMES = "bytes", "seconds", "times"
# Below this no difference is worth a name, however well the samples of one afternoon are told apart: threads take
# memory at other moments the next time, and a few processes do not show how far that goes.
MARGIN = 0.10
# The size of a file is not measured: it is known.
_EXACT = "file size"
# The kernel counts pages in batches, and a millisecond is a turn of the scheduler.
LEAST = {BYTES: 2**20, SECONDS: 0.001, TIMES: 0.0}
# Three samples of each of two equals do not overlap one time in ten, and there are twenty rows; with five it is one
# time in a hundred. So few do not show how far they can spread.
_FEW = 5


@dataclass(frozen=True)
class Row:
    """One metric for all candidates. Less is better, always."""

    metric: str
    unit: str
    size: str | None
    values: Mapping[str, Known]
    best: tuple[str, ...]
    """The best, and those within the noise of it. Empty if nothing may win."""
    ratio: float | None
    """How many times the best of the others takes."""

    @property
    def winner(self) -> str | None:
        """The only best; None if there are several, or none."""
        return self.best[0] if len(self.best) == 1 else None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "metric": self.metric,
            "unit": self.unit,
            "size": self.size,
            "values": {name: plain(value) for name, value in self.values.items()},
            "spread": {name: spread(value) for name, value in self.values.items()},
            "winner": self.winner,
            "tied": list(self.best) if len(self.best) > 1 else [],
            "ratio": self.ratio,
        }


def make_rows(results: Sequence[Result], sizes: Sequence[Size], parity: Parity) -> tuple[Row, ...]:
    """All rows. Only candidates that give the reference's answers can win."""

    def row(metric: str, unit: str, of: Callable[[Result], Known], size: str | None = None) -> Row:
        values = {result.name: of(result) for result in results}
        fair = [result.name for result in results if result.failure is None and parity.agrees(result.name)]
        allowed = {name: value for name in fair if isinstance(value := values[name], Figure)}
        exact = metric == _EXACT
        best, ratio = decide(allowed, 0.02 if exact else MARGIN, 0.0 if exact else LEAST[unit])
        return Row(metric, unit, size, values, best, ratio)

    def each(metric: str, unit: str, of: Callable[[AtSize], Known]) -> list[Row]:
        def at(place: int) -> Callable[[Result], Known]:
            return lambda result: of(result.at[place])

        return [row(metric, unit, at(place), size.label) for place, size in enumerate(sizes)]

    return (
        row("file size", BYTES, _file),
        row("framework memory", BYTES, lambda result: result.import_growth),
        row("load memory", BYTES, lambda result: result.load_growth),
        row("load memory / file size", TIMES, _per_file),
        row("total memory", BYTES, lambda result: result.total_rss),
        *each("peak memory", BYTES, lambda at: at.peak),
        *each("peak without framework", BYTES, lambda at: at.own_peak),
        *each("inference memory", BYTES, lambda at: at.run_growth),
        row("framework import time", SECONDS, lambda result: result.import_seconds),
        row("load time", SECONDS, lambda result: result.load_seconds),
        row("cold start", SECONDS, lambda result: result.cold_start),
        *each("latency", SECONDS, lambda at: at.latency),
    )


def _file(result: Result) -> Known:
    return result.file_bytes if isinstance(result.file_bytes, Unknown) else Figure((result.file_bytes,))


def _per_file(result: Result) -> Known:
    if isinstance(result.file_bytes, Unknown) or isinstance(result.load_growth, Unknown):
        return result.load_growth if isinstance(result.load_growth, Unknown) else Unknown("it has no file")
    size = max(result.file_bytes, 1)
    return Figure(tuple(sample / size for sample in result.load_growth.samples))


def decide(values: Mapping[str, Figure], margin: float, least: float = 0.0) -> tuple[tuple[str, ...], float | None]:
    """The best with those within the noise of it, and how many times the next takes.

    Two are told apart if not even their extreme samples overlap, widened where there are few, and if their medians
    differ by more than the margin (a part of the better) and by more than the least amount that means anything.
    """
    if len(values) < 2:
        return (), None
    order = sorted(values, key=lambda name: values[name].median)
    first = values[order[0]]
    tied = [name for name in order if not _apart(first, values[name], max(margin * first.median, least))]
    others = [values[name].median for name in order if name not in tied]
    ratio = others[0] / first.median if others and first.median > 0 else None
    return tuple(tied), ratio


def _apart(better: Figure, worse: Figure, margin: float) -> bool:
    slack = sum((f.high - f.low) / 2 for f in (better, worse) if len(f.samples) < _FEW)
    return worse.low - better.high > slack and worse.median - better.median > margin
