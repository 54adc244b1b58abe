"""How do I get the ONNX twin of a PyTorch model? PyTorch's own exporter makes it, in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from onnxmem.comparison.candidate import Candidate
from onnxmem.comparison.sizes import Size
from onnxmem.errors import ModelError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.feeds import Feeds
from onnxmem.torch.exporting import ExportTask, export
from onnxmem.torch.model import SCRIPT

# As people call them, for the shapes that people mostly have.
_NAMES = {4: ("batch", "channels", "height", "width"), 2: ("batch", "sequence"), 3: ("batch", "sequence", "features")}


def twin_path(candidate: Candidate, folder: Path) -> Path:
    """Where the twin of a candidate is put."""
    stem = re.sub(r"\W+", "_", candidate.name.removesuffix(".pt2").replace(".py:", "_")).strip("_") or "model"
    return folder / f"{stem}.onnx"


def export_twin(candidate: Candidate, sizes: Sequence[Size], target: Path, *, timeout: float = 600.0) -> Candidate:
    """Write the ONNX file; dimensions in which the sizes differ stay open, and so does the batch where it is not 1."""
    if candidate.source is None or candidate.source.form == SCRIPT:
        raise ModelError(f"'{candidate.name}' cannot be exported", hint="only a module:factory and a .pt2 can")
    # A dimension of 1 is taken for a constant by the exporter: let it see one that is not, if there is one.
    size = next((each for each in sizes if _differing(sizes) and _visible(each, sizes)), sizes[-1])
    with temporary_folder() as folder:
        feeds = tuple(Feeds(size.arrays).save(folder))
        export(ExportTask(candidate.source, target, feeds, dimension_names(sizes)), candidate.name, timeout=timeout)
    return Candidate(target.name, "onnx", target)


def dimension_names(sizes: Sequence[Size]) -> dict[str, dict[str, str]]:
    """Names for the dimensions that stay open, by input and place: equal numbers that vary together are one."""
    varying = _differing(sizes)
    found: dict[str, dict[str, str]] = {name: {} for name in sizes[0].arrays}
    columns: dict[tuple[tuple[int, ...], str], str] = {}
    taken: set[str] = set()
    for name, place in varying:
        rank = len(sizes[0].shapes[name])
        usual = _NAMES.get(rank, ())
        word = usual[place] if place < len(usual) else f"dim_{place}"
        # The same dimension of two inputs (ids and mask) has one name; two dimensions of one input never share.
        key = (tuple(size.shapes[name][place] for size in sizes), word)
        if key not in columns:
            columns[key] = word if word not in taken else f"{name}_{place}"
            taken.add(columns[key])
        found[name][str(place)] = columns[key]
    return found


def _differing(sizes: Sequence[Size]) -> list[tuple[str, int]]:
    """Input and place of each dimension that is not the same at all sizes; with one size, all but 0 and channels."""
    found = []
    for name, shape in sizes[0].shapes.items():
        for place, number in enumerate(shape):
            open_anyway = len(sizes) == 1 and number > 1 and not (len(shape) == 4 and place == 1)
            if open_anyway or any(size.shapes[name][place] != number for size in sizes):
                found.append((name, place))
    return found


def _visible(size: Size, sizes: Sequence[Size]) -> bool:
    return all(size.shapes[name][place] > 1 for name, place in _differing(sizes))
