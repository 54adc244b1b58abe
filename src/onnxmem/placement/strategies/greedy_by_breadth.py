"""Around the widest steps first: where most is live, there is least room to be clever later."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies._place import place_in_order

Float64Array = npt.NDArray[np.float64]


def plan(problem: Problem) -> Plan:
    """Place the buffers of the widest step, largest first, then those of the next widest, and so on."""
    return place_in_order(problem, np.lexsort((-problem.sizes, -widest_step(problem))))


def widest_step(problem: Problem) -> Float64Array:
    """For each buffer, how many bytes are live at the widest step of its lifetime."""
    starts, first = np.unique(problem.lowers, return_inverse=True)
    # The live bytes change upwards only where a buffer begins, so those steps are enough.
    last = np.searchsorted(starts, problem.uppers)
    deltas = np.zeros(len(starts) + 1, dtype=np.float64)
    np.add.at(deltas, first, problem.footprints)
    np.subtract.at(deltas, last, problem.footprints)
    return _largest_between(np.cumsum(deltas[:-1]), first, last)


def _largest_between(values: Float64Array, first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> Float64Array:
    """The largest of values[first:last] for each pair, in n log n steps and linear memory."""
    result = np.empty(len(first), dtype=np.float64)
    # Any range is covered by two, overlapping, whose length is the largest power of two that is not longer.
    powers = np.frexp((last - first).astype(np.float64))[1] - 1
    longest, power = values, 0  # longest[i]: the largest of the 2^power values from i on
    while True:
        asked = np.flatnonzero(powers == power)
        result[asked] = np.maximum(longest[first[asked]], longest[last[asked] - 2**power])
        if power >= powers.max(initial=0):
            return result
        longest = np.maximum(longest[: -(2**power)], longest[2**power :])
        power += 1
