"""Normalizations."""

from __future__ import annotations

from onnxmem.prediction.scratch.kernel import Kernel, Scratch, elements, taking


def local_response(kernel: Kernel) -> Scratch:
    """LRN: the sums for all images, and the squares of one with a border of channels."""
    data = kernel.input(0)
    size = kernel.attribute("size", 1)
    image = elements(data[2:])
    return taking([4 * elements(data), 4 * (data[1] + size - 1) * image])
