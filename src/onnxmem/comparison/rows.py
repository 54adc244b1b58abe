"""Who wins what, and by how much? One row for each figure; nobody wins what a repetition would not say too.

Candidates take turns, so whatever slows the machine in one round slows all of them in it: the quotient of two samples
of the same round is what says something, not either sample. The mean of the quotients' logarithms has a confidence
interval (Student's), and it is asked where that lies: beyond a margin that people care about, within it, or neither.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import AtSize, CandidateResult, Figure, Known
from onnxmem.comparison.sizes import Size
from onnxmem.documents import Record
from onnxmem.unknown import Unknown, combine

WINNER, SAME, UNDECIDED = "winner", "same", "undecided"
# Two-sided 99 %, for 1, 2, 3 … degrees of freedom: a comparison has twenty rows, and each is looked at twice. Beyond
# the table its last number is used, which is a little too careful.
_STUDENT = (
    63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921,
    2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_TINY = 1e-9
Interval = tuple[float, float]
BYTES, SECONDS, TIMES = "bytes", "seconds", "times"
# Below this no difference is worth a name, however well the samples tell two apart.
MARGIN = 0.10
# Not measured, but known.
FILE_SIZE = "file size"
PEAK = "peak memory"
# The kernel counts pages in batches, and a millisecond is a turn of the scheduler.
LEAST = {BYTES: 2**20, SECONDS: 0.001, TIMES: 0.0}


@dataclass(frozen=True, kw_only=True)
class Row(Record):
    """One metric for all candidates. Less is better, always."""

    metric: str
    unit: str
    size: str | None
    values: Mapping[str, int | float | None]
    """Medians by candidate; None where nothing is known."""
    spread: Mapping[str, tuple[float, float] | None]
    """Smallest and largest samples."""
    verdict: str | None
    """WINNER, SAME or UNDECIDED; None where there are not two to compare."""
    winner: str | None
    """The one that takes least; None if several take the same, or nothing is decided."""
    tied: tuple[str, ...]
    """Without a winner: those that are not shown to take more than another."""
    ratio: float | None
    """How many times the best of the others takes, by the medians."""
    intervals: Mapping[str, Interval | None]
    """How many times as much as the least each other one takes: from, to; None for what one sample cannot tell."""

    @property
    def label(self) -> str:
        """What it is about."""
        return self.metric if self.size is None else f"{self.metric} at {self.size}"

    @property
    def best(self) -> tuple[str, ...]:
        """Those that nobody is shown to beat."""
        return self.tied if self.winner is None else (self.winner,)


def make_rows(candidates: Sequence[CandidateResult], sizes: Sequence[str], parity: Parity) -> tuple[Row, ...]:
    """All rows. Only candidates that give the reference's answers can win."""

    def row(metric: str, unit: str, of: Callable[[CandidateResult], Known], size: str | None = None) -> Row:
        figures = {each.name: of(each) for each in candidates}
        fair = [each.name for each in candidates if each.failure is None and parity.agrees(each.name)]
        allowed = {name: value for name in fair if isinstance(value := figures[name], Figure)}
        exact = metric == FILE_SIZE
        decision = decide(allowed, 0.02 if exact else MARGIN, 0.0 if exact else LEAST[unit], exact=exact)
        winner = decision.best[0] if decision.verdict == WINNER else None
        return Row(
            metric=metric,
            unit=unit,
            size=size,
            values={n: each.median if isinstance(each, Figure) else None for n, each in figures.items()},
            spread={n: (each.low, each.high) if isinstance(each, Figure) else None for n, each in figures.items()},
            verdict=decision.verdict,
            winner=winner,
            tied=decision.best if winner is None else (),
            ratio=decision.ratio,
            intervals={n: ends if math.isfinite(ends[1]) else None for n, ends in decision.intervals.items()},
        )

    def by_size(metric: str, unit: str, of: Callable[[AtSize], Known]) -> list[Row]:
        def at(place: int) -> Callable[[CandidateResult], Known]:
            return lambda result: of(result.at[place])

        return [row(metric, unit, at(place), size) for place, size in enumerate(sizes)]

    on_device = (
        row("device memory of loading", BYTES, lambda each: _there(each.device_load)),
        *by_size("device memory", BYTES, lambda at: _there(at.device_peak)),
        *by_size("device memory of inference", BYTES, lambda at: _there(at.device_growth)),
    )
    return (
        *(on_device if any(each.device_load for each in candidates) else ()),
        row(FILE_SIZE, BYTES, lambda each: combine(lambda size: Figure((size,)), each.file_bytes)),
        row("framework memory", BYTES, lambda each: each.import_growth),
        row("load memory", BYTES, lambda each: each.load_growth),
        row("load memory / file size", TIMES, lambda each: combine(_per_file, each.file_bytes, each.load_growth)),
        row("total memory", BYTES, lambda each: each.total_rss),
        *by_size(PEAK, BYTES, lambda at: at.peak),
        *by_size("peak without framework", BYTES, lambda at: at.own_peak),
        *by_size("inference memory", BYTES, lambda at: at.run_growth),
        row("framework import time", SECONDS, lambda each: each.import_seconds),
        row("load time", SECONDS, lambda each: each.load_seconds),
        row("cold start", SECONDS, lambda each: each.cold_start),
        *by_size("latency", SECONDS, lambda at: at.latency),
    )


