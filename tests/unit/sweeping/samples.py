"""Cells of a sweep and what came of them, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxmem.history.figures import Figures
from onnxmem.sweeping.cell import Cell, Settings
from onnxmem.sweeping.outcome import Outcome
from onnxmem.sweeping.store import begin_sweep, finish
from onnxmem.unknown import Unknown

MIB = 2**20
HERE, ELSEWHERE = "a processor, 2 cores", "another processor, 8 cores"


def cell(**changes: Any) -> Cell:
    """A measurement of a model that is run stock."""
    given: dict[str, Any] = {
        "verb": "measure",
        "model": Path("net.onnx"),
        "files": (Path("net.onnx"),),
        "name": "net.onnx",
        "sha256": "ab" * 32,
        "mode": "stock",
        "size": "batch=1",
        "shapes": {"x": (1, 8)},
        "settings": Settings(),
        "onnxmem": "0.1.0",
        "onnxruntime": "1.24.0",
        **changes,
    }
    return Cell(**given)


def outcome(peak: int = 100 * MIB, latency: float = 0.01, **changes: Any) -> Outcome:
    """A finished one with this peak."""
    unknown = Unknown("nobody looked")
    figures = Figures(peak=peak, load_peak=peak, loaded=peak, run_growth=unknown, steady=peak, latency=latency)
    given: dict[str, Any] = {"size": peak, "latency": latency, "figures": figures, "result": {"schema": "x"}}
    return Outcome(**{**given, "seconds": 2.0, "node": "n1", "processor": HERE, **changes})


def begin(path: Path, *cells: Cell, **changes: Any) -> list[Any]:
    """Ask for these cells on one processor: those that are not finished."""
    given: dict[str, Any] = {"each": True, "engine": "embedded", "command": "sweep", "commit": None, "again": False}
    here = changes.pop("processors", (HERE,))
    return begin_sweep(path, cells, processors={cell.stage: here for cell in cells}, **{**given, **changes})


def swept(path: Path, *found: tuple[Cell, Outcome]) -> None:
    """A sweep that is done."""
    jobs = {job.cell.question: job for job in begin(path, *(cell for cell, _ in found))}
    for each, came in found:
        finish(path, jobs[each.question], came, None)
