"""Normalizations."""

from __future__ import annotations

from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch, elements, taking


def local_response(kernel: Kernel) -> Scratch:
    """LRN: the sums for all images, and the squares of one with a border of channels."""
    data = kernel.input(0)
    size = kernel.attribute("size", 1)
    image = elements(data[2:])
    return taking([4 * elements(data), 4 * (data[1] + size - 1) * image])


def mean_variance(kernel: Kernel) -> Scratch:
    """MeanVarianceNormalization: channels first and back, unless all is one."""
    data = kernel.input(0)
    axes: list[int] = kernel.attribute("axes", [0, 2, 3])
    return taking([4 * elements(data)] * 2 if len(axes) < len(data) else [])


def layer(kernel: Kernel) -> Scratch:
    """LayerNormalization and its simplified forms: scale and bias of half floats widened, unless they are weights."""
    if kernel.width(0) == 4:
        return NOTHING
    return taking([4 * elements(kernel.input(place)) for place in (1, 2) if _computed(kernel, place)])


def skip_layer(kernel: Kernel) -> Scratch:
    """SkipLayerNormalization and its simplified form: half floats widened."""
    if kernel.width(0) == 4:
        return NOTHING
    simplified = kernel.node.op_type == "SkipSimplifiedLayerNormalization"
    weights = [place for place in ((2, 3) if simplified else (2, 3, 4)) if _computed(kernel, place)]
    size, skip = 4 * elements(kernel.input(0)), 4 * elements(kernel.input(1))
    widened = [] if kernel.is_constant(1) else [skip]
    sums = [size] if kernel.has_output(3) else []
    return taking([size, size, *sums, *widened, *(4 * elements(kernel.input(place)) for place in weights)])


def _computed(kernel: Kernel, place: int) -> bool:
    return kernel.has_input(place) and not kernel.is_constant(place)
