"""Largest first, each at the lowest offset that is free for its whole lifetime."""

from __future__ import annotations

import numpy as np

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies._place import place_in_order


def plan(problem: Problem) -> Plan:
    """Place by falling size; equal sizes by rising start."""
    return place_in_order(problem, np.lexsort((problem.lowers, -problem.sizes)))
