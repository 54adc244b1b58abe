"""Resize and Upsample: where each pixel comes from, and with which weights."""

from __future__ import annotations

import math

from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch, elements, taking


def resize(kernel: Kernel) -> Scratch:
    """Resize and Upsample."""
    mode = kernel.attribute("mode", "nearest")
    data, output = kernel.input(0), kernel.output()
    if mode == "nearest" or data == output or elements(output) == 0:
        return NOTHING
    axes = _axes(data, output)
    if kernel.attribute("antialias", 0) or (mode == "cubic" and axes[-1] != len(data) - 1):
        return taking(_filtered(data, output, axes, kernel, support=2 if mode == "cubic" else 1))
    if mode == "cubic":
        return NOTHING
    # Two places and two weights per pixel of each axis; in volumes the places are wider.
    return taking([(24 if len(axes) == 3 else 16) * sum(output[axis] for axis in axes)])


def _axes(data: tuple[int, ...], output: tuple[int, ...]) -> tuple[int, ...]:
    """Those of an image, or of a volume; channels may come last."""
    rank = len(data)
    if rank in (3, 5):
        return (rank - 3, rank - 2, rank - 1)
    last = rank == 4 and data[1] != output[1] and data[3] == output[3]
    return (1, 2) if last else (rank - 2, rank - 1)


def _filtered(
    data: tuple[int, ...], output: tuple[int, ...], axes: tuple[int, ...], kernel: Kernel, support: int
) -> list[int]:
    """Weights per axis, innermost first, and images between one axis and the next: of volumes first all, then one."""
    taken = []
    for axis in reversed(axes):
        reach = math.ceil(support * max(1.0, data[axis] / output[axis])) * 2 + 1
        taken.append(4 * output[axis] * reach)
    planes = kernel.width(0) * elements(data) // elements(data[axis] for axis in axes)
    batch = data[0] if len(data) > len(axes) else 1
    depth, width = elements(data[axis] for axis in axes[:-2]), output[axes[-1]]
    volumes = [planes * depth * output[axes[-2]] * width] if len(axes) == 3 else []
    return [*taken, *volumes, planes // batch * depth * data[axes[-2]] * width]