def _there(figure: Known | None) -> Known:
    return Unknown("it did not run on a device") if figure is None else figure


def _per_file(size: int, growth: Figure) -> Figure:
    return Figure(tuple(sample / max(size, 1) for sample in growth.samples))


def undecided_sizes(rows: Sequence[Row], sizes: Sequence[Size]) -> list[Size]:
    """Where more samples would help. What does not depend on the size is measured at the smallest."""
    wanted = {row.size or sizes[0].label for row in rows if row.verdict == UNDECIDED}
    return [size for size in sizes if size.label in wanted]


@dataclass(frozen=True)
class Decision:
    """Who takes least, as far as the samples tell."""

    verdict: str | None
    """WINNER, SAME or UNDECIDED; None where there are not two to compare."""
    best: tuple[str, ...] = ()
    """The one with the least, and all that are not shown to take more."""
    ratio: float | None = None
    """How many times the best of the others takes, by the medians."""
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    """How many times as much as the first of `best` each other one takes: from, to."""


def decide(values: Mapping[str, Figure], margin: float, least: float = 0.0, *, exact: bool = False) -> Decision:
    """Judge one row.

    The margin is a part of the better one, and at least the amount `least`. One takes more if its whole interval is
    beyond the margin, the same if it is all within, and otherwise nothing is decided. Exact values have no interval.
    """
    if len(values) < 2:
        return Decision(None)
    order = sorted(values, key=lambda name: values[name].median)
    first = values[order[0]]
    floor = max(least, _TINY)  # where there is next to nothing, quotients mean nothing
    bound = 1 + max(margin, least / max(first.median, floor))
    intervals = {name: quotients(first, values[name], floor, exact=exact) for name in order[1:]}
    worse = [name for name in order[1:] if intervals[name][0] > bound]
    best = [name for name in order if name not in worse]
    same = all(1 / bound <= intervals[name][0] and intervals[name][1] <= bound for name in best[1:])
    verdict = WINNER if len(best) == 1 else SAME if same else UNDECIDED
    ratio = values[worse[0]].median / max(first.median, floor) if worse else None
    return Decision(verdict, tuple(best), ratio, intervals)


def quotients(first: Figure, other: Figure, floor: float, *, exact: bool = False) -> Interval:
    """How many times as much the other takes: the confidence interval of what the rounds say."""
    pairs = zip(first.samples, other.samples, strict=False)  # who failed at one size has fewer
    logs = [math.log(max(b, floor) / max(a, floor)) for a, b in pairs]
    mean = statistics.mean(logs)
    if exact:
        return math.exp(mean), math.exp(mean)
    if len(logs) < 2:
        return 0.0, math.inf
    half = _STUDENT[min(len(logs) - 1, len(_STUDENT)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean - half), math.exp(min(mean + half, 700.0))
