"""Models and inputs on their way to other nodes: put into the cluster once, and let go of after their last cell."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from onnxmem.sweeping.cell import Cell

_PIECE = 64 * 2**20
"""Files travel in pieces of so many bytes."""


class SentFiles:
    """The files of cells, by their hashes; `put` gives some bytes to the cluster, and returns what to fetch them by."""

    def __init__(self, put: Callable[[bytes], Any], cells: Iterable[Cell]) -> None:
        self._put, self._left = put, Counter(sha256 for cell in cells for sha256 in _files(cell))
        self._parts: dict[str, dict[str, list[Any]]] = {}

    def files(self, cell: Cell) -> dict[str, dict[str, list[Any]]]:
        """What a cell needs: files by their names beside the first of them, each in pieces."""
        for sha256, (beside, files) in _files(cell).items():
            if sha256 not in self._parts:
                self._parts[sha256] = {
                    os.path.relpath(file, beside): [self._put(piece) for piece in _pieces(file)] for file in files
                }
        return {sha256: self._parts[sha256] for sha256 in _files(cell)}

    def done(self, cell: Cell) -> None:
        """One less that needs them."""
        for sha256 in _files(cell):
            self._left[sha256] -= 1
            if not self._left[sha256]:
                self._parts.pop(sha256, None)


def _files(cell: Cell) -> dict[str, tuple[Path, Sequence[Path]]]:
    found: dict[str, tuple[Path, Sequence[Path]]] = {cell.sha256: (cell.model.parent, cell.files)}
    return found if cell.inputs is None else {**found, cell.inputs_sha256: (cell.inputs.parent, (cell.inputs,))}


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            yield piece
