"""Which axis of which tensor is the height of an image, and which nodes can be computed in parts along it?

Convolutions and pooling say which axis is which; from there it is followed through the graph, transposed and reshaped
tensors included. A tensor for which two ways lead to different axes has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from onnxmem.model.blocks import BLOCKED_DOMAIN
from onnxmem.rewriting.local import Local
from onnxmem.rewriting.rules import local
from onnxmem.rewriting.static import StaticGraph, StaticNode
from onnxmem.rewriting.windows import is_misjudged

_SAYING = frozenset({"Conv", "FusedConv", "MaxPool", "AveragePool", "ConvTranspose", "Resize", "Upsample"})
_ROUNDS = 8


@dataclass(frozen=True)
class Axes:
    """One dimension of images, followed through a graph."""

    seed: int
    """The axis it is where convolutions work: 2 for the height."""
    of: Mapping[str, int]
    """The axis of each tensor that has it."""
    nodes: tuple[Local | None, ...]
    """How each node is computed in parts along it; None for those that cannot be."""


def follow(graph: StaticGraph, seed: int) -> Axes:
    """All tensors that have this dimension, and all nodes that can be computed in parts along it."""
    of: dict[str, int] = {}
    spoiled: set[str] = set()

    def note(name: str, axis: int) -> bool:
        if name in spoiled:
            return False
        if of.setdefault(name, axis) != axis:
            spoiled.add(name)
            del of[name]
        return True

    for node in graph.nodes:
        if node.op_type in _SAYING or (node.domain == BLOCKED_DOMAIN and node.op_type == "ReorderInput"):
            for name in node.outputs[:1]:
                if len(graph.shape(name) or ()) > seed:
                    note(name, seed)
    found: list[Local | None] = [None] * len(graph.nodes)
    for _ in range(_ROUNDS):
        before = dict(of)
        for place, node in enumerate(graph.nodes):
            found[place] = _along(node, graph, of)
            for name, axis in _named(node, found[place], graph.weights):
                note(name, axis)
        if of == before:
            break
    doubted = misjudged(graph)
    kept = (
        each
        if doubted.isdisjoint(node.outputs)
        and all(of.get(name) == axis for name, axis in _named(node, each, graph.weights))
        else None
        for node, each in zip(graph.nodes, found, strict=True)
    )
    return Axes(seed, of, tuple(kept))


def misjudged(graph: StaticGraph) -> frozenset[str]:
    """Tensors of which ONNX Runtime believes another size than its kernels make, and all that is made of them.

    It only warns when a run shows that, but parts of such a tensor, some of them with sizes that are written down, it
    refuses to put together.
    """
    found: set[str] = set()
    for node in graph.nodes:
        if not found.isdisjoint(node.reads) or is_misjudged(node, graph):
            found.update(filter(None, node.outputs))
    return frozenset(found)


def _named(node: StaticNode, found: Local | None, weights: Collection[str]) -> Iterator[tuple[str, int]]:
    """The tensors around a node that is computed in parts, each with its axis; weights may be cut in any way."""
    if found is not None:
        yield from ((name, found.axis) for name in node.outputs if name)
        for name, window in zip(node.inputs, found.windows, strict=True):
            if window is not None and name and name not in weights:
                yield name, window.axis


def _along(node: StaticNode, graph: StaticGraph, of: Mapping[str, int]) -> Local | None:
    """How the node is computed in parts, the axis of an output or an input being known."""
    known = next((of[name] for name in node.outputs if name in of), None)
    if known is not None:
        return local(node, graph, known)
    if not any(name in of for name in node.inputs):
        return None
    for axis in range(len(graph.shape(node.first_output) or ())):
        found = local(node, graph, axis)
        if found is not None and any(
            window is not None and of.get(name) == window.axis
            for name, window in zip(node.inputs, found.windows, strict=True)
        ):
            return found
    return None
