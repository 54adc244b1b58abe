"""How much memory will a cell take, roughly and soon? A cluster is asked for so much before the cell is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from onnxmem.errors import OnnxmemError
from onnxmem.measurement.device import HOST
from onnxmem.prediction.predict import MODES, predict
from onnxmem.sweeping.cell import Cell

_MIB = 2**20
_ITSELF = 128 * _MIB
"""What a worker takes, whatever it does."""
_CUDA = 2048 * _MIB
"""What CUDA and its libraries take of the host's memory."""
_MARGIN = 1.25
_SECONDS = 5.0
"""The longest that one prediction may take; without one, a model counts as three times its files."""

OnModel = Callable[[str], None]


def memory_needs(cells: Iterable[Cell], room: int, on_model: OnModel | None = None) -> dict[str, int]:
    """Bytes by the cells' questions. `on_model` is called with the name of each model before it is looked at.

    Predicting takes a while: a model is predicted at its largest size, and only where that has no `room` in every
    place at each of the others, too.
    """
    models: dict[str, list[Cell]] = {}
    for cell in cells:
        models.setdefault(cell.sha256, []).append(cell)
    found: dict[str, int] = {}
    for group in models.values():
        if on_model:
            on_model(group[0].name)
        most = memory_need(max(group, key=_elements))
        for cell in group:
            found[cell.question] = most if most <= room else memory_need(cell)
    return found


def memory_need(cell: Cell) -> int:
    """What it will take, its worker with it, in bytes."""
    files = sum(file.stat().st_size for file in cell.files)
    if not cell.stage.runs:
        return _ITSELF + files
    settings = cell.settings
    process = max((_predicted(cell, mode) for mode in cell.mode.split(",")), default=0) or 3 * files + _ITSELF
    process = round(process * _MARGIN) + (0 if settings.device == HOST else _CUDA)
    if settings.memory_limit is not None:
        process = min(process, settings.memory_limit)
    # The worker reads the model, too, to see what it is to be fed.
    return _ITSELF + 2 * files + process * (max(settings.workers) if cell.verb == "share" else 1)


def _predicted(cell: Cell, mode: str) -> int:
    """The peak of a process; 0 where it cannot be told."""
    try:
        return predict(
            cell.model,
            mode=mode if mode in MODES else "stock",
            shapes=cell.shapes,
            threads=cell.settings.threads,
            time_limit=_SECONDS,
        ).peak
    except (OnnxmemError, OSError, MemoryError):
        return 0


def _elements(cell: Cell) -> int:
    return sum(prod(shape) for shape in cell.shapes.values())
