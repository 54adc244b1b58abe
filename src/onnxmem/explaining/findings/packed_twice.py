"""Weights that are mapped and then packed exist twice: in the file's pages, and in every process's heap."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """Private packed copies beside mapped weights."""
    packed = explained.part("packed copies")
    if explained.loaded_as != "external" or not packed:
        return None
    return Finding(
        rule="packed_twice",
        what="weights packed in every process",
        evidence=f"Kernels packed weights into {format_bytes(packed)} of private memory, although the file is mapped.",
        advice="Save the packed weights, too: all processes then map them",
        saving=packed,
        when="for each further process",
        command=explained.command("pack", "--mode", "prepacked", "-o", "package"),
    )
