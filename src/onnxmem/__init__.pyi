"""All public names, each with its home: type checkers read this file, and so does `__init__.py`."""

from onnxmem.checking.check import check as check
from onnxmem.checking.check import check_project as check_project
from onnxmem.checking.checking import Checking as Checking
from onnxmem.comparison.best import load_best as load_best
from onnxmem.comparison.compare import Comparison as Comparison
from onnxmem.comparison.compare import compare as compare
from onnxmem.errors import BudgetExceeded as BudgetExceeded
from onnxmem.errors import ExternalDataError as ExternalDataError
from onnxmem.errors import MissingDependency as MissingDependency
from onnxmem.errors import ModelError as ModelError
from onnxmem.errors import OnnxmemError as OnnxmemError
from onnxmem.errors import PlanError as PlanError
from onnxmem.errors import RuntimeUnsupported as RuntimeUnsupported
from onnxmem.errors import SessionClosed as SessionClosed
from onnxmem.errors import SessionError as SessionError
from onnxmem.errors import SessionLost as SessionLost
from onnxmem.errors import UsageError as UsageError
from onnxmem.estimation.estimate import Estimate as Estimate
from onnxmem.estimation.estimate import estimate as estimate
from onnxmem.estimation.planning import Planning as Planning
from onnxmem.estimation.planning import plan as plan
from onnxmem.explaining.explain import explain as explain
from onnxmem.explaining.explanation import Explanation as Explanation
from onnxmem.explaining.finding import Finding as Finding
from onnxmem.fitting.fit import fit as fit
from onnxmem.fitting.fitting import Fitting as Fitting
from onnxmem.history.history import History as History
from onnxmem.history.history import read_history as read_history
from onnxmem.measurement.measure import measure as measure
from onnxmem.measurement.measurement import Measurement as Measurement
from onnxmem.measurement.tracing import Tracing as Tracing
from onnxmem.measurement.tracing import trace as trace
from onnxmem.model.model import Model as Model
from onnxmem.packing.convert import Converted as Converted
from onnxmem.packing.convert import convert as convert
from onnxmem.packing.pack import pack as pack
from onnxmem.packing.pack import repack as repack
from onnxmem.packing.packed import Packed as Packed
from onnxmem.placement.plan import Plan as Plan
from onnxmem.placement.problem import Buffer as Buffer
from onnxmem.placement.problem import Problem as Problem
from onnxmem.placement.strategies import STRATEGIES as STRATEGIES
from onnxmem.placement.strategies import solve as solve
from onnxmem.placement.table import read_plan as read_plan
from onnxmem.placement.table import read_problem as read_problem
from onnxmem.placement.table import write_plan as write_plan
from onnxmem.placement.table import write_problem as write_problem
from onnxmem.placement.validate import validate_plan as validate_plan
from onnxmem.prediction.predict import predict as predict
from onnxmem.prediction.prediction import Forecast as Forecast
from onnxmem.prediction.prediction import Prediction as Prediction
from onnxmem.releasing.demonstrate import Demonstration as Demonstration
from onnxmem.releasing.demonstrate import (
    demonstrate_actual_onnx_memory_release as demonstrate_actual_onnx_memory_release,
)
from onnxmem.releasing.ladder import Ladder as Ladder
from onnxmem.releasing.ladder import release_ladder as release_ladder
from onnxmem.releasing.release import Released as Released
from onnxmem.releasing.release import release as release
from onnxmem.releasing.track import Tracking as Tracking
from onnxmem.releasing.track import track_onnx_runtime_memory_release as track_onnx_runtime_memory_release
from onnxmem.report.build import make_report as make_report
from onnxmem.report.build import read_report as read_report
from onnxmem.report.report import Report as Report
from onnxmem.report.save import save_report as save_report
from onnxmem.schedule.scheduled import Question as Question
from onnxmem.session.isolated.session import IsolatedSession as IsolatedSession
from onnxmem.session.package import Package as Package
from onnxmem.session.package import verify_package as verify_package
from onnxmem.session.planned.arena import Arena as Arena
from onnxmem.session.planned.trace import Trace as Trace
from onnxmem.session.planning import PlanningOptions as PlanningOptions
from onnxmem.session.session import InferenceSession as InferenceSession
from onnxmem.sharing.share import share as share
from onnxmem.sharing.sharing import Sharing as Sharing
from onnxmem.sweeping.read import read_sweep as read_sweep
from onnxmem.sweeping.sweep import sweep as sweep
from onnxmem.sweeping.sweep_result import Sweep as Sweep
from onnxmem.unknown import Unknown as Unknown

__all__: tuple[str, ...]
__version__: str
