"""Around the widest steps first: where most is live, there is least room to be clever later."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxmem.plan.plan import Plan
from onnxmem.plan.problem import Problem
from onnxmem.plan.strategies._place import place_in_order


def plan(problem: Problem) -> Plan:
    """Place the buffers of the widest step, largest first, then those of the next widest, and so on."""
    return place_in_order(problem, np.lexsort((-problem.sizes, -widest_step(problem))))


def widest_step(problem: Problem) -> npt.NDArray[np.float64]:
    """For each buffer, how many bytes are live at the widest step of its lifetime."""
    starts, first = np.unique(problem.lowers, return_inverse=True)
    # The live bytes change upwards only where a buffer begins, so those steps are enough.
    last = np.searchsorted(starts, problem.uppers)
    deltas = np.zeros(len(starts) + 1, dtype=np.float64)
    np.add.at(deltas, first, problem.footprints)
    np.subtract.at(deltas, last, problem.footprints)
    live = np.cumsum(deltas[:-1])
    return np.array([live[a:b].max() for a, b in zip(first, last, strict=True)])
