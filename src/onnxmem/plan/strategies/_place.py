"""One buffer at a time, in a given order: the step that all greedy strategies share."""

from __future__ import annotations

import numpy as np

from onnxmem._native import placement
from onnxmem.plan.plan import Plan
from onnxmem.plan.problem import Int64Array, Problem


def place_in_order(problem: Problem, order: Int64Array, *, best_fit: bool = False) -> Plan:
    """Put each buffer into the lowest gap (or the smallest that holds it) left by those before it in `order`."""
    rows = np.ascontiguousarray(order, dtype=np.int64)
    offsets = placement.place_in_order(problem.lowers, problem.uppers, problem.footprints, rows, best_fit)
    return Plan(problem, offsets)
