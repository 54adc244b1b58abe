"""What models really take, kept in a folder so that nothing is measured twice.

STORE/cells/MODEL@SIZE@MODE@THREADS.json   one measurement each, without its timeline
STORE/index.json                           which cells there are, with their models and shapes
STORE/models, packages, feeds              what they were measured with
STORE/calibration.json                     what a process took by itself then, which changes with the system's cache
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from benchmarks.sized_models import SizedModel, locate, sizes
from onnxmem.errors import ModelError
from onnxmem.files import replacing, write_bytes
from onnxmem.measurement.measure import measure
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.protocol import INPUTS, LOAD
from onnxmem.measurement.protocol import RUNS as RUN_PHASES
from onnxmem.measurement.trial import Phase, Trial
from onnxmem.packing.pack import pack
from onnxmem.prediction.calibration import Calibration, calibration
from onnxmem.session.modes import find_mode
from onnxmem.unknown import Bytes, Unknown, known, subtract

MODES = ("stock", "tuned", "mapped", "prepacked", "planned", "external")
RUNS = 5


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One model at one size, loaded and run in one way."""

    sized: SizedModel
    mode: str
    threads: int

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.sized.key}@{self.sized.size}@{self.mode}@{self.threads}"


def cells(keys: Iterable[str], modes: Iterable[str], threads: Iterable[int]) -> Iterator[Cell]:
    """All that is to be measured: every size with one thread, the usual one with more, too."""
    modes, threads = tuple(modes), tuple(threads)
    for key in keys:
        for sized in sizes(key):
            for count in threads:
                for mode in modes:
                    if sized.usual or count == 1:
                        yield Cell(sized=sized, mode=mode, threads=count)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What a process took, in bytes: of several, the median of each figure."""

    before_load: int
    """Resident, with everything imported and the inputs read."""
    load_peak: int
    loaded: int
    run_growth: int
    """The peak in all runs, above what the loaded session takes."""
    peak: int
    """The highest over its whole life."""
    activations: int | None
    """The most that ONNX Runtime's allocator counted at once in runs, packed weights not included, if it was asked."""

    @classmethod
    def of(cls, measurement: Measurement) -> Self:
        """The figures of a measurement that went well."""
        if not measurement.verdict.ok:
            raise ModelError(f"the model does not run: {measurement.verdict}")
        each = [
            (
                _known(_phase(trial, INPUTS).reading.rss),
                _known(_phase(trial, LOAD).peak.rss),
                _known(_phase(trial, LOAD).reading.rss),
                _known(trial.growth(*RUN_PHASES)),
                _known(trial.highest),
            )
            for trial in measurement.trials
        ]
        before_load, load_peak, loaded, run_growth, peak = (
            statistics.median_low(column) for column in zip(*each, strict=True)
        )
        runtime = measurement.runtime
        return cls(
            before_load=before_load,
            load_peak=load_peak,
            loaded=loaded,
            run_growth=run_growth,
            peak=peak,
            activations=next(iter(known([subtract(runtime.arena_peak, runtime.packed)])), None),
        )


def _phase(trial: Trial, name: str) -> Phase:
    phase = trial.phase(name)
    if phase is None:
        raise ModelError(f"the phase '{name}' was not reached")
    return phase


def _known(value: Bytes) -> int:
    if isinstance(value, Unknown):
        raise ModelError(f"a figure could not be measured: {value.reason}")
    return value


class Store:
    """The folder with what has been measured."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("cells", "feeds", "models", "packages"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def model(self, key: str) -> Path:
        """The model's own file."""
        return locate(key, self.folder / "models")

    def calibration(self) -> Calibration:
        """What a process took by itself when the first cell was measured."""
        path = self.folder / "calibration.json"
        if not path.exists():
            write_bytes(path, json.dumps(calibration().document()).encode())
        return Calibration.from_document(json.loads(path.read_text()))

    def has(self, cell: Cell) -> bool:
        """Whether it was measured before."""
        return self._path(cell).exists()

    def measured(self, cell: Cell, repeat: int = 1) -> Truth:
        """What was measured before, in so many processes at least; those that are missing are measured now.

        One is not enough: ONNX Runtime does not do the same in every process.
        """
        found = self._found(cell)
        missing = repeat - (len(found.trials) if found else 0)
        if missing > 0 and (found is None or found.verdict.ok):
            more = self._measure(cell, missing, nodes=found is None)
            found = replace(found, trials=found.trials + more.trials) if found else more
            write_bytes(self._path(cell), json.dumps(found.document()).encode())
        assert found is not None
        return Truth.of(found)

    def write_index(self, all_cells: Iterable[Cell]) -> None:
        """List the cells, so that others can use the folder without this program."""
        listed = {
            cell.name: {
                "model": cell.sized.key,
                "path": str(self.model(cell.sized.key)),
                "measured_file": str(self._loaded(cell)),
                "size": cell.sized.size,
                "usual": cell.sized.usual,
                "shapes": cell.sized.shapes,
                "mode": cell.mode,
                "threads": cell.threads,
            }
            for cell in all_cells
        }
        path = self.folder / "index.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        write_bytes(path, json.dumps(known | listed, indent=1).encode())

    def feeds(self, sized: SizedModel) -> Path:
        """The inputs of that size, as a file."""
        path = self.folder / "feeds" / f"{sized.key}@{sized.size}.npz"
        if not path.exists():
            with replacing(path) as temporary:
                np.savez(temporary, **sized.feeds(self.model(sized.key)))
        return path

    def _path(self, cell: Cell) -> Path:
        return self.folder / "cells" / f"{cell.name}.json"

    def _found(self, cell: Cell) -> Measurement | None:
        return Measurement.from_document(json.loads(self._path(cell).read_text())) if self.has(cell) else None

    def _measure(self, cell: Cell, repeat: int, *, nodes: bool) -> Measurement:
        found = measure(
            self._package(cell) if _is_packed(cell) else self.model(cell.sized.key),
            inputs=self.feeds(cell.sized),
            mode=cell.mode,
            runs=RUNS,
            threads=cell.threads,
            repeat=repeat,
            # What the allocator counts is asked once per size: with one thread, and where nothing but tensors counts.
            nodes=nodes and cell.threads == 1 and cell.mode == "tuned",
        )
        return replace(found, timeline=())

    def _loaded(self, cell: Cell) -> Path:
        packages = self.folder / "packages"
        return packages / f"{cell.sized.key}@{cell.mode}" if _is_packed(cell) else self.model(cell.sized.key)

    def _package(self, cell: Cell) -> Path:
        """The model's package for that mode, made the first time, and checked with inputs of the usual size."""
        folder = self._loaded(cell)
        if not folder.exists():
            usual = next(sized for sized in sizes(cell.sized.key) if sized.usual)
            pack(self.model(cell.sized.key), folder, cell.mode, inputs=self.feeds(usual))
        return folder


def _is_packed(cell: Cell) -> bool:
    return find_mode(cell.mode).form != "any"
