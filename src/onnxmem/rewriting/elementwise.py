"""Operators that compute each element from those at the same place.

Only those are here whose kernels give an element the same bits wherever it stands: some compute the last few elements
of a buffer by another routine than the rest (Elu, Softplus, Log, Sin and others), so that parts come out different. Max
and Min do, too: of two zeros with different signs they take the first in one routine, and the second in the other.
`tests/unit/rewriting/test_elementwise.py` asks ONNX Runtime.
"""

from __future__ import annotations

from math import gcd, prod

from onnxmem.rewriting.local import Local, Window, rest
from onnxmem.rewriting.static import StaticGraph, StaticNode

_THREADS = 2
_ENOUGH_TO_SHARE = 16 * 1024
"""Elements, below which shares have a size of their own."""
UNARY = (
    *("Relu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "ThresholdedRelu", "Softsign", "HardSwish"),
    *("Erf", "Exp", "Sqrt", "Reciprocal", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Identity", "Cast", "Not"),
    *("Gelu", "QuickGelu"),
)
BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Mean", "PRelu", "Where"),
    *("And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
)


def unary(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """One tensor in, one of the same shape out; further inputs are numbers such as limits."""
    made = graph.shape(node.outputs[0])
    if made is None or graph.shape(node.inputs[0]) != made or axis >= len(made):
        return None
    return Local(axis, rest(node, Window(axis)))


def broadcasting(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Several tensors in; those of length one along the axis, or without it, are read whole."""
    made = graph.shape(node.outputs[0])
    if made is None:
        return None
    windows: list[Window | None] = []
    for name in node.inputs:
        shape = graph.shape(name)
        if shape is None:
            return None
        place = axis - (len(made) - len(shape))
        if place < 0 or shape[place] == 1:
            windows.append(None)
        elif shape[place] == made[axis]:
            windows.append(Window(place))
        else:
            return None
    # If all of them are read whole, each part would be all of it.
    return Local(axis, tuple(windows)) if any(windows) else None


def batch_normalization(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """A scale and a shift for each channel."""
    if axis == 1 or len([name for name in node.outputs if name]) > 1 or node.attribute("training_mode", 0):
        return None
    return unary(node, graph, axis)


def local_response(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """LRN: each element from its neighbours among the channels.

    It takes powers, four elements at a time and the last few one by one, which rounds differently. Each thread gets
    four shares of the elements: so there must be a multiple of four in each share of the whole, and of every part.
    """
    found = None if axis == 1 else unary(node, graph, axis)
    if found is None:
        return None
    shape, together = graph.tensors[node.outputs[0]].shape, 4 * 4 * max(graph.threads, _THREADS)
    row = prod(shape) // shape[axis]
    if prod(shape) % together or prod(shape) < _ENOUGH_TO_SHARE:
        return None
    return found._replace(least=-(-_ENOUGH_TO_SHARE // row), multiple=together // gcd(together, row))
