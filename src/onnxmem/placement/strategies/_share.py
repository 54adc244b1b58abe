"""Which buffers share places? Some choices that promise most, one after the other; all of them, where there are few.

Sharing takes less where most is live, but ties buffers to one offset, so that the most of it is not always the best.
Each choice becomes a problem without pairs: what shares a place is one buffer, which shrinks where what is written over
another is smaller.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Int64Array
from onnxmem.placement.shares import NO_PAIRS, choose, compatible, live_bytes, savings
from onnxmem.placement.sharing import merged
from onnxmem.placement.strategies._state import WORK_PER_SECOND, SearchState

Stage = Callable[[SearchState], None]

# So many pairs at most are tried in all ways.
_FEW = 16
# The part of the remaining work that the first choice gets; that one of few gets, and one of many.
_SHARE, _MIDDLE_SHARE, _SMALL_SHARE = 0.5, 0.25, 0.1
# Peaks between the goal and the best plan so far, for which no more share than has to.
_BETWEEN = (0.0, 0.5, 0.25, 0.75)


def share_places(state: SearchState, begin: Stage, deepen: Stage) -> None:
    """Plans for one choice of pairs after the other, until the goal is met or the work is done."""
    Sharing(state, begin, deepen).run()


class Sharing:
    """The choices that were tried, and what is proven about them."""

    def __init__(self, state: SearchState, begin: Stage, deepen: Stage) -> None:
        self.state, self.begin, self.deepen = state, begin, deepen
        self.problem = state.problem
        self.columns = state.problem.lowers, state.problem.uppers, state.problem.footprints
        # What is empty takes no room anyway.
        self.pairs = self.problem.shares[self.columns[2][self.problem.shares[:, 1]] > 0]
        self.bound_apart = self.bound_of(NO_PAIRS)
        self.bounds: dict[bytes, int] = {}  # per choice that was tried

    def run(self) -> None:
        """From the most that can share to nothing at all; then whatever is left to try."""
        state, most = self.state, choose(*self.columns, self.pairs)
        self.attempt(most, _SHARE)
        # Never worse than without: as much work as there would be if nothing could share.
        if state.best is None or (state.best.peak > max(self.bound_apart, state.goal) and not state.interrupted):
            self.attempt(NO_PAIRS, 0)
        for part in _BETWEEN:
            if not state.over and state.best is not None:
                target = state.goal + int((state.best.peak - state.goal) * part)
                self.attempt(self.needed(most, target), _MIDDLE_SHARE)
        if len(self.pairs) <= _FEW:
            lowest = self.all_choices(NO_PAIRS, self.pairs)
            state.bound = max(state.bound, min(lowest, state.best.peak if state.best else lowest))
        else:
            self.at_random(most)

    def bound_of(self, used: Int64Array, open_pairs: Int64Array = NO_PAIRS) -> int:
        """No plan that uses these pairs, and any of the open ones, is smaller."""
        lowers, uppers, sizes = self.columns
        weights = sizes[used[:, 1]].tolist()
        saved = [
            *zip(lowers[used[:, 1]].tolist(), weights, strict=True),
            *((step, -weight) for step, weight in zip(uppers[used[:, 0]].tolist(), weights, strict=True)),
            *savings(*self.columns, open_pairs),
        ]
        return int(live_bytes(*self.columns, saved)[1].max())

    def attempt(self, used: Int64Array, share: float) -> None:
        """The best plan for one choice, with a share of the work left; 0: as much as there was at the beginning."""
        state, key = self.state, used.tobytes()
        bound, best = self.bound_of(used), state.best
        # A plan without sharing is found again exactly as it would be without any pairs.
        limit = best.peak if best is not None and share else LARGEST
        if (key in self.bounds and share) or bound >= limit:
            self.bounds.setdefault(key, bound)
            return
        together, places = merged(self.problem, used)
        shrink = places.shrinking(used, self.columns[1], self.columns[2])
        work = int(state.work_left * share) if share else state.work
        inner = SearchState(
            together,
            time_limit=state.seconds_left,
            effort=work / WORK_PER_SECOND,
            seed=state.seed,
            threads=state.threads,
            memory=state.memory,
            shrink=shrink if len(shrink) else None,
            bound=bound,
            limit=limit,
        )
        try:
            self.begin(inner)
            if best is None and inner.best is not None and inner.best.peak > self.bound_apart:
                # Half of the time is for trying without sharing.
                inner.end -= inner.seconds_left / 2
            self.deepen(inner)
        finally:
            if inner.best is not None:
                state.offer(Plan(self.problem, inner.best.offsets[places.of]))
            state.interrupted = state.interrupted or inner.interrupted
            state.work_left -= inner.work - inner.work_left if share else 0
            self.bounds[key] = inner.bound

    def needed(self, used: Int64Array, target: int) -> Int64Array:
        """Only those without which more than the target would be live, or than with all of them."""
        lowers, uppers, sizes = self.columns
        target = max(self.bound_of(used), target)
        weights = sizes[used[:, 1]].tolist()
        changes = [(int(lowers[a]), w) for a, w in zip(used[:, 1], weights, strict=True)]
        changes += [(int(uppers[b]), -w) for b, w in zip(used[:, 0], weights, strict=True)]
        steps, live = live_bytes(*self.columns, changes)
        first, last = np.searchsorted(steps, lowers[used[:, 1]]), np.searchsorted(steps, uppers[used[:, 0]])
        kept = []
        # The largest are left last: they save most.
        for k in np.argsort(sizes[used[:, 1]], kind="stable").tolist():
            span = slice(int(first[k]), int(last[k]))
            if live[span].max() + weights[k] <= target:
                live[span] += weights[k]
            else:
                kept.append(k)
        rest: Int64Array = used[sorted(kept)]
        return rest

    def all_choices(self, used: Int64Array, undecided: Int64Array) -> int:
        """Try everything that uses `used` and any of the undecided; no plan of these is smaller than what it returns.

        That is no more than what was known before where the work is done too soon.
        """
        bound = self.bound_of(used, undecided)
        if (self.state.best is not None and bound >= self.state.best.peak) or self.state.over:
            return bound
        if not len(undecided):
            self.attempt(used, _SMALL_SHARE)
            return self.bounds[used.tobytes()]
        pair, others = undecided[:1], undecided[1:]
        # Not by `np.unique`: comparing rows makes a TypeError of a Ctrl-C that comes then.
        more = np.concatenate([used, pair])
        more = more[np.lexsort((more[:, 1], more[:, 0]))]
        fitting = others[[compatible(*self.columns[:2], more, one) for one in others]]
        return min(self.all_choices(more, fitting), self.all_choices(used, others))

    def at_random(self, most: Int64Array) -> None:
        """Leave out some of the pairs, each time others."""
        chance = random.Random(self.state.seed)
        while not self.state.over:
            part = chance.choice((0.05, 0.2, 0.5))
            kept = [k for k in range(len(self.pairs)) if chance.random() >= part]
            self.attempt(choose(*self.columns, self.pairs[kept]), _SMALL_SHARE)
            # What cannot be better costs no search, but some time.
            self.state.work_left -= self.state.work // 1000
