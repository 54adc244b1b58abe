"""What does a run of so many rows take, by what runs of other numbers of rows did?"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from onnxmem.session.planned.placing import place
from onnxmem.session.planned.trace import Trace


@dataclass
class Learned:
    """What is known of runs that differ in nothing but the number of rows.

    Several threads use it at once: what is iterated over is replaced as a whole, never changed.
    """

    traces: dict[int, Trace] = field(default_factory=dict)
    """What was recorded."""
    peaks: dict[int, int] = field(default_factory=dict)
    """What their plans take, and those that followed from them."""
    exact: dict[tuple[int, int], bool] = field(default_factory=dict)
    """Whether so many rows at once give the same bits as so many."""
    uneven: bool = False
    """Whether a run asked for something else than followed from others."""

    def took(self, rows: int, peak: int, trace: Trace | None = None) -> None:
        """A plan for so many rows takes that; with a trace, if it was recorded."""
        self.peaks = {**self.peaks, rows: peak}
        if trace is not None:
            self.traces = {**self.traces, rows: trace}

    def trace(self, rows: int) -> Trace | None:
        """What so many rows will ask for; None if that does not follow from others."""
        if rows in self.traces or self.uneven:
            return self.traces.get(rows)
        recorded = sorted(self.traces.items(), reverse=True)
        for (more, second), (few, first) in pairwise(recorded):
            if np.array_equal(first.lowers, second.lowers) and np.array_equal(first.uppers, second.uppers):
                growth, rest = np.divmod(second.sizes - first.sizes, more - few)
                sizes = first.sizes + growth * (rows - few)
                if rest.any() or (sizes <= 0).any():
                    return None
                return Trace(sizes, first.lowers, first.uppers, alignment=first.alignment)
        return None

    def at_most(self, rows: int) -> int:
        """What a plan for so many rows takes at the most: no buffer grows faster than the rows do."""
        if rows not in self.peaks and (trace := self.trace(rows)) is not None:
            self.took(rows, place(trace).peak)
        peaks = self.peaks
        few = max((each for each in peaks if each <= rows), default=rows)
        return -(-peaks.get(few, peaks[min(peaks)]) * rows // few)

    def most(self, least: int, rows: int, room: int) -> int:
        """How many rows at once, at the least and at the most, take no more than that."""
        low, high = least, rows + 1
        while high - low > 1:
            middle = (low + high) // 2
            trace = self.trace(middle)
            needed = self.at_most(middle) if trace is None else trace.bound()
            low, high = (middle, high) if needed <= room else (low, middle)
        while low > least and self.at_most(low) > room:
            low -= 1
        return low
