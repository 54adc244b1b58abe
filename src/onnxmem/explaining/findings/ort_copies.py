"""An .ort file that is not mapped is read into the heap, and its weights are copied from there."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown


def find(explained: Explained) -> Finding | None:
    """What loading takes beyond the file, mapped once, and the packed weights."""
    grown, packed = explained.measurement.load_growth, explained.measurement.runtime.packed
    if explained.loaded_as != "ort" or isinstance(grown, Unknown):
        return None
    size = explained.measurement.file_bytes
    copies = size if isinstance(packed, Unknown) else packed
    return Finding(
        rule="ort_copies",
        what="copies of an .ort file",
        evidence=f"Loading took {format_bytes(grown)} for a file of {format_bytes(size)}: it is read into the heap, "
        "and its weights are copied from there.",
        advice="Map it",
        saving=grown - size - copies,
        command=explained.in_mode("ort-mapped-packed"),
    )
