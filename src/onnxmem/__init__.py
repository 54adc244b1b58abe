"""onnxmem: how much memory an ONNX model takes, why, and how to make it take less.

Names are imported when they are first used, so that `import onnxmem` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxmem.comparison.best import load_best
    from onnxmem.comparison.compare import compare
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
    from onnxmem.estimation.estimate import Estimate, estimate
    from onnxmem.measurement.measure import measure
    from onnxmem.measurement.measurement import Measurement
    from onnxmem.model.model import Model
    from onnxmem.packing.convert import convert
    from onnxmem.packing.pack import pack, repack
    from onnxmem.placement.plan import Plan
    from onnxmem.placement.problem import Buffer, Problem
    from onnxmem.placement.strategies import STRATEGIES, solve
    from onnxmem.placement.table import read_plan, read_problem, write_plan, write_problem
    from onnxmem.placement.validate import validate
    from onnxmem.releasing.demonstrate import demonstrate_actual_onnx_memory_release
    from onnxmem.releasing.release import release
    from onnxmem.releasing.track import track_onnx_runtime_memory_release
    from onnxmem.report.build import make_report
    from onnxmem.report.report import Report
    from onnxmem.report.save import save_report
    from onnxmem.schedule.scheduled import Question
    from onnxmem.session.isolated.session import IsolatedSession
    from onnxmem.session.package import Package, verify_package
    from onnxmem.session.planned.arena import Arena
    from onnxmem.session.session import InferenceSession
    from onnxmem.sharing.share import share
    from onnxmem.sharing.sharing import Sharing
    from onnxmem.unknown import Unknown

_HOME = {
    "Arena": "session.planned.arena",
    "BudgetExceeded": "errors",
    "Buffer": "placement.problem",
    "Estimate": "estimation.estimate",
    "InferenceSession": "session.session",
    "IsolatedSession": "session.isolated.session",
    "Measurement": "measurement.measurement",
    "Model": "model.model",
    "ModelError": "errors",
    "OnnxmemError": "errors",
    "Package": "session.package",
    "Plan": "placement.plan",
    "PlanError": "errors",
    "Problem": "placement.problem",
    "Question": "schedule.scheduled",
    "Report": "report.report",
    "RuntimeUnsupported": "errors",
    "STRATEGIES": "placement.strategies",
    "SessionClosed": "errors",
    "SessionError": "errors",
    "SessionLost": "errors",
    "Sharing": "sharing.sharing",
    "Unknown": "unknown",
    "UsageError": "errors",
    "compare": "comparison.compare",
    "convert": "packing.convert",
    "demonstrate_actual_onnx_memory_release": "releasing.demonstrate",
    "estimate": "estimation.estimate",
    "load_best": "comparison.best",
    "make_report": "report.build",
    "measure": "measurement.measure",
    "pack": "packing.pack",
    "read_plan": "placement.table",
    "read_problem": "placement.table",
    "release": "releasing.release",
    "repack": "packing.pack",
    "save_report": "report.save",
    "share": "sharing.share",
    "solve": "placement.strategies",
    "track_onnx_runtime_memory_release": "releasing.track",
    "validate": "placement.validate",
    "verify_package": "session.package",
    "write_plan": "placement.table",
    "write_problem": "placement.table",
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
    "verify_package",
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
