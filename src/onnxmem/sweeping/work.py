"""One cell, worked out in this process: the verb is asked, and whatever comes of it is an outcome."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onnxmem.comparison.compare import compare
from onnxmem.comparison.result import Figure
from onnxmem.errors import OnnxmemError
from onnxmem.estimation.estimate import estimate
from onnxmem.estimation.planning import plan
from onnxmem.history.figures_of import measured, predicted
from onnxmem.measurement.device import HOST
from onnxmem.measurement.measure import measure
from onnxmem.prediction.on_device import OnDevice
from onnxmem.releasing.ladder import release_ladder
from onnxmem.sharing.share import share
from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.outcome import FULL, REASONS, REFUSED, Outcome, failure
from onnxmem.sweeping.place import this_processor
from onnxmem.unknown import Bytes, Unknown, known


def work_out(cell: Cell) -> Outcome:
    """The outcome of a cell. Never raises."""
    began = time.monotonic()
    try:
        outcome = _ASK[cell.verb](cell)
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
    processor = this_processor(cell.settings.device)
    return replace(outcome, seconds=time.monotonic() - began, node=platform.node(), processor=processor)


def _reason(message: str) -> str:
    """Errors of verbs that have no verdict of their own end in one."""
    return next((reason for kind, reason in REASONS.items() if f": {kind}" in message), REFUSED)


def _fed(cell: Cell) -> dict[str, Any]:
    settings = cell.settings
    # Arrays have shapes of their own.
    fed = {"shapes": cell.shapes} if cell.inputs is None else {"inputs": cell.inputs}
    return {
        **fed,
        "ranges": settings.ranges,
        "seed": settings.seed,
        "threads": settings.threads,
        "time_limit": cell.limit,
        "runs": settings.runs,
    }


def _configured(cell: Cell) -> dict[str, Any]:
    return {**_fed(cell), "options": cell.settings.options, "config": cell.settings.config}


def _estimate(cell: Cell) -> Outcome:
    settings = cell.settings
    result = estimate(
        cell.model, shapes=cell.shapes, threads=settings.threads, time_limit=cell.limit, device=settings.device
    )
    if result.device is not None:
        return Outcome(size=_on_device(result.device, cell.mode), result=result.document())
    if isinstance(result.processes, Unknown):
        return Outcome(size=result.processes, result=result.document())
    forecast = next((each for each in result.processes if each.mode == cell.mode), None)
    if forecast is None:
        return Outcome(size=Unknown(f"there is no forecast for mode '{cell.mode}'"), result=result.document())
    figures = predicted(forecast)
    return Outcome(size=figures.peak, figures=figures, result=result.document())


def _on_device(found: OnDevice | Unknown, mode: str) -> Bytes:
    if isinstance(found, Unknown):
        return found
    return next((each.most for each in found.modes if each.mode == mode), Unknown(f"there is no forecast for '{mode}'"))


def _plan(cell: Cell) -> Outcome:
    result = plan(cell.model, shapes=cell.shapes, time_limit=cell.limit, seed=cell.settings.seed)
    return Outcome(size=result.peak_bytes, result=result.document())


def _measure(cell: Cell) -> Outcome:
    settings = cell.settings
    result = measure(
        cell.model,
        mode=cell.mode,
        repeat=settings.repeat,
        memory_limit=settings.memory_limit,
        device=settings.device,
        nodes=False,
        **_configured(cell),
    )
    # A timeline is as large as all the rest, and a picture of one cell among thousands.
    document = replace(result, timeline=()).document()
    if not result.verdict.ok:
        return failure(REASONS.get(result.verdict.kind, REFUSED), str(result.verdict), result=document)
    figures = measured(result)
    size = figures.peak if result.device is None else _most(trial.device_highest for trial in result.trials)
    return Outcome(size=size, latency=figures.latency, figures=figures, result=document)


def _most(sizes: Iterable[Bytes]) -> Bytes:
    return max(known(sizes), default=Unknown("nothing was seen on the device"))


def _release(cell: Cell) -> Outcome:
    settings = cell.settings
    result = release_ladder(
        cell.model, mode=cell.mode, memory_limit=settings.memory_limit, device=settings.device, **_configured(cell)
    )
    left = result.steps[-2].device if len(result.steps) > 1 else None  # the last step is the end of the process
    return Outcome(size=result.remaining if left is None else left, result=result.document())


def _share(cell: Cell) -> Outcome:
    settings = cell.settings
    result = share(cell.model, settings.workers, (cell.mode,), cold=False, device=settings.device, **_configured(cell))
    failed = next((text for group in result.groups for text in group.failures), None)
    if failed is not None:
        return failure(_reason(f": {failed}"), failed, result=result.document())
    most = max(result.modes, key=lambda each: each.workers)
    return Outcome(
        size=most.total_pss if most.total_device is None else most.total_device,
        latency=most.latency,
        result=result.document(),
    )


def _compare(cell: Cell) -> Outcome:
    settings = cell.settings
    candidates = [str(cell.model) if mode == "stock" else f"{cell.model}+{mode}" for mode in cell.mode.split(",")]
    result = compare(
        candidates,
        repeat=settings.repeat,
        memory_limit=settings.memory_limit,
        device=settings.device,
        advice=False,
        **_fed(cell),
    )
    wrong = next((each for each in result.candidates if not each.ok), None)
    if wrong is not None:
        message = f"{wrong.name}: {wrong.why_not}"
        return failure(_reason(message), message, result=result.document())
    on_device = settings.device != HOST
    peaks = [at.device_peak if on_device else at.peak for each in result.candidates for at in each.at]
    least = min((int(each.median) for each in peaks if isinstance(each, Figure)), default=Unknown("no peak is known"))
    return Outcome(size=least, result=result.document())


_ASK = {
    "estimate": _estimate,
    "plan": _plan,
    "measure": _measure,
    "release": _release,
    "share": _share,
    "compare": _compare,
}
