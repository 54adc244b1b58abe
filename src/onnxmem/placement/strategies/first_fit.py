"""In order of allocation, each at the lowest offset that is free for its whole lifetime."""

from __future__ import annotations

import numpy as np

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies._place import place_in_order


def plan(problem: Problem) -> Plan:
    """Place by rising start; equal starts by falling size."""
    return place_in_order(problem, np.lexsort((-problem.sizes, problem.lowers)))
