"""Who wins what, and by how much? One row for each figure; nobody wins what the samples do not decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.comparison.decide import UNDECIDED, WINNER, Decision, Interval, decide
from onnxmem.comparison.figure import Figure, Known, plain, spread
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import AtSize, Result
from onnxmem.comparison.sizes import Size
from onnxmem.unknown import Unknown

BYTES, SECONDS, TIMES = "bytes", "seconds", "times"
# Below this no difference is worth a name, however well the samples tell two apart.
MARGIN = 0.10
# The size of a file is not measured: it is known.
_EXACT = "file size"
# The kernel counts pages in batches, and a millisecond is a turn of the scheduler.
LEAST = {BYTES: 2**20, SECONDS: 0.001, TIMES: 0.0}


@dataclass(frozen=True)
class Row:
    """One metric for all candidates. Less is better, always."""

    metric: str
    unit: str
    size: str | None
    values: Mapping[str, Known]
    decision: Decision

    @property
    def label(self) -> str:
        """What it is about."""
        return self.metric if self.size is None else f"{self.metric} at {self.size}"

    @property
    def winner(self) -> str | None:
        """The one that takes least; None if several take the same, or nothing is decided."""
        return self.decision.best[0] if self.decision.verdict == WINNER else None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "metric": self.metric,
            "unit": self.unit,
            "size": self.size,
            "values": {name: plain(value) for name, value in self.values.items()},
            "spread": {name: spread(value) for name, value in self.values.items()},
            "verdict": self.decision.verdict,
            "winner": self.winner,
            "tied": list(self.decision.best) if self.winner is None else [],
            "ratio": self.decision.ratio,
            "intervals": {name: _known(ends) for name, ends in self.decision.intervals.items()},
        }


def make_rows(results: Sequence[Result], sizes: Sequence[Size], parity: Parity) -> tuple[Row, ...]:
    """All rows. Only candidates that give the reference's answers can win."""

    def row(metric: str, unit: str, of: Callable[[Result], Known], size: str | None = None) -> Row:
        values = {result.name: of(result) for result in results}
        fair = [result.name for result in results if result.failure is None and parity.agrees(result.name)]
        allowed = {name: value for name in fair if isinstance(value := values[name], Figure)}
        exact = metric == _EXACT
        decision = decide(allowed, 0.02 if exact else MARGIN, 0.0 if exact else LEAST[unit], exact=exact)
        return Row(metric, unit, size, values, decision)

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


def undecided_sizes(rows: Sequence[Row], sizes: Sequence[Size]) -> list[Size]:
    """Where more samples would help. What does not depend on the size is measured at the smallest."""
    wanted = {row.size or sizes[0].label for row in rows if row.decision.verdict == UNDECIDED}
    return [size for size in sizes if size.label in wanted]


def _known(ends: Interval) -> list[float] | None:
    """As JSON, which has no infinity: one sample has no interval."""
    return list(ends) if math.isfinite(ends[1]) else None
