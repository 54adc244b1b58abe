"""Operators that work element by element, and the few that need room for it."""

from __future__ import annotations

from itertools import zip_longest

from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch, elements, taking


def where(kernel: Kernel) -> Scratch:
    """Where and QLinearWhere: what is chosen from either side, before there is an output."""
    other = 2 if kernel.node.op_type == "Where" else 4
    condition = kernel.input(0)
    sides = [elements(broadcast(condition, kernel.input(place))) * kernel.width(place) for place in (1, other)]
    return Scratch(tuple(size for size in sides if size), before=sum(size > 0 for size in sides))


def of_many(kernel: Kernel) -> Scratch:
    """Max, Min, Sum and Mean of more than two: what is done so far, before there is an output."""
    shape = kernel.input(0)
    steps: list[int] = []
    for place in range(1, len(kernel.node.inputs) - 1):
        shape = broadcast(shape, kernel.input(place))
        steps.append(elements(shape) * kernel.width(0))
        if place > 1:
            steps.append(1 - place)
    return Scratch(tuple(steps), before=len(steps)) if elements(kernel.output()) else NOTHING


def biased_gelu(kernel: Kernel) -> Scratch:
    """BiasGelu, and FastGelu with a bias."""
    return taking([kernel.width(0) * elements(kernel.output())] if kernel.has_input(1) else [])


def softmax(kernel: Kernel) -> Scratch:
    """Softmax and its like along another axis than the last: input and output with that axis last."""
    shape = kernel.input(0)
    since: int = kernel.attribute("opset", kernel.opset)
    # Before opset 13 the axis began a matrix, and there was nothing to turn.
    if since < 13 or kernel.attribute("axis", -1) % max(len(shape), 1) == len(shape) - 1:
        return NOTHING
    return taking([kernel.width(0) * elements(shape)] * 2)


def broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of two together."""
    pairs = zip_longest(reversed(one), reversed(other), fillvalue=1)
    return tuple(b if a == 1 else a for a, b in pairs)[::-1]
