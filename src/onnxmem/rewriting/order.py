"""A static graph with its nodes in the order in which least is alive at once, by the search of `schedule/`."""

from __future__ import annotations

from dataclasses import replace

from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.rewriting.static import StaticGraph
from onnxmem.schedule.search import best_order
from onnxmem.schedule.storages import Rules, memory_of
from onnxmem.schedule.workload import Workload

# The search is bounded by its work; a clock would make it another one each time. Nobody waits that long.
_NEVER = 3600.0


def ordered(graph: StaticGraph, effort: float) -> StaticGraph:
    """The same graph in the best order that so many seconds' work on an ordinary processor find."""
    workload = workload_of(graph)
    found = best_order(workload, time_limit=_NEVER, effort=effort, start_orders=[range(len(graph.nodes))])
    return replace(graph, nodes=tuple(graph.nodes[place] for place in found.order))


def workload_of(graph: StaticGraph) -> Workload:
    """What running the nodes takes, in any order."""
    nodes = tuple(
        Node(place, "", node.op_type, node.domain, (*node.inputs, *node.captured), node.outputs)
        for place, node in enumerate(graph.nodes)
    )
    tensors = {
        name: Tensor(name, tensor.dtype, tensor.shape, tensor.bytes)
        for name, tensor in graph.tensors.items()
        if name in graph.makers or name in graph.inputs
    }
    whole = Graph("", nodes, graph.inputs, graph.outputs, tensors, ())
    scratch = {node.outputs: graph.nodes[place].scratch for place, node in enumerate(nodes)}
    return memory_of(
        whole,
        Rules(),
        number=lambda size: int(str(size)),
        scratch=lambda node: scratch[node.outputs],
        uncounted=frozenset(graph.outputs),
    ).workload
