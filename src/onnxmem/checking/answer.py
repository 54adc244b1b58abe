"""How much does it take? And if that is too much: what takes it, and in which mode would it fit?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from onnxmem.checking.case import Case, Prepared
from onnxmem.checking.checked import Checked, Remedy
from onnxmem.deadline import Deadline
from onnxmem.errors import OnnxmemError
from onnxmem.history.figures_of import measured, predicted
from onnxmem.measurement.measure import measure
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.parts import parts_of
from onnxmem.measurement.scenario import Scenario
from onnxmem.prediction.predict import predict
from onnxmem.prediction.prediction import Prediction
from onnxmem.progress import OnProgress, Progress
from onnxmem.session.modes import MODES
from onnxmem.units import format_count
from onnxmem.unknown import Bytes, Unknown, known

# Seconds: what is not known by then is said to be unknown.
_PREDICTING = 60.0


def answer(prepared: Prepared, deadline: Deadline, *, advice: bool, on_progress: OnProgress | None) -> Checked:
    """The figure of a case, without what it is compared with."""
    if prepared.case.by == "estimate":
        return _estimated(prepared, deadline, advice=advice)
    case = prepared.case
    measurement = _measure(case.scenario, deadline, repeat=case.repeat, on_progress=on_progress)
    checked = Checked(
        case=case,
        key=prepared.key,
        sha256=prepared.sha256,
        figures=measured(measurement),
        spread=_spread(measurement, case),
    )
    if not measurement.verdict.ok:
        return replace(checked, failure=str(measurement.verdict), hint=measurement.verdict.hint)
    if isinstance(checked.size, Unknown):
        return replace(checked, failure=f"its {case.about.label} is not known: {checked.size.reason}")
    if checked.fits is False and advice:
        if on_progress:
            on_progress(Progress("over the budget: asking why"))
        parts = _parts(measurement, deadline)

        def try_mode(mode: str) -> Bytes:
            again = _measure(replace(case.scenario, mode=mode), deadline, repeat=case.repeat)
            return case.about.of(measured(again))

        checked = replace(checked, parts=parts, remedies=_remedies(case, deadline, on_progress, try_mode))
    return checked


def _estimated(prepared: Prepared, deadline: Deadline, *, advice: bool) -> Checked:
    """The same without running anything."""
    case = prepared.case
    prediction = _predict(prepared, case.scenario.mode, deadline)
    checked = Checked(case=case, key=prepared.key, sha256=prepared.sha256, figures=predicted(prediction))
    if prediction.unknown_tensors:
        count = format_count(len(prediction.unknown_tensors), "tensor")
        checked = replace(checked, notes=(f"Not in the estimate: {count} of unknown size.",))
    if checked.fits is False and advice:
        parts = {part.name: part.bytes for part in prediction.parts}

        def try_mode(mode: str) -> Bytes:
            return case.about.of(predicted(_predict(prepared, mode, deadline)))

        checked = replace(checked, parts=parts, remedies=_remedies(case, deadline, None, try_mode))
    return checked


def _predict(prepared: Prepared, mode: str, deadline: Deadline) -> Prediction:
    scenario = prepared.case.scenario
    limit = min(deadline.share(1.0), _PREDICTING)
    return predict(scenario.model, mode=mode, shapes=prepared.key.shapes, threads=scenario.threads, time_limit=limit)


def _measure(scenario: Scenario, deadline: Deadline, *, nodes: bool = False, **more: Any) -> Measurement:
    """Measure it in what is left of the time."""
    given = {each.name: getattr(scenario, each.name) for each in fields(scenario)}
    return measure(**{**given, "time_limit": deadline.share(1.0)}, nodes=nodes, **more)


def _spread(measurement: Measurement, case: Case) -> tuple[int, int] | None:
    each = (case.about.of(measured(replace(measurement, trials=(trial,)))) for trial in measurement.trials)
    sizes = known(each)
    return (min(sizes), max(sizes)) if len(sizes) > 1 else None


def _parts(measurement: Measurement, deadline: Deadline) -> Mapping[str, int]:
    """What the peak is made of. Which of the heap are weights only the profiler knows, so it runs once more with it."""
    if deadline.passed:
        return {}
    again = _measure(replace(measurement.scenario, runs=1), deadline, nodes=True)
    found = parts_of(replace(measurement, runtime=again.runtime).document()) or {}
    return {name: size for name, size in found.items() if size}


def _remedies(
    case: Case, deadline: Deadline, on_progress: OnProgress | None, try_mode: Callable[[str], Bytes]
) -> tuple[Remedy, ...]:
    """Other modes that read the same file, in the order of what they ask of the user, until it fits in one."""
    assert case.budget is not None
    tried: list[Remedy] = []
    names = [mode.name for mode in MODES if mode.form == "any"]
    later = names[names.index(case.scenario.mode) + 1 :] if case.scenario.mode in names else ()
    for mode in later:
        if deadline.passed:
            break
        if on_progress:
            on_progress(Progress(f"over the budget: trying mode {mode}"))
        try:
            size = try_mode(mode)
        except OnnxmemError:
            continue
        if isinstance(size, int):
            tried.append(Remedy(mode=mode, size=size, fits=size <= case.budget))
            if tried[-1].fits:
                break
    return tuple(tried)
