"""In order of allocation, each in the smallest gap that holds it: what ONNX Runtime's memory pattern does."""

from __future__ import annotations

import numpy as np

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies._place import place_in_order


def plan(problem: Problem) -> Plan:
    """Place by rising start, in the order given, best fit."""
    return place_in_order(problem, np.argsort(problem.lowers, kind="stable"), best_fit=True)
