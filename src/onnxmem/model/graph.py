"""What the rest of onnxmem knows of a model: nodes in file order, the tensors between them, and the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxmem.model.dims import Dim
from onnxmem.model.weights import Weight
from onnxmem.unknown import Unknown


@dataclass(frozen=True)
class Tensor:
    """A value that a node computes or a caller feeds: everything that is not a weight."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    size: Dim | Unknown
    """Bytes."""
    runtime_shape: tuple[int | str | None, ...] | None = None
    """What ONNX Runtime knew of the shape, where it told us: it overwrites nothing on a guess."""


@dataclass(frozen=True)
class Node:
    """One operator. Empty names stand for optional inputs and outputs that are not there."""

    index: int
    """ONNX Runtime's own number for the node; its orders break ties by it. In a raw graph, the place in the file."""
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    subgraphs: tuple[Graph, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Its numbers, strings and lists of them; tensors and subgraphs are not among them."""
    on_host: bool = False
    """In a graph for a device: whether ONNX Runtime leaves it to the CPU."""

    @property
    def label(self) -> str:
        """How a person finds it: its name, or what it is and what it makes."""
        return self.name or f"{self.op_type}→{next(filter(None, self.outputs), '?')}"

    @property
    def is_loop(self) -> bool:
        """Whether it is ONNX's own: others may have the name, and no body."""
        return self.op_type == "Loop" and self.domain in ("", "ai.onnx") and len(self.subgraphs) == 1

    @property
    def reads(self) -> tuple[str, ...]:
        """All it needs from the graph around it, its subgraphs' needs included."""
        captured = (name for graph in self.subgraphs for name in graph.captured)
        return tuple(dict.fromkeys(name for name in (*self.inputs, *captured) if name))


@dataclass(frozen=True)
class Graph:
    """A graph or subgraph. `nodes` are in file order; constants are in `weights`, not among the nodes."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    weights: tuple[Weight, ...]
    captured: tuple[str, ...] = ()
    """Names a subgraph reads from the graph around it."""
    on_cuda: bool = False
    """Whether it is what ONNX Runtime runs on a CUDA device."""
    view: str = "raw"
    """`raw`, or `optimized (…)` with the level."""
    numbering: str = "file"
    """Where node numbers come from: `file`, the place in the file, as ONNX Runtime counts too; `saved`, the place in a
    file that ONNX Runtime wrote in its default order, its numbers being lost; `runtime`, ONNX Runtime's own numbers."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What a reader of any result should know: fallbacks taken, limits reached."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The free dimension names its tensors' sizes depend on, sorted."""
        free = (dim.symbols for t in self.all_tensors() for dim in t.shape or () if not isinstance(dim, int))
        return tuple(sorted(name for name in frozenset().union(*free) if not name.startswith("?")))

    def walk(self) -> Iterator[Graph]:
        """This graph and every subgraph in it."""
        yield self
        for node in self.nodes:
            for graph in node.subgraphs:
                yield from graph.walk()

    def all_tensors(self) -> Iterator[Tensor]:
        """The tensors of this graph and of every subgraph in it."""
        return (tensor for graph in self.walk() for tensor in graph.tensors.values())

    def all_weights(self) -> Iterator[Weight]:
        """The weights of this graph and of every subgraph in it."""
        return (weight for graph in self.walk() for weight in graph.weights)


def leaves_of(before: Sequence[Iterable[int]]) -> list[int]:
    """The nodes whose outputs no other node reads."""
    read = {predecessor for inputs in before for predecessor in inputs}
    return [node for node in range(len(before)) if node not in read]


def backwards_from(leaves: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    """Depth-first from each leaf to its inputs, both in the order given; a node comes after all it reads."""
    order: list[int] = []
    visited = [False] * len(before)
    stack = [(leaf, False) for leaf in reversed(leaves)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif not visited[node]:
            visited[node] = True
            stack.append((node, True))
            stack.extend((p, False) for p in reversed(before[node]) if not visited[p])
    return order
