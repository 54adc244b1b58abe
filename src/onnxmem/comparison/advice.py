"""What follows from the numbers? How large a container, how many workers, and what to change first.

What a change to the best candidate would save is tried for another mode, and estimated for another order.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxmem.commands import path_word
from onnxmem.comparison.fits import Fit
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import CandidateResult, Figure
from onnxmem.comparison.rows import PEAK, Row
from onnxmem.comparison.sizes import Size, feeds_for
from onnxmem.comparison.trials import CandidateTrials, Schedule
from onnxmem.documents import Record, stored
from onnxmem.errors import OnnxmemError
from onnxmem.model.model import Model
from onnxmem.schedule.scheduled import Question, schedule
from onnxmem.units import format_bytes, format_percent

HEADROOM = 0.5
MEASURED, ESTIMATED = "measured", "estimated"
_MIB, _GIB = 2**20, 2**30
# Below this a change is not worth anyone's time.
_WORTH = 0.03
_MOST = 3
_MODE = "planned"
_SEARCH = 2.0


@dataclass(frozen=True, kw_only=True)
class Advice(Record):
    """One sentence, and the numbers behind it."""

    topic: str
    """container, workers, candidate, mode, external data, order, batch, or little: what is not worth it."""
    text: str
    candidate: str
    basis: str = MEASURED
    saving: int | None = stored("saving_bytes", default=None)
    """Bytes of peak RSS."""
    figures: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """A change that was tried on the best candidate, or estimated for it."""

    topic: str
    what: str
    saving: int
    basis: str


def advise(
    candidates: Sequence[CandidateResult],
    parity: Parity,
    rows: Sequence[Row],
    fits: Sequence[Fit],
    what_ifs: Iterable[WhatIf],
    *,
    headroom: float = HEADROOM,
) -> tuple[Advice, ...]:
    """All that can be said: first what to provide, then what to change, the largest saving first."""
    best = smallest(candidates, parity)
    if best is None:
        return ()
    changes = [*_loading(best), *_batch(best, fits), *(_tried(best, each) for each in what_ifs)]
    worth = [change for change in changes if (change.saving or 0) > _WORTH * best.peak]
    little = [change for change in changes if change not in worth]
    worth += _others(best, rows)
    worth.sort(key=lambda change: -(change.saving or 0))
    return (_container(best, headroom), _workers(best), *worth, *_little(best, little))


def smallest(candidates: Iterable[CandidateResult], parity: Parity) -> CandidateResult | None:
    """The one with the lowest peak at the largest size among those that finished and agree."""
    good = [each for each in candidates if each.ok and parity.agrees(each.name) and math.isfinite(each.peak)]
    return min(good, key=lambda each: each.peak, default=None)


def container_size(peak: float, headroom: float = HEADROOM) -> int:
    """The smallest container of a usual size: steps of 128 MiB to 1 GiB, 256 MiB to 4 GiB, then whole GiB."""
    wanted = peak * (1 + headroom)
    step = 128 * _MIB if wanted <= _GIB else 256 * _MIB if wanted <= 4 * _GIB else _GIB
    return math.ceil(wanted / step) * step


def _container(best: CandidateResult, headroom: float) -> Advice:
    last = best.at[-1]
    highest = last.peak.high if isinstance(last.peak, Figure) else best.peak
    size = max(container_size(best.peak, headroom), container_size(highest, 0))
    text = (
        f"A container of {format_bytes(size)} fits {best.name} at {last.size}: "
        f"peak RSS {format_bytes(best.peak)}, and {headroom:.0%} headroom."
    )
    figures: dict[str, int | float | str] = {
        "container_bytes": size,
        "headroom": headroom,
        "peak_rss_bytes": round(best.peak),
        "size": last.size,
    }
    return Advice(topic="container", text=text, candidate=best.name, figures=figures)


def _workers(best: CandidateResult) -> Advice:
    count = _GIB / best.peak
    fit = f"{math.floor(count)} workers fit" if count >= 2 else "1 worker fits" if count >= 1 else "No worker fits"
    text = (
        f"{fit} in each GiB at {best.at[-1].size}: each process has its own copy ({format_bytes(best.peak)} peak RSS)."
    )
    return Advice(topic="workers", text=text, candidate=best.name, figures={"workers_per_gib": count})


def _others(best: CandidateResult, rows: Sequence[Row]) -> list[Advice]:
    """What switching from each of the others saves, where the samples decide that it takes more."""
    row = next(row for row in rows if row.metric == PEAK and row.size == best.at[-1].size)
    advice = []
    for name in row.intervals:
        peak = row.values[name]
        if row.verdict is None or name in row.best or best.name not in row.best or peak is None:
            continue
        saving = round(peak - best.peak)
        less = f"{format_bytes(saving)} ({format_percent(saving / peak)}) less at the peak"
        text = f"Run {best.name} instead of {name}: {less}."
        advice.append(
            Advice(topic="candidate", text=text, candidate=best.name, saving=saving, figures={"instead_of": name})
        )
    return sorted(advice, key=lambda each: -(each.saving or 0))[:_MOST]


def _loading(best: CandidateResult) -> list[Advice]:
    """Where loading, not running, sets the peak, reading the weights from a map is what helps."""
    loading, loaded, runs = best.load_peak, best.total_rss, best.at[-1].run_growth
    if best.kind != "onnx" or not (isinstance(loading, Figure) and isinstance(loaded, Figure)):
        return []
    running = loaded.median + (runs.median if isinstance(runs, Figure) else 0)
    saving = round(loading.median - running)
    text = (
        f"The peak of {best.name} is reached while loading. With its weights in a file beside it (external data), "
        f"which is mapped and not parsed, up to {format_bytes(saving)} less (estimated)."
    )
    return [Advice(topic="external data", text=text, candidate=best.name, basis=ESTIMATED, saving=saving)]


def _batch(best: CandidateResult, fits: Sequence[Fit]) -> list[Advice]:
    """Halving a batch halves what grows with it."""
    at = best.at[-1]
    shape = next(iter(at.shapes.values()), ())
    if not shape or shape[0] < 2 or not isinstance(at.run_growth, Figure):
        return []
    fitted = next((fit for fit in fits if fit.candidate == best.name), None)
    saving = round(fitted(at.elements) - fitted(at.elements / 2) if fitted else at.run_growth.median / 2)
    text = (
        f"Half the batch ({shape[0] // 2} instead of {shape[0]}) takes about {format_bytes(saving)} less (estimated)."
    )
    return [Advice(topic="batch", text=text, candidate=best.name, basis=ESTIMATED, saving=saving)]


def _tried(best: CandidateResult, what_if: WhatIf) -> Advice:
    how = "measured once" if what_if.basis == MEASURED else "estimated"
    text = f"{what_if.what}: {format_bytes(what_if.saving)} less at the peak ({how})."
    return Advice(topic=what_if.topic, text=text, candidate=best.name, basis=what_if.basis, saving=what_if.saving)


def _little(best: CandidateResult, changes: Sequence[Advice]) -> list[Advice]:
    """What was looked at and is not worth a change: otherwise someone tries it."""
    if not changes:
        return []
    savings = {change.topic: max(0, change.saving or 0) for change in changes}
    listed = ", ".join(f"{topic} {format_bytes(saving)}" for topic, saving in savings.items())
    text = f"Not worth doing for {best.name} (each saves under {_WORTH:.0%} of the peak): {listed}."
    return [Advice(topic="little", text=text, candidate=best.name, basis=ESTIMATED, figures=savings)]


def try_mode(trials: CandidateTrials, result: CandidateResult, size: Size, turns: Schedule) -> list[WhatIf]:
    """One more trial of a stock candidate, in the mode that works with any file."""
    candidate, before = trials.candidate, result.at[-1].peak
    if candidate.mode != "stock" or trials.signature is None:
        return []
    try:
        trial = turns.try_once(trials, size, mode=_MODE)
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
    what = f"Run its nodes in the best order ({order_command(path, shapes)})"
    return [WhatIf("order", what, peaks[0] - peaks[1], ESTIMATED)]


def order_command(path: Path, shapes: Mapping[str, Sequence[int]]) -> str:
    """The command that makes a package in the best order for these shapes."""
    fed = (word for name, dims in shapes.items() for word in ("--shape", f"{name}={'x'.join(map(str, dims))}"))
    return shlex.join(["onnxmem", "pack", path_word(path), *fed, "--order", "best", "-o", "package"])
