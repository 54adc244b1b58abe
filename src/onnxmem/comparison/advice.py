"""What follows from the numbers? How large a container, how many workers, and what to change first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxmem.comparison.figure import Figure
from onnxmem.comparison.fits import Fit
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import Result
from onnxmem.units import format_bytes

HEADROOM = 0.5
MEASURED, ESTIMATED = "measured", "estimated"
_MIB, _GIB = 2**20, 2**30
# Below this a change is not worth anyone's time.
_WORTH = 0.03
_MOST = 3


@dataclass(frozen=True)
class Advice:
    """One sentence, and the numbers behind it."""

    topic: str
    """container, workers, candidate, mode, external data, order, batch, or little: what is not worth it."""
    text: str
    candidate: str
    basis: str
    saving: int | None = None
    """Bytes of peak RSS."""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "topic": self.topic,
            "text": self.text,
            "candidate": self.candidate,
            "basis": self.basis,
            "saving_bytes": self.saving,
            **self.figures,
        }


@dataclass(frozen=True)
class WhatIf:
    """A change that was tried on the best candidate, or estimated for it."""

    topic: str
    what: str
    saving: int
    basis: str


def advise(
    results: Sequence[Result],
    parity: Parity,
    fits: Sequence[Fit],
    what_ifs: Iterable[WhatIf],
    *,
    headroom: float = HEADROOM,
) -> tuple[Advice, ...]:
    """All that can be said: first what to provide, then what to change, the largest saving first."""
    good = [result for result in results if result.ok and parity.agrees(result.name)]
    peaks = {r.name: top.high for r in good if isinstance(top := r.at[-1].peak, Figure)}
    if not peaks:
        return ()
    best = min(good, key=lambda result: peaks.get(result.name, math.inf))
    peak = peaks[best.name]
    changes = [*_loading(best), *_batch(best, fits), *(_tried(best, each) for each in what_ifs)]
    worth = [change for change in changes if (change.saving or 0) > _WORTH * peak]
    little = [change for change in changes if change not in worth]
    worth += _candidates(best, peaks)
    worth.sort(key=lambda change: -(change.saving or 0))
    return (_container(best, peak, headroom), _workers(best, peak), *worth, *_little(best, little))


def container_size(peak: float, headroom: float = HEADROOM) -> int:
    """The smallest container of a usual size: steps of 128 MiB to 1 GiB, 256 MiB to 4 GiB, then whole GiB."""
    wanted = peak * (1 + headroom)
    step = 128 * _MIB if wanted <= _GIB else 256 * _MIB if wanted <= 4 * _GIB else _GIB
    return math.ceil(wanted / step) * step


def _container(best: Result, peak: float, headroom: float) -> Advice:
    size = container_size(peak, headroom)
    at = best.at[-1].size.label
    text = (
        f"A container of {format_bytes(size)} fits {best.name} at {at}: "
        f"peak RSS {format_bytes(peak)} and {headroom:.0%} head-room."
    )
    figures = {"container_bytes": size, "headroom": headroom, "peak_rss_bytes": round(peak), "size": at}
    return Advice("container", text, best.name, MEASURED, figures=figures)


def _workers(best: Result, peak: float) -> Advice:
    count = _GIB / peak
    many = f"{math.floor(count)} workers fit in each GiB" if count >= 2 else f"{count:.2g} workers fit in each GiB"
    text = f"{many} at {best.at[-1].size.label}, each a process with a copy of its own ({format_bytes(peak)} peak RSS)."
    return Advice("workers", text, best.name, MEASURED, figures={"workers_per_gib": count})


def _candidates(best: Result, peaks: Mapping[str, float]) -> list[Advice]:
    """What switching from each of the others saves."""
    found = []
    for name, peak in peaks.items():
        saving = round(peak - peaks[best.name])
        if name != best.name and saving > _WORTH * peak:
            ratio = peak / peaks[best.name]
            text = f"Run {best.name} rather than {name}: {format_bytes(saving)} less at the peak ({ratio:.2g} times)."
            found.append(Advice("candidate", text, best.name, MEASURED, saving, {"instead_of": name}))
    return sorted(found, key=lambda each: -(each.saving or 0))[:_MOST]


def _loading(best: Result) -> list[Advice]:
    """Where loading, not running, sets the peak, reading the weights from a map is what helps."""
    peak, loading, loaded = best.at[-1].peak, best.load_peak, best.total_rss
    if best.kind != "onnx" or not (
        isinstance(peak, Figure) and isinstance(loading, Figure) and isinstance(loaded, Figure)
    ):
        return []
    runs = best.at[-1].run_growth
    running = loaded.median + (runs.median if isinstance(runs, Figure) else 0)
    saving = round(loading.median - running)
    text = (
        f"The peak of {best.name} is reached while loading. With its weights in a file beside it (external data), "
        f"which is mapped and not parsed, up to {format_bytes(saving)} less (estimated)."
    )
    return [Advice("external data", text, best.name, ESTIMATED, saving)]


def _batch(best: Result, fits: Sequence[Fit]) -> list[Advice]:
    """Halving a batch halves what grows with it."""
    at = best.at[-1]
    shape = next(iter(at.size.shapes.values()), ())
    if not shape or shape[0] < 2 or not isinstance(at.run_growth, Figure):
        return []
    fitted = next((fit for fit in fits if fit.candidate == best.name), None)
    saving = (
        round(fitted(at.size.elements) - fitted(at.size.elements / 2)) if fitted else round(at.run_growth.median / 2)
    )
    text = (
        f"Half the batch ({shape[0] // 2} rather than {shape[0]}) takes about {format_bytes(saving)} less (estimated)."
    )
    return [Advice("batch", text, best.name, ESTIMATED, saving)]


def _tried(best: Result, what_if: WhatIf) -> Advice:
    how = "measured once" if what_if.basis == MEASURED else "estimated"
    text = f"{what_if.what}: {format_bytes(what_if.saving)} less at the peak ({how})."
    return Advice(what_if.topic, text, best.name, what_if.basis, what_if.saving)


def _little(best: Result, changes: Sequence[Advice]) -> list[Advice]:
    """What was looked at and is not worth a change: otherwise someone tries it."""
    if not changes:
        return []
    savings = {change.topic: max(0, change.saving or 0) for change in changes}
    listed = ", ".join(f"{topic} {format_bytes(saving)}" for topic, saving in savings.items())
    text = f"Not worth a change of {best.name}, less than {_WORTH:.0%} of the peak: {listed}."
    return [Advice("little", text, best.name, ESTIMATED, figures={"savings_bytes": savings})]
