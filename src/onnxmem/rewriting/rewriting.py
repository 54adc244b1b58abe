"""What a rewriting is, and how it is applied to a model.

    graph = static_graph(model, shapes, optimized=False)
    found = search(graph, extra_work=EXTRA_WORK)    # in `search.py`
    rewritten = apply(proto, found)                 # `proto` is the model that `graph` was read from

Nodes and small integer weights are added; the model's own weights stay where they are, in whatever file, and so do
the names of its inputs and outputs. The result computes the same bits if its nodes run in the order of the file: in a
session with `ORT_DISABLE_ALL` and `PRIORITY_BASED`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from onnxmem.documents import Record, stored
from onnxmem.errors import ModelError
from onnxmem.model.load import node_reads
from onnxmem.model.weights import is_constant
from onnxmem.rewriting.live import NODE_BYTES
from onnxmem.rewriting.static import StaticGraph, StaticNode

EXTRA_WORK = 0.10
"""How much more may be computed, if nobody says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    """Some nodes of a graph that are computed piece by piece."""

    kind: str
    """`stripes` of an image, which overlap, or `blocks` along an axis, which do not."""
    nodes: tuple[str, ...]
    """The nodes of the model, each by its first output."""
    axis: int
    """Of the tensors it makes."""
    pieces: int
    before: int = stored("before_bytes")
    """The most bytes alive at once without this part …"""
    after: int = stored("after_bytes")
    """… and with it, everything else being as it is."""
    extra_work: float
    """Multiplications that it adds, as a fraction of the whole model's."""


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """A graph rewritten so that less of it is alive at once."""

    parts: tuple[Part, ...]
    graph: StaticGraph
    """The rewritten graph."""
    nodes_before: int
    before: int
    """The most bytes alive at once in the graph as it was …"""
    after: int
    """… and as it is rewritten."""
    extra_work: float
    """Multiplications added, as a fraction."""

    @property
    def added_nodes(self) -> int:
        """How many nodes it has more."""
        return len(self.graph.nodes) - self.nodes_before

    @property
    def net(self) -> int:
        """The bytes alive at its peak, and what the added nodes take in a loaded session."""
        return self.after + NODE_BYTES * max(0, self.added_nodes)


def apply(model: ModelProto, rewriting: Rewriting) -> ModelProto:
    """The model with its nodes as the rewriting has them; `model` itself is not changed."""
    graph = rewriting.graph
    originals = {next(filter(None, node.output), ""): node for node in model.graph.node}
    names = _Names(model)
    rewritten = ModelProto()
    rewritten.CopyFrom(model)
    del rewritten.graph.node[:]
    rewritten.graph.node.extend(node for node in model.graph.node if is_constant(node))
    for node in graph.nodes:
        rewritten.graph.node.append(_written(node, originals, names))
    _drop_unread(rewritten, {name for node in model.graph.node for name in node.input})
    for name in graph.added:
        array = np.array(graph.values[name], np.int64).reshape(graph.tensors[name].shape)
        rewritten.graph.initializer.append(numpy_helper.from_array(array, name))
    made = {name for node in rewritten.graph.node for name in node.output}
    kept = [value for value in model.graph.value_info if value.name in made]
    del rewritten.graph.value_info[:]
    rewritten.graph.value_info.extend(kept)
    return rewritten


def _drop_unread(rewritten: ModelProto, read_before: Collection[str]) -> None:
    """Shapes that nobody reads any more have to go: ONNX Runtime refuses a model that has them."""
    read = {name for node in rewritten.graph.node for name in node_reads(node)}
    read.update(value.name for value in rewritten.graph.output)
    kept = [tensor for tensor in rewritten.graph.initializer if tensor.name in read or tensor.name not in read_before]
    if len(kept) < len(rewritten.graph.initializer):
        del rewritten.graph.initializer[:]
        rewritten.graph.initializer.extend(kept)


class _Names:
    """Nodes keep their names; new ones get theirs from what they make. Profilers know nodes by nothing else."""

    def __init__(self, model: ModelProto) -> None:
        self._taken = {node.name for node in model.graph.node}

    def new(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._taken:
            name, number = f"{wanted}.{number}", number + 1
        self._taken.add(name)
        return name


def _written(node: StaticNode, originals: Mapping[str, NodeProto], names: _Names) -> NodeProto:
    if not node.origin:
        return helper.make_node(
            node.op_type,
            list(node.inputs),
            list(node.outputs),
            name=names.new(node.first_output),
            domain=node.domain or None,
            **node.attributes,
        )
    if node.origin not in originals:
        raise ModelError(f"the model has no node that makes '{node.origin}': the rewriting is of another model")
    written = NodeProto()
    written.CopyFrom(originals[node.origin])
    if node.first_output != node.origin:
        written.name = names.new(node.first_output)
    _set(written, node)
    return written


def _set(written: NodeProto, node: StaticNode) -> None:
    """Give a copy its own inputs, outputs and attributes. Tensors and subgraphs in attributes stay."""
    del written.input[:], written.output[:]
    written.input.extend(node.inputs)
    written.output.extend(node.outputs)
    kept = [a for a in written.attribute if a.name in node.attributes or a.HasField("t") or a.HasField("g") or a.graphs]
    same = {a.name for a in kept if _equal(helper.get_attribute_value(a), node.attributes.get(a.name))}
    changed = {name: value for name, value in node.attributes.items() if name not in same}
    kept = [a for a in kept if a.name not in changed]
    del written.attribute[:]
    written.attribute.extend(kept)
    written.attribute.extend(helper.make_attribute(name, value) for name, value in changed.items())


def _equal(old: Any, new: Any) -> bool:
    if isinstance(old, list):
        return isinstance(new, list | tuple) and list(old) == list(new)
    return bool(type(old) is type(new) and old == new)
