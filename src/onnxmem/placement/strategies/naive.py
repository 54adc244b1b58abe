"""Every tensor resident throughout: the baseline that reuses nothing."""

from __future__ import annotations

import numpy as np

from onnxmem.errors import PlanError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Problem


def plan(problem: Problem) -> Plan:
    """Buffers one after another, in the order given."""
    if problem.total > LARGEST:
        raise PlanError("all buffers side by side would pass 2^63 bytes")
    ends = np.cumsum(problem.footprints)
    return Plan(problem, ends - problem.footprints)
