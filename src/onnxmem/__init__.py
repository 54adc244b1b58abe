"""onnxmem: how much memory an ONNX model takes, why, and how to make it take less.

Names are imported when they are first used, so that `import onnxmem` costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxmem.compare.best import load_best
    from onnxmem.compare.compare import compare
    from onnxmem.errors import BudgetExceeded, ModelError, OnnxmemError, PlanError, RuntimeUnsupported, UsageError
    from onnxmem.estimate import Estimate, Question, estimate
    from onnxmem.measure.measure import measure
    from onnxmem.measure.measurement import Measurement
    from onnxmem.model.model import Model
    from onnxmem.plan.plan import Plan
    from onnxmem.plan.problem import Buffer, Problem
    from onnxmem.plan.strategies import STRATEGIES, solve
    from onnxmem.plan.table import read_plan, read_problem, write_plan, write_problem
    from onnxmem.plan.validate import validate
    from onnxmem.unknown import Unknown

_HOME = {
    "BudgetExceeded": "errors",
    "Buffer": "plan.problem",
    "Estimate": "estimate",
    "Measurement": "measure.measurement",
    "Model": "model.model",
    "ModelError": "errors",
    "OnnxmemError": "errors",
    "Plan": "plan.plan",
    "PlanError": "errors",
    "Problem": "plan.problem",
    "Question": "estimate",
    "RuntimeUnsupported": "errors",
    "STRATEGIES": "plan.strategies",
    "Unknown": "unknown",
    "UsageError": "errors",
    "compare": "compare.compare",
    "estimate": "estimate",
    "load_best": "compare.best",
    "measure": "measure.measure",
    "read_plan": "plan.table",
    "read_problem": "plan.table",
    "solve": "plan.strategies",
    "validate": "plan.validate",
    "write_plan": "plan.table",
    "write_problem": "plan.table",
}

__all__ = [
    "STRATEGIES",
    "BudgetExceeded",
    "Buffer",
    "Estimate",
    "Measurement",
    "Model",
    "ModelError",
    "OnnxmemError",
    "Plan",
    "PlanError",
    "Problem",
    "Question",
    "RuntimeUnsupported",
    "Unknown",
    "UsageError",
    "compare",
    "estimate",
    "load_best",
    "measure",
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


class _Package(ModuleType):
    """Keeps `onnxmem.measure` the function after `onnxmem.measure.probes` was imported.

    Importing a submodule binds it to its package under its own name, and some of ours share theirs with what they do.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
