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
    from onnxmem.convert import convert
    from onnxmem.demonstrate import demonstrate_actual_onnx_memory_release
    from onnxmem.errors import (
        BudgetExceeded,
        ModelError,
        OnnxmemError,
        PlanError,
        RuntimeUnsupported,
        SessionClosed,
        SessionError,
        SessionLost,
        UsageError,
    )
    from onnxmem.estimate import Estimate, Question, estimate
    from onnxmem.measure.measure import measure
    from onnxmem.measure.measurement import Measurement
    from onnxmem.measure.release import release
    from onnxmem.model.model import Model
    from onnxmem.pack import pack, repack
    from onnxmem.plan.plan import Plan
    from onnxmem.plan.problem import Buffer, Problem
    from onnxmem.plan.strategies import STRATEGIES, solve
    from onnxmem.plan.table import read_plan, read_problem, write_plan, write_problem
    from onnxmem.plan.validate import validate
    from onnxmem.report.build import make_report
    from onnxmem.report.report import Report
    from onnxmem.report.save import save_report
    from onnxmem.runtime.arena import Arena
    from onnxmem.runtime.isolated import IsolatedSession
    from onnxmem.runtime.package import Package, verify
    from onnxmem.runtime.session import InferenceSession
    from onnxmem.share import Sharing, share
    from onnxmem.track import track_onnx_runtime_memory_release
    from onnxmem.unknown import Unknown

_HOME = {
    "Arena": "runtime.arena",
    "BudgetExceeded": "errors",
    "Buffer": "plan.problem",
    "Estimate": "estimate",
    "InferenceSession": "runtime.session",
    "IsolatedSession": "runtime.isolated",
    "Measurement": "measure.measurement",
    "Model": "model.model",
    "ModelError": "errors",
    "OnnxmemError": "errors",
    "Package": "runtime.package",
    "Plan": "plan.plan",
    "PlanError": "errors",
    "Problem": "plan.problem",
    "Question": "estimate",
    "Report": "report.report",
    "RuntimeUnsupported": "errors",
    "STRATEGIES": "plan.strategies",
    "SessionClosed": "errors",
    "SessionError": "errors",
    "SessionLost": "errors",
    "Sharing": "share",
    "Unknown": "unknown",
    "UsageError": "errors",
    "compare": "compare.compare",
    "convert": "convert",
    "demonstrate_actual_onnx_memory_release": "demonstrate",
    "estimate": "estimate",
    "load_best": "compare.best",
    "make_report": "report.build",
    "measure": "measure.measure",
    "pack": "pack",
    "read_plan": "plan.table",
    "read_problem": "plan.table",
    "release": "measure.release",
    "repack": "pack",
    "save_report": "report.save",
    "share": "share",
    "solve": "plan.strategies",
    "track_onnx_runtime_memory_release": "track",
    "validate": "plan.validate",
    "verify": "runtime.package",
    "write_plan": "plan.table",
    "write_problem": "plan.table",
}

__all__ = [
    "STRATEGIES",
    "Arena",
    "BudgetExceeded",
    "Buffer",
    "Estimate",
    "InferenceSession",
    "IsolatedSession",
    "Measurement",
    "Model",
    "ModelError",
    "OnnxmemError",
    "Package",
    "Plan",
    "PlanError",
    "Problem",
    "Question",
    "Report",
    "RuntimeUnsupported",
    "SessionClosed",
    "SessionError",
    "SessionLost",
    "Sharing",
    "Unknown",
    "UsageError",
    "compare",
    "convert",
    "demonstrate_actual_onnx_memory_release",
    "estimate",
    "load_best",
    "make_report",
    "measure",
    "pack",
    "read_plan",
    "read_problem",
    "release",
    "repack",
    "save_report",
    "share",
    "solve",
    "track_onnx_runtime_memory_release",
    "validate",
    "verify",
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
