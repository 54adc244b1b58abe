"""Operators that only move elements: to other axes, into other shapes, together and apart."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from onnxmem.rewriting.local import Local, Window, rest
from onnxmem.rewriting.static import StaticGraph, StaticNode


def concat(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Tensors side by side along another axis."""
    made = graph.shape(node.outputs[0])
    if made is None or node.attribute("axis", 0) % len(made) == axis:
        return None
    return Local(axis, (Window(axis),) * len(node.inputs))


def split(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """A tensor taken apart along another axis."""
    made = graph.shape(node.outputs[0])
    if made is None or not all(node.outputs) or node.attribute("axis", 0) % len(made) == axis:
        return None
    return Local(axis, rest(node, Window(axis)))


def slicing(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """A tensor cut by numbers stored in the model; along the axis itself forwards only."""
    image, numbers = graph.shape(node.inputs[0]), slice_numbers(node, graph)
    if image is None or numbers is None or graph.shape(node.outputs[0]) is None:
        return None
    if axis not in numbers:
        return Local(axis, rest(node, Window(axis)))
    start, step = numbers[axis].start, numbers[axis].step
    if step < 1:
        return None
    return Local(axis, rest(node, Window(axis, step, 1, -start)))


class Cut(NamedTuple):
    """Which positions of an axis a Slice takes: `start`, and from there every `step`."""

    start: int
    step: int


def slice_numbers(node: StaticNode, graph: StaticGraph) -> dict[int, Cut] | None:
    """What a Slice takes, by axis, if that is stored in the model."""
    image = graph.tensors[node.inputs[0]].shape
    if len(node.inputs) == 1:  # numbers were attributes once
        starts, axes, steps = node.attribute("starts", ()), node.attribute("axes", None), None
    elif any(name not in graph.values for name in node.inputs[1:] if name):
        return None
    else:
        starts, _, axes, steps = (graph.values.get(name) for name in (*node.inputs[1:], "", "")[:4])
    if starts is None:
        return None
    found = {}
    for place, start in enumerate(starts):
        axis = (axes[place] if axes else place) % len(image)
        step = steps[place] if steps else 1
        found[axis] = Cut(min(max(start + image[axis] if start < 0 else start, 0), image[axis]), step)
    return found


def transpose(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Axes in another order."""
    made = graph.shape(node.outputs[0])
    if made is None:
        return None
    order = node.attribute("perm", list(reversed(range(len(made)))))
    return Local(axis, (Window(order[axis]),))


def reorder_input(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Into blocks of channels."""
    made = graph.shape(node.outputs[0])
    if made is None or axis < 2:
        return None
    return Local(axis, (Window(axis - 1 if node.attribute("channels_last", 0) else axis),))


def reorder_output(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Out of blocks of channels."""
    made = graph.shape(node.outputs[0])
    if made is None:
        return None
    if node.attribute("channels_last", 0):
        return Local(axis, (Window(axis + 1),)) if 1 <= axis < len(made) - 1 else None
    return Local(axis, (Window(axis),)) if axis >= 2 else None


def reshape(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Another shape in which rows lie one after another as before: Reshape, Squeeze, Unsqueeze, Flatten."""
    image, made = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if image is None or made is None or made[axis] < 2:
        return None
    if any(name not in graph.weights for name in node.inputs[1:] if name):
        return None
    before, length = prod(made[:axis]), made[axis]
    for place, rows in enumerate(image):
        if rows < 2 or prod(image[:place]) != before:
            continue
        if length % rows == 0:  # each row becomes a group of them, or stays one
            return Local(axis, rest(node, Window(place)), length // rows)
        if rows % length == 0:  # each group of rows becomes one
            return Local(axis, rest(node, Window(place, rows // length, rows // length)))
    return None


def padding(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """Pad, of other axes, by numbers stored in the model."""
    image, made = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if image is None or made is None or image[axis] != made[axis]:
        return None
    pads = node.attribute("pads", None) or graph.values.get((*node.inputs, "")[1])
    if pads is None or len(pads) != 2 * len(made) or pads[axis] or pads[axis + len(made)]:
        return None
    return Local(axis, rest(node, Window(axis)))
