"""One buffer at a time, in a given order: the step that all greedy strategies share."""

from __future__ import annotations

import math

import numpy as np

from onnxmem._native import placement
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Int64Array, Problem


def place_in_order(problem: Problem, order: Int64Array, *, best_fit: bool = False) -> Plan:
    """Put each buffer into the lowest gap (or the smallest that holds it) left by those before it in `order`."""
    plan = try_in_order(problem, order, best_fit=best_fit, seconds=math.inf)
    assert plan is not None  # only the clock could have ended it
    return plan


def try_in_order(problem: Problem, order: Int64Array, *, best_fit: bool, seconds: float) -> Plan | None:
    """The same, unless it takes longer than `seconds`. Ctrl-C raises KeyboardInterrupt at once."""
    rows = np.ascontiguousarray(order, dtype=np.int64)
    offsets, interrupted = placement.place_in_order(
        problem.lowers, problem.uppers, problem.footprints, rows, best_fit, seconds
    )
    if interrupted:
        raise KeyboardInterrupt
    return None if offsets is None else Plan(problem, offsets)
