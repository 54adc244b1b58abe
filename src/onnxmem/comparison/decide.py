"""Is one better than the other? Only if a repetition of the whole comparison would say so too.

Candidates take turns, so whatever slows the machine in one round slows all of them in it: the quotient of two samples
of the same round is what says something, not either sample. The mean of the quotients' logarithms has a confidence
interval (Student's), and it is asked where that lies: beyond a margin that people care about, within it, or neither.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxmem.comparison.figure import Figure

WINNER, SAME, UNDECIDED = "winner", "same", "undecided"
# Two-sided 99 %, for 1, 2, 3 … degrees of freedom: a comparison has twenty rows, and each is looked at twice. Beyond
# the table its last number is used, which is a little too careful.
_STUDENT = (
    63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921,
    2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_TINY = 1e-9
Interval = tuple[float, float]


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
