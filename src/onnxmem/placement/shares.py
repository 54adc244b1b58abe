"""Pairs of buffers that may lie at one place: which are possible, what they can save, and a choice of them.

A pair (before, after) says that `after` is written over `before`, which is dead from then on although it is freed only
later. Both lie at the same offset, or they do not share. At any step at most two live buffers share a place, and those
two are a pair. So a chain a → b → c is possible where a is freed before c begins; and of several pairs with the same
`before`, or with the same `after`, a plan can use one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmem.errors import PlanError

Int64Array = npt.NDArray[np.int64]

NO_PAIRS: Int64Array = np.empty((0, 2), np.int64)
NO_PAIRS.flags.writeable = False


def allowed(lowers: Int64Array, uppers: Int64Array, sizes: Int64Array, pairs: Int64Array) -> npt.NDArray[np.bool_]:
    """For each pair of rows (before, after): is it possible?

    That is where `after` is not larger, and lower(before) < lower(after) < upper(before) <= upper(after).
    """
    before, after = pairs[:, 0], pairs[:, 1]
    begin, between, end = lowers[before], lowers[after], uppers[before]
    possible: npt.NDArray[np.bool_] = (
        (sizes[after] <= sizes[before]) & (begin < between) & (between < end) & (end <= uppers[after])
    )
    return possible


def named(ids: Sequence[str], befores: Iterable[Iterable[str]]) -> list[tuple[int, int]]:
    """The pairs of rows, from the names of the buffers over which each may be written."""
    row = {name: index for index, name in enumerate(ids)}
    pairs = []
    for after, names in enumerate(befores):
        for name in names:
            if name not in row:
                raise PlanError(f"buffer '{ids[after]}' may share with '{name[:80]}', which is not there")
            pairs.append((row[name], after))
    return pairs


def within(pairs: Int64Array, rows: Int64Array, count: int) -> Int64Array:
    """The pairs that lie in `rows` of a table of `count` buffers, as pairs of positions in `rows`."""
    position = np.full(count, -1, np.int64)
    position[rows] = np.arange(len(rows))
    moved = position[pairs.reshape(-1, 2)]
    return moved[(moved >= 0).all(axis=1)]


def savings(lowers: Int64Array, uppers: Int64Array, sizes: Int64Array, pairs: Int64Array) -> list[tuple[int, int]]:
    """At which steps the most that sharing can save changes, and by how much.

    "The most" looks at each step alone, and never says too little: every `after` and every `before` counts once.
    """
    if not len(pairs):
        return []
    befores, afters = pairs.T.tolist()
    begins, ends = lowers[pairs[:, 1]].tolist(), uppers[pairs[:, 0]].tolist()
    weights = sizes[pairs[:, 1]].tolist()
    events = sorted(
        [(step, True, k) for k, step in enumerate(begins)] + [(step, False, k) for k, step in enumerate(ends)]
    )
    over: dict[int, set[int]] = {}  # per after: its pairs
    under: dict[int, set[int]] = {}  # per before: its pairs
    by_after = by_before = saved = 0
    changes = []
    for step, group in groupby(events, key=lambda event: event[0]):
        for _, begin, k in group:
            mine, its = over.setdefault(afters[k], set()), under.setdefault(befores[k], set())
            by_before -= max((weights[i] for i in its), default=0)
            by_after -= weights[k] if mine else 0
            (mine.add if begin else mine.remove)(k)
            (its.add if begin else its.remove)(k)
            by_after += weights[k] if mine else 0
            by_before += max((weights[i] for i in its), default=0)
        if (most := min(by_after, by_before)) != saved:
            changes.append((step, most - saved))
            saved = most
    return changes


def choose(lowers: Int64Array, uppers: Int64Array, sizes: Int64Array, pairs: Int64Array) -> Int64Array:
    """Pairs that a plan can use together: as many as fit, those first that count where most is live."""
    if not len(pairs):
        return pairs
    before, after = pairs[:, 0], pairs[:, 1]
    steps, live = live_bytes(lowers, uppers, sizes)
    first, last = np.searchsorted(steps, lowers[after]), np.searchsorted(steps, uppers[before])
    most = np.maximum.reduceat(live, np.stack([first, last], axis=1).ravel())[::2]
    # Of several, the one that leaves the least unused, for the longest time.
    spare, time = sizes[before] - sizes[after], uppers[before] - lowers[after]
    order = np.lexsort((after, before, -time, spare, -sizes[after], -most.astype(np.float64)))
    under: dict[int, int] = {}
    over: dict[int, int] = {}
    begins, ends = lowers.tolist(), uppers.tolist()
    used = []
    for k, (b, a) in zip(order.tolist(), pairs[order].tolist(), strict=True):
        if a in under or b in over or not sizes[a]:
            continue
        if (b in under and ends[under[b]] > begins[a]) or (a in over and ends[b] > begins[over[a]]):
            continue  # three at once
        under[a], over[b] = b, a
        used.append(k)
    chosen: Int64Array = pairs[sorted(used)]
    return chosen


def compatible(lowers: Int64Array, uppers: Int64Array, used: Int64Array, pair: Int64Array) -> bool:
    """Can a plan that uses these pairs use this one, too?"""
    before, after = pair.tolist()
    for b, a in used.tolist():
        if before == b or after == a:
            return False
        if (a == before and uppers[b] > lowers[after]) or (b == after and uppers[before] > lowers[a]):
            return False  # three at once
    return True


def live_bytes(
    lowers: Int64Array, uppers: Int64Array, sizes: Int64Array, saved: list[tuple[int, int]] | None = None
) -> tuple[Int64Array, npt.NDArray[Any]]:
    """The steps at which what is live changes, and how much it is from there on, less what is `saved`."""
    # Python integers where the sum may pass 2^63 although no single size does.
    exact: type = np.int64 if float(sizes.sum(dtype=np.float64)) < 2**62 else object
    saved = saved or []
    steps = np.concatenate([lowers, uppers, np.array([step for step, _ in saved], np.int64)])
    less: npt.NDArray[Any] = np.array([-change for _, change in saved], exact)
    order = np.argsort(steps, kind="stable")
    sums = np.cumsum(np.concatenate([sizes.astype(exact), -sizes.astype(exact), less])[order])
    steps = steps[order]
    last = np.append(steps[1:] != steps[:-1], True) if len(steps) else np.empty(0, bool)
    return steps[last], sums[last]


@dataclass(frozen=True, eq=False)
class Places:
    """Buffers that share a place as one: from the first one's start to the last one's end, as large as the largest."""

    lowers: Int64Array
    uppers: Int64Array
    sizes: Int64Array
    of: Int64Array
    """For each buffer, its place."""

    @classmethod
    def made(cls, lowers: Int64Array, uppers: Int64Array, sizes: Int64Array, used: Int64Array) -> Places:
        """One place for every chain of `used` pairs, and for every other buffer its own."""
        count = len(lowers)
        over = np.full(count, -1, np.int64)
        over[used[:, 1]] = used[:, 0]
        heads = np.flatnonzero(over < 0)
        of = np.full(count, -1, np.int64)
        of[heads] = np.arange(len(heads))
        ends = uppers[heads].copy()
        # What is written over something begins later than it: that has its place already.
        for row in used[np.argsort(lowers[used[:, 1]], kind="stable"), 1].tolist():
            of[row] = of[over[row]]
            ends[of[row]] = uppers[row]
        return cls(lowers[heads], ends, sizes[heads], of)

    def shrinking(self, used: Int64Array, uppers: Int64Array, sizes: Int64Array) -> Int64Array:
        """Rows (place, step, size), by place and step: where what is written over another is smaller, from the step on
        at which that is gone only `size` bytes are needed."""
        smaller = used[sizes[used[:, 1]] < sizes[used[:, 0]]]
        before, after = smaller[:, 0], smaller[:, 1]
        left = uppers[before] < uppers[after]
        rows = np.stack([self.of[after], uppers[before], sizes[after]], axis=1)[left]
        ordered: Int64Array = np.ascontiguousarray(rows[np.lexsort((rows[:, 1], rows[:, 0]))])
        return ordered

    @cached_property
    def heads(self) -> Int64Array:
        """For each place, the buffer that is there first."""
        first: Int64Array = np.unique(self.of, return_index=True)[1]
        return first
