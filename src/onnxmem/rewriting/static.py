"""A graph whose every size is a number: what rewritings are found on, and what they become.

It is made from the graph that ONNX Runtime has optimized for given shapes. No weight is needed, only their shapes and
the values of small integer ones. A rewriting is again such a graph, so that several can follow one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from onnx import ModelProto, TensorProto, numpy_helper

from onnxmem.model.bindings import bind
from onnxmem.model.blocks import BLOCKED_DOMAIN, block_size
from onnxmem.model.dtypes import dtype_bits, tensor_bytes
from onnxmem.model.graph import Graph, Node
from onnxmem.model.model import Model
from onnxmem.scratch.kernels import may_take, scratch_of
from onnxmem.unknown import Unknown

# Integer weights that say shapes, axes, starts … are never longer.
_LONGEST_VALUE = 1024
_INTEGERS = (TensorProto.INT64, TensorProto.INT32)


class StaticTensor(NamedTuple):
    """What a tensor takes."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int

    def reshaped(self, shape: tuple[int, ...]) -> StaticTensor:
        """A tensor of the same type with another shape."""
        return StaticTensor(shape, self.dtype, -(-prod(shape) * (dtype_bits(self.dtype) or 0) // 8))


class StaticNode(NamedTuple):
    """One operator. Empty names stand for optional inputs and outputs that are not there."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})
    """Numbers, strings and lists of them. Of a copy, all that it has; what differs from its origin is written."""
    origin: str = ""
    """The first output of the model's node that this is, or is a copy of; empty for one that was added."""
    captured: tuple[str, ...] = ()
    """What its subgraphs read from the graph around it."""
    scratch: int = 0
    """Bytes it takes for itself while it runs."""

    @property
    def first_output(self) -> str:
        """What it is known by."""
        return next(filter(None, self.outputs), "")

    @property
    def reads(self) -> tuple[str, ...]:
        """All it needs from the graph around it."""
        return tuple(filter(None, (*self.inputs, *self.captured)))

    def attribute(self, name: str, default: Any) -> Any:
        """One of its attributes; text comes as text."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, kw_only=True)
class StaticGraph:
    """Nodes in the order in which they run, and all that is known of the tensors between them."""

    nodes: tuple[StaticNode, ...]
    tensors: Mapping[str, StaticTensor]
    """By name, weights and inputs included. What is not here has a size that is not known."""
    weights: frozenset[str]
    values: Mapping[str, tuple[int, ...]]
    """The numbers in small integer weights, those a rewriting has added included."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    blocked: frozenset[str] = frozenset()
    """The tensors that lie in memory in blocks of channels."""
    block: int = 8
    """How many channels a block has."""
    threads: int = 1
    """How many threads a run has; some kernels take scratch for each."""
    added: tuple[str, ...] = ()
    """The integer weights that a rewriting has added, in order; their shapes are in `tensors`."""
    notes: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """For each tensor that is computed, the position of its node."""
        return {name: place for place, node in enumerate(self.nodes) for name in node.outputs if name}

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """For each tensor, the positions of the nodes that read it, ascending."""
        found: dict[str, list[int]] = {}
        for place, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.reads):
                found.setdefault(name, []).append(place)
        return {name: tuple(places) for name, places in found.items()}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor or weight, if it is known."""
        tensor = self.tensors.get(name)
        return None if tensor is None else tensor.shape

    def scratch(self, node: StaticNode, tensors: Mapping[str, StaticTensor]) -> int:
        """The bytes that a node takes for itself while it runs, by the formula of its kernel."""
        if not may_take(node.op_type, node.domain):
            return 0
        kernel = Node(0, "", node.op_type, node.domain, node.inputs, node.outputs, (), node.attributes)
        found = scratch_of(
            kernel,
            lambda name: tensors[name].shape if name in tensors else None,
            lambda name: tensors[name].dtype if name in tensors else None,
            self.weights.__contains__,
            self.threads,
            self.block,
            self.opset,
        )
        return 0 if isinstance(found, Unknown) else found.peak


def static_graph(
    model: Model, shapes: Mapping[str, tuple[int, ...]], *, optimized: bool = True, threads: int = 1
) -> StaticGraph:
    """The graph of `model` for inputs of these shapes, as ONNX Runtime would run it.

    With `optimized`, the model is a file as someone wrote it, and is optimized here for just these shapes, without its
    weights: good for saying what a rewriting would give. Without, it is what ONNX Runtime has already optimized for
    these shapes, with level `all`, and is taken as it stands: a rewriting of it can be applied to that very file.
    """
    known = {name: shape for name, shape in shapes.items() if model.inputs.get(name) is not None}
    bindings = bind(model.inputs, shapes=known)
    if optimized:
        graph = model.graph(bindings, view="optimized", level="all", fix_dims=True)
        proto = model.optimized("all", known)
    else:
        graph, proto = model.graph(bindings, view="raw"), model.proto
    return from_graph(graph, proto, threads)


def from_graph(graph: Graph, proto: ModelProto, threads: int = 1) -> StaticGraph:
    """The static view of a graph whose dimensions all have numbers; `proto` is the model it was read from."""
    nodes = tuple(
        StaticNode(
            node.op_type,
            "" if node.domain == "ai.onnx" else node.domain,
            node.inputs,
            node.outputs,
            node.attributes,
            next(filter(None, node.outputs), ""),
            tuple(name for inner in node.subgraphs for name in inner.captured),
        )
        for node in graph.nodes
    )
    blocked = _blocked(nodes)
    block = block_size() if blocked else 8
    static = StaticGraph(
        nodes=nodes,
        tensors=_tensors(graph, blocked, block),
        weights=frozenset(weight.name for weight in graph.weights),
        values=_integers(proto),
        inputs=graph.inputs,
        outputs=graph.outputs,
        opset=next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1),
        blocked=blocked,
        block=block,
        threads=threads,
        notes=graph.notes,
    )
    with_scratch = (node._replace(scratch=static.scratch(node, static.tensors)) for node in nodes)
    return replace(static, nodes=tuple(with_scratch))


def _tensors(graph: Graph, blocked: Collection[str], block: int) -> dict[str, StaticTensor]:
    found = {}
    for name, tensor in graph.tensors.items():
        if isinstance(tensor.size, int) and tensor.shape is not None:
            found[name] = StaticTensor(tuple(int(str(dim)) for dim in tensor.shape), tensor.dtype, tensor.size)
        if name in found and name in blocked and found[name].shape[1] % block:  # there are only whole blocks
            batch, channels, *rest = found[name].shape
            found[name] = found[name].reshaped((batch, -(-channels // block) * block, *rest))
    for weight in graph.weights:
        found[weight.name] = StaticTensor(weight.shape, weight.dtype, weight.size or 0)
    return found


def _integers(proto: ModelProto) -> dict[str, tuple[int, ...]]:
    return {
        tensor.name: tuple(int(number) for number in numpy_helper.to_array(tensor).reshape(-1))
        for tensor in proto.graph.initializer
        if tensor.data_type in _INTEGERS
        and (tensor_bytes(tensor.data_type, tensor.dims) or 0) <= 8 * _LONGEST_VALUE
        and tensor.data_location != TensorProto.EXTERNAL
    }


def _blocked(nodes: Iterable[StaticNode]) -> frozenset[str]:
    """ONNX Runtime lets a few plain operators work on blocks, too: none of them minds in which order elements lie."""
    found: set[str] = set()
    for node in nodes:
        if node.domain == BLOCKED_DOMAIN:
            made = node.op_type != "ReorderOutput"
        else:
            made = any(name in found for name in node.inputs)
        if made:
            found.update(filter(None, node.outputs))
    return frozenset(found)
