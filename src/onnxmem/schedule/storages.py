"""A graph → the memory its nodes read and write, in any order: tensors merged where ONNX Runtime merges them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxmem.documents import Record, stored
from onnxmem.model.dims import Dim
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.schedule.inplace import aliased_input, overwritten_input
from onnxmem.schedule.workload import Storage, Workload
from onnxmem.unknown import Unknown

# ONNX Runtime runs these as soon as they can run, in its priority-based order.
_EAGER = ("Shape", "Size")


@dataclass(frozen=True, kw_only=True)
class Rules(Record):
    """What shares memory with what."""

    alias: bool = True
    """Reshape, Squeeze, Identity … show their input instead of copying it."""
    in_place: bool = True
    """Relu, Softmax … overwrite their input when it is not needed again."""
    inputs: bool = stored("count_inputs", default=False)
    """Count the tensors the caller feeds; they are the caller's, and live throughout."""


@dataclass(frozen=True)
class Memory:
    """A workload and, for each of its storages, the tensors that lie in it, the one whose memory it is first."""

    workload: Workload
    tensors: tuple[tuple[Tensor, ...], ...]


def predecessors(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """For each node, the positions of the nodes that make what it reads."""
    made = {name: position for position, node in enumerate(graph.nodes) for name in node.outputs if name}
    return tuple(tuple(dict.fromkeys(made[name] for name in node.reads if name in made)) for node in graph.nodes)


def memory_of(
    graph: Graph,
    rules: Rules,
    *,
    number: Callable[[Dim], int],
    scratch: Callable[[Node], int] = lambda _: 0,
    uncounted: frozenset[str] = frozenset(),
) -> Memory:
    """The storages of a graph.

    `number` turns a size in bytes into the integer that stands for it. Tensors of unknown size are left out, as are
    those in `uncounted`, which live somewhere else.
    """
    made = {name: position for position, node in enumerate(graph.nodes) for name in node.outputs if name}
    readers: dict[str, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in node.reads:
            readers.setdefault(name, []).append(position)
    root = _aliases(graph) if rules.alias else {}
    members: dict[str, list[Tensor]] = {}
    for name, tensor in graph.tensors.items():
        members.setdefault(root.get(name, name), []).append(tensor)

    fed, outputs = set(graph.inputs), set(graph.outputs)
    storages: list[Storage] = []
    tensors: list[tuple[Tensor, ...]] = []
    index_of: dict[str, int] = {}
    for owner, group in members.items():
        # Views of a weight, of an outer tensor, or of an input that does not count take no memory of their own.
        if owner not in graph.tensors or owner in uncounted or (owner in fed and not rules.inputs):
            continue
        size = graph.tensors[owner].size
        if isinstance(size, Unknown):
            continue
        consumers = sorted({reader for tensor in group for reader in readers.get(tensor.name, ())})
        producer = made.get(owner, -1)
        pinned = owner in fed or any(tensor.name in outputs for tensor in group)
        index_of[owner] = len(storages)
        storages.append(Storage(owner, number(size), producer, tuple(c for c in consumers if c != producer), pinned))
        tensors.append((graph.tensors[owner], *(tensor for tensor in group if tensor.name != owner)))

    in_place = tuple(_overwrites(node, graph, root, index_of) if rules.in_place else () for node in graph.nodes)
    before = predecessors(graph)
    glued = tuple(
        (before[position][-1] if before[position] else position) if node.op_type in _EAGER else -1
        for position, node in enumerate(graph.nodes)
    )
    workload = Workload(before, tuple(storages), in_place, glued, tuple(map(scratch, graph.nodes)))
    return Memory(workload, tuple(tensors))


def _aliases(graph: Graph) -> dict[str, str]:
    """For each output that is a view: the name of what it is a view of, followed to the end."""
    root: dict[str, str] = {}
    outputs = set(graph.outputs)
    for node in graph.nodes:
        position = aliased_input(node, on_cuda=graph.on_cuda and not node.on_host)
        # What is handed to the caller must be a tensor of its own, so a view that is an output is copied.
        if position is not None and node.inputs and node.inputs[position] and node.outputs[0] not in outputs:
            root[node.outputs[0]] = node.inputs[position]
    # A view of a view, whichever of the two the file names first.
    return {name: _end(source, root) for name, source in root.items()}


def _end(name: str, following: dict[str, str]) -> str:
    while name in following:
        name = following[name]
    return name


def same_size(before: Tensor, after: Tensor, graph: Graph) -> bool:
    """Would ONNX Runtime see that the two have the same size? It compares shapes, and only what it knows of them."""
    if before.shape != after.shape or before.size != after.size:
        return False
    if not graph.view.startswith("optimized"):
        return True  # nobody told what it knows
    return before.runtime_shape == after.runtime_shape is not None and None not in after.runtime_shape


def _overwrites(
    node: Node, graph: Graph, root: dict[str, str], index_of: dict[str, int]
) -> tuple[tuple[int, int], ...]:
    position = overwritten_input(node, on_cuda=graph.on_cuda and not node.on_host)
    if position is None or position >= len(node.inputs) or not node.inputs[position]:
        return ()
    source, target = node.inputs[position], node.outputs[0]
    # Outputs of the graph get memory of their own. A node that reads the memory twice cannot overwrite it.
    reads = sum(root.get(name, name) == root.get(source, source) for name in node.inputs if name)
    before, after = graph.tensors.get(source), graph.tensors.get(target)
    if target in graph.outputs or reads != 1 or before is None or after is None:
        return ()
    if not same_size(before, after, graph):
        return ()
    old, new = index_of.get(root.get(source, source)), index_of.get(root.get(target, target))
    return () if old is None or new is None else ((old, new),)
