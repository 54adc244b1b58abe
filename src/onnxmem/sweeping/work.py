"""One cell, worked out in this process: the verb is asked, and whatever comes of it is an outcome."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from onnxmem.comparison.compare import compare
from onnxmem.comparison.result import Figure
from onnxmem.environment import read_environment
from onnxmem.errors import OnnxmemError
from onnxmem.estimation.estimate import estimate
from onnxmem.estimation.planning import plan
from onnxmem.history.entry import machine
from onnxmem.history.figures_of import measured, predicted
from onnxmem.measurement.measure import measure
from onnxmem.releasing.ladder import release_ladder
from onnxmem.sharing.share import share
from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.outcome import FULL, REASONS, REFUSED, Outcome, failure
from onnxmem.unknown import Unknown


@cache
def this_processor() -> str:
    """The processor and the cores that cells have here: what a result depends on besides versions."""
    return machine(read_environment())


def work_out(cell: Cell, model: Path | None = None) -> Outcome:
    """The outcome of a cell; `model` is where the model lies here, if not where the cell says. Never raises."""
    began = time.monotonic()
    try:
        outcome = _ASK[cell.verb](cell, cell.model if model is None else model)
    except OnnxmemError as error:
        cause = error.__cause__
        full = isinstance(cause, OSError) and cause.errno in FULL
        outcome = failure(_reason(str(error)), str(error), no_room=full)
    except OSError as error:
        outcome = failure(REFUSED, f"{type(error).__name__}: {error}", no_room=error.errno in FULL)
    except MemoryError:
        outcome = failure(REASONS["out of memory"], "there was no memory left for the work")
    except Exception as error:
        outcome = failure(REFUSED, f"unexpected {type(error).__name__}: {error}")
    return replace(outcome, seconds=time.monotonic() - began, node=platform.node(), processor=this_processor())


def _reason(message: str) -> str:
    """Errors of verbs that have no verdict of their own end in one."""
    return next((reason for kind, reason in REASONS.items() if f": {kind}" in message), REFUSED)


def _fed(cell: Cell) -> dict[str, Any]:
    settings = cell.settings
    return {
        "shapes": cell.shapes,
        "ranges": settings.ranges,
        "seed": settings.seed,
        "threads": settings.threads,
        "time_limit": cell.limit,
    }


def _run(cell: Cell) -> dict[str, Any]:
    settings = cell.settings
    return {**_fed(cell), "runs": settings.runs, "options": settings.options, "config": settings.config}


def _estimate(cell: Cell, model: Path) -> Outcome:
    result = estimate(model, shapes=cell.shapes, threads=cell.settings.threads, time_limit=cell.limit)
    if isinstance(result.processes, Unknown):
        return Outcome(size=result.processes, result=result.document())
    forecast = next((each for each in result.processes if each.mode == cell.mode), None)
    if forecast is None:
        return Outcome(size=Unknown(f"there is no forecast for mode '{cell.mode}'"), result=result.document())
    figures = predicted(forecast)
    return Outcome(size=figures.peak, figures=figures, result=result.document())


def _plan(cell: Cell, model: Path) -> Outcome:
    result = plan(model, shapes=cell.shapes, time_limit=cell.limit, seed=cell.settings.seed)
    return Outcome(size=result.peak_bytes, result=result.document())


def _measure(cell: Cell, model: Path) -> Outcome:
    settings = cell.settings
    result = measure(
        model, mode=cell.mode, repeat=settings.repeat, memory_limit=settings.memory_limit, nodes=False, **_run(cell)
    )
    # A timeline is as large as all the rest, and a picture of one cell among thousands.
    document = replace(result, timeline=()).document()
    if not result.verdict.ok:
        return failure(REASONS.get(result.verdict.kind, REFUSED), str(result.verdict), result=document)
    figures = measured(result)
    return Outcome(size=figures.peak, latency=figures.latency, figures=figures, result=document)


def _release(cell: Cell, model: Path) -> Outcome:
    result = release_ladder(model, mode=cell.mode, memory_limit=cell.settings.memory_limit, **_run(cell))
    return Outcome(size=result.remaining, result=result.document())


def _share(cell: Cell, model: Path) -> Outcome:
    result = share(model, cell.settings.workers, (cell.mode,), cold=False, **_run(cell))
    failed = next((text for group in result.groups for text in group.failures), None)
    if failed is not None:
        return failure(_reason(f": {failed}"), failed, result=result.document())
    most = max(result.modes, key=lambda each: each.workers)
    return Outcome(size=most.total_pss, latency=most.latency, result=result.document())


def _compare(cell: Cell, model: Path) -> Outcome:
    settings = cell.settings
    candidates = [str(model) if mode == "stock" else f"{model}+{mode}" for mode in cell.mode.split(",")]
    given: dict[str, Any] = {**_fed(cell), "runs": settings.runs, "repeat": settings.repeat}
    result = compare(candidates, **given, memory_limit=settings.memory_limit, advice=False)
    wrong = next((each for each in result.candidates if not each.ok), None)
    if wrong is not None:
        message = f"{wrong.name}: {wrong.why_not}"
        return failure(_reason(message), message, result=result.document())
    peaks = [at.peak for each in result.candidates for at in each.at if isinstance(at.peak, Figure)]
    least = min((int(peak.median) for peak in peaks), default=Unknown("no peak is known"))
    return Outcome(size=least, result=result.document())


_ASK = {
    "estimate": _estimate,
    "plan": _plan,
    "measure": _measure,
    "release": _release,
    "share": _share,
    "compare": _compare,
}
