"""Plans that outlive the process that made them: the next one begins with them, at its first run.

They are believed no more than any other guess. A run is compared with its plan call by call, and which buffers may
share places is found out again from the run that first did so (`PlanBook.prove`). So a file that is wrong, for whatever
reason, costs that run a second time, and not its outputs.

It costs memory, too: what comes after the call that does not fit lies beside the plan. Some models run their nodes in
another order in every process, or ask for what their data need. Where that may be, a plan is followed once two
processes in turn have recorded it; and if it does not fit after all, that is counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onnxmem._native import arena as native
from onnxmem.placement.problem import Int64Array
from onnxmem.session.planned import cache
from onnxmem.session.planned.pairs import Sharing, Trust
from onnxmem.session.planned.placing import Placement
from onnxmem.session.planned.run_key import RunKey
from onnxmem.session.planned.trace import Trace

_FORMAT = 1
_HEAD = 7
_WORTHWHILE = 1 << 20
"""A plan that takes less is recorded again in no time, and what a recorded run takes more is no more than that."""
_MOST = 64
"""So many a session may write: shapes may be new for ever."""
_MISSES = 3
"""A plan that did not fit so often, in as many processes, is not tried again."""


class KeptPlan(NamedTuple):
    """What a file says: a trace, and where its buffers lie."""

    trace: Trace
    placement: Placement


class KeptPlans:
    """The plans of a model that is asked for in one way: `name` stands for that.

    If it is `steady`, its nodes run in the same order in every process.
    """

    def __init__(self, name: str, *, steady: bool) -> None:
        self._name = name
        self._steady = steady
        self._misses: dict[RunKey, int] = {}
        self._once: dict[RunKey, Trace] = {}
        """What one process recorded, and no other yet."""
        self._agreed: dict[RunKey, bool] = {}
        """Whether the next process may follow what this one has written."""
        self._failed: set[RunKey] = set()
        self._written = 0

    def read(self, key: RunKey) -> KeptPlan | None:
        """The plan of a shape, if an earlier process left one that can be followed."""
        if key in self._failed:
            return None
        try:
            numbers = np.frombuffer(cache.read(self._file(key)), np.int64)
            form, misses, agreed, improvable, bound, rows, pairs = numbers[:_HEAD].tolist()
            if form != _FORMAT or not rows >= 0 <= pairs or len(numbers) != _HEAD + 4 * rows + 2 * pairs:
                return None
            self._misses[key] = misses
            columns = np.split(numbers[_HEAD:], [rows, 2 * rows, 3 * rows, 4 * rows])
            trace = Trace(*columns[:3])
            if not trace.is_possible:
                return None
            if rows and agreed:
                plan = _checked(trace, columns[3], columns[4].reshape(-1, 2), bound, bool(improvable))
                self._agreed[key] = plan is not None
                return plan
            if rows:
                self._once[key] = trace
        except (ValueError, OverflowError):
            pass
        return None

    def write(
        self, key: RunKey, tape: native.Tape, placement: Placement, sharing: Sharing, *, searched: bool = False
    ) -> None:
        """Keep a plan, if that is worth it. One that was `searched` for long need not be improved again."""
        if placement.peak < _WORTHWHILE or tape.cut or self._written >= _MOST or self._misses.get(key, 0) >= _MISSES:
            return
        # Before it is known which buffers may share, nothing must depend on what they hold: a loop might not end.
        if len(placement.shared) and sharing.trust is not Trust.ALL:
            return
        trace = Trace.recorded(tape.trace)
        if not trace.sizes.all():
            return  # a buffer is left out, because its size is never the same
        once = self._once.pop(key, None)
        if once is not None and once != trace:
            self.missed(key)
        # Once per process: what it finds out later about the same plan is no second opinion.
        agreed = self._agreed.setdefault(key, once is not None or (self._steady and not self._misses.get(key)))
        if self._misses.get(key, 0) < _MISSES:
            numbers = [
                agreed,
                placement.improvable and not searched,
                placement.bound,
                len(trace),
                len(placement.shared),
            ]
            self._put(key, numbers, *trace.columns, tape.offsets, placement.shared.ravel())
            self._failed.discard(key)
        self._written += 1

    def missed(self, key: RunKey) -> None:
        """A run did not fit the plan: this process does not use it again, nor others if that happens often."""
        if key not in self._failed:
            self._failed.add(key)
            self._misses[key] = self._misses.get(key, 0) + 1
            self._agreed[key] = False
            self._put(key, [0] * 5)

    def _put(self, key: RunKey, numbers: list[int], *columns: Int64Array) -> None:
        head = np.array([_FORMAT, self._misses.get(key, 0), *numbers], np.int64)
        cache.write(self._file(key), np.concatenate([head, *columns]).tobytes())

    def _file(self, key: RunKey) -> str:
        return f"plans/{cache.digest(self._name, *key)}"


def _checked(trace: Trace, offsets: Int64Array, shared: Int64Array, bound: int, improvable: bool) -> KeptPlan | None:
    if len(shared) and not (shared.min() >= 0 and shared.max() < len(trace)):
        return None
    placement = Placement(offsets, 0, bound, improvable, shared)
    # The library checks every offset against every other.
    peak = native.Tape(*trace.columns, offsets, 0, False, placement.over).peak
    if peak > trace.padded().sum():
        return None
    saved = max(0, trace.bound() - peak) if len(shared) else 0
    return KeptPlan(trace, Placement(offsets, peak, bound, improvable, shared, saved))
