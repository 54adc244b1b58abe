"""What does computing a model piece by piece let in, where no mode does? Its process, with the graph that is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxmem.deadline import Deadline
from onnxmem.estimation.tiling import tile_schedule
from onnxmem.fitting.fitting import ModeFit, TileFit
from onnxmem.fitting.search import Sizes, needed, together
from onnxmem.prediction.predict import Subject, forecast_mode
from onnxmem.rewriting.rewriting import EXTRA_WORK

_TRIED = (2.0, 1.5)
"""Times the largest size that fits; then the next one above that."""
_SECONDS = 10.0


def tiles_of(sizes: Sizes, modes: Sequence[ModeFit]) -> TileFit | None:
    """The largest of a few sizes above what modes let in that fits in pieces; None if none does, or all fit anyway."""
    if sizes.budget is None or sizes.unknown or any(mode.open_end for mode in modes):
        return None
    for index in _places(sizes, modes):
        if sizes.deadline.passed:
            break
        found = None if sizes.subject(index) is None else _tiled(sizes, index)
        if found is not None and found.needed <= sizes.budget:
            return found
    return None


def _places(sizes: Sizes, modes: Sequence[ModeFit]) -> list[int]:
    """Where to look, the largest first: each is a search."""
    axis, first = sizes.axis, sizes.first
    largest = max((mode.size for mode in modes if mode.size is not None), default=None)
    if largest is None:
        return [first]
    places = {(round(factor * largest) - axis.start) // axis.step for factor in _TRIED}
    above = (largest - axis.start) // axis.step + 1
    return sorted((p for p in {*places, above} if p >= above and (axis.last is None or p <= axis.last)), reverse=True)


def _tiled(sizes: Sizes, index: int) -> TileFit | None:
    size = sizes.axis.size(index)
    question = replace(sizes.question(sizes.axis.dims(size)), time_limit=_SECONDS)
    scheduled, tiling = tile_schedule(sizes.model, question, Deadline(_SECONDS), EXTRA_WORK)
    if not tiling.parts:
        return None
    subject = replace(Subject.of_scheduled(scheduled, question.level, sizes.threads), loaded_as="prepacked")
    forecast = forecast_mode(subject, "planned", sizes.environment)
    return TileFit(
        size=size,
        bytes=together(forecast, sizes.workers),
        needed=needed(forecast, sizes.workers),
        extra_work=tiling.extra_work,
        nodes=tiling.nodes - tiling.nodes_before,
    )
