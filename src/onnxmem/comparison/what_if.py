"""What would a change to the best candidate save? Another mode is tried, another order is estimated."""

from __future__ import annotations

from onnxmem.comparison.advice import ESTIMATED, MEASURED, WhatIf
from onnxmem.comparison.figure import Figure
from onnxmem.comparison.result import CandidateResult
from onnxmem.comparison.sizes import Size, feeds_for
from onnxmem.comparison.trials import CandidateTrials, Schedule
from onnxmem.errors import OnnxmemError
from onnxmem.model.model import Model
from onnxmem.schedule.scheduled import Question, schedule

_MODE = "planned"
_SEARCH = 2.0


def try_mode(trials: CandidateTrials, result: CandidateResult, size: Size, schedule: Schedule) -> list[WhatIf]:
    """One more trial of a stock candidate, in the mode that works with any file."""
    candidate, before = trials.candidate, result.at[-1].peak
    if candidate.mode != "stock" or trials.signature is None:
        return []
    try:
        trial = schedule.try_once(trials, size, mode=_MODE)
    except OnnxmemError:
        return []
    after = trial.highest
    if not trial.verdict.ok or not isinstance(after, int) or not isinstance(before, Figure):
        return []
    return [WhatIf("mode", f"Load it in mode {_MODE} ({candidate.name}+{_MODE})", round(before.low - after), MEASURED)]


def try_order(trials: CandidateTrials, size: Size) -> list[WhatIf]:
    """What another execution order would save: the bytes alive at the peak, before and after."""
    path = trials.candidate.path
    if trials.signature is None or path is None or path.suffix != ".onnx":
        return []
    shapes = {name: array.shape for name, array in feeds_for(trials.signature, size.arrays).items()}
    try:
        model = Model.open(path)
        peaks = []
        for order in ("ort-default", "best"):
            question = Question(shapes=shapes, order=order, time_limit=_SEARCH)
            peaks.append(schedule(model, question).problem.peak_step[1])
    except OnnxmemError:
        return []  # advice is extra: that a model cannot be estimated is no reason not to compare it
    return [
        WhatIf("order", "Run its nodes in the best order (onnxmem pack --order best)", peaks[0] - peaks[1], ESTIMATED)
    ]
