"""onnxmem: how much memory an ONNX model takes, why, and how to make it take less.

Names are imported when they are first used, so that `import onnxmem` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxmem.errors import BudgetExceeded, ModelError, OnnxmemError, PlanError, RuntimeUnsupported, UsageError
    from onnxmem.estimate import Estimate, Question, estimate
    from onnxmem.model.model import Model
    from onnxmem.plan.plan import Plan
    from onnxmem.plan.problem import Buffer, Problem
    from onnxmem.plan.strategies import STRATEGIES, solve
    from onnxmem.plan.table import read_plan, read_problem, write_plan, write_problem
    from onnxmem.plan.validate import validate
    from onnxmem.runtime.arena import Arena
    from onnxmem.runtime.planned import PlannedSession
    from onnxmem.unknown import Unknown

_HOME = {
    "Arena": "runtime.arena",
    "BudgetExceeded": "errors",
    "Buffer": "plan.problem",
    "Estimate": "estimate",
    "Model": "model.model",
    "ModelError": "errors",
    "OnnxmemError": "errors",
    "Plan": "plan.plan",
    "PlanError": "errors",
    "PlannedSession": "runtime.planned",
    "Problem": "plan.problem",
    "Question": "estimate",
    "RuntimeUnsupported": "errors",
    "STRATEGIES": "plan.strategies",
    "Unknown": "unknown",
    "UsageError": "errors",
    "estimate": "estimate",
    "read_plan": "plan.table",
    "read_problem": "plan.table",
    "solve": "plan.strategies",
    "validate": "plan.validate",
    "write_plan": "plan.table",
    "write_problem": "plan.table",
}

__all__ = [
    "STRATEGIES",
    "Arena",
    "BudgetExceeded",
    "Buffer",
    "Estimate",
    "Model",
    "ModelError",
    "OnnxmemError",
    "Plan",
    "PlanError",
    "PlannedSession",
    "Problem",
    "Question",
    "RuntimeUnsupported",
    "Unknown",
    "UsageError",
    "estimate",
    "read_plan",
    "read_problem",
    "solve",
    "validate",
    "write_plan",
    "write_problem",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onnxmem' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"onnxmem.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
