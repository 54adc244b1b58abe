"""What do a device's kernels take beside their outputs? Each is asked: it runs alone, and its calls are written down.

On the CPU that follows from formulas (`scratch/`). On a GPU libraries choose among algorithms by what they find there,
so that nothing but a run of the node with its shapes can tell. Nodes that are alike are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.model.load import subgraphs_of
from onnxmem.scratch.kernel import NOTHING, Scratch
from onnxmem.session.planned.trace import OUTLIVES, Trace, record_all
from onnxmem.unknown import Unknown

_LARGEST_WEIGHT = 1 << 30
"""Larger ones would not fit into a model of their own."""
# They only look at their input, or do nothing but move it.
_NEVER = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "MemcpyFromHost", "MemcpyToHost")


class Asked(NamedTuple):
    """What a kernel takes when it runs for the first time, when libraries may try out algorithms, and later."""

    first: Scratch
    later: Scratch


class _Value(NamedTuple):
    """An input of a node as it is fed to it."""

    kind: int
    shape: tuple[int, ...]
    constant: TensorProto | None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape)) * _array_type(self.kind).itemsize


def ask_kernels(
    graph: Graph,
    proto: ModelProto,
    device: int | None,
    deadline: Deadline,
    step: Callable[[int, int], None] = lambda _, __: None,
) -> dict[str, Asked | Unknown]:
    """The answer for each node of a graph and of the graphs in it, every dimension of which has a number.

    `proto` is what the graph was read from. `step` hears which part of it is done. Nodes are known by what they make.
    """
    graphs = list(_graphs(proto.graph))
    stored = {_first(node.output): node for each in graphs for node in each.node}
    constants = {tensor.name: tensor for each in graphs for tensor in each.initializer}
    tensors = {tensor.name: tensor for tensor in graph.all_tensors()}
    nodes = [node for inner in graph.walk() for node in inner.nodes if not node.subgraphs and not node.on_host]
    known: dict[object, Asked | Unknown] = {}
    found: dict[str, Asked | Unknown] = {}
    for position, node in enumerate(nodes):
        step(position, len(nodes))
        if node.op_type in _NEVER:
            continue
        name = known_by(node)
        inputs = [_value(each, tensors, constants) for each in node.inputs]
        outputs = _sizes(node, tensors)
        if name not in stored or outputs is None or any(isinstance(value, Unknown) for value in inputs):
            found[name] = Unknown("its shapes are not known")
            continue
        given = [value for value in inputs if not isinstance(value, Unknown)]
        key = _key(stored[name], given)
        if key not in known:
            late = Unknown("the time limit was over")
            known[key] = late if deadline.passed else _ask(stored[name], given, outputs, proto, device, deadline)
        found[name] = known[key]
    return found


def known_by(node: Node) -> str:
    """What tells a node from all others: its first output."""
    return _first(node.outputs)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs_of(node):
            yield from _graphs(inner)


def _ask(
    node: NodeProto,
    inputs: Sequence[_Value | None],
    outputs: Sequence[int],
    proto: ModelProto,
    device: int | None,
    deadline: Deadline,
) -> Asked | Unknown:
    fed = {f"x{k}": value for k, value in enumerate(inputs) if value is not None and value.constant is None}
    feeds = {name: np.zeros(value.shape, _array_type(value.kind)) for name, value in fed.items()}
    try:
        model = _alone(node, inputs, fed, proto)
        traces = record_all(model, [feeds, feeds], time_limit=max(deadline.left, 1.0), device=device)
    except (ModelError, ValueError) as error:
        return Unknown(str(error))
    copied = [value.size for value in fed.values()] if device is not None else []
    first, later = (scratch_in(trace, copied, outputs) for trace in traces)
    return Asked(first, later)


def scratch_in(trace: Trace, inputs: Sequence[int], outputs: Sequence[int]) -> Scratch:
    """What a run of one node took beside copies of its inputs, which come first, and its outputs, which end last."""
    sizes, lowers, uppers = trace.columns
    ends = np.where(uppers == OUTLIVES, trace.steps, uppers)
    left = list(range(len(trace)))
    for size in inputs:
        if (copy := next((row for row in left if sizes[row] == size), None)) is not None:
            left.remove(copy)
    made = []
    for size in outputs:
        alike = [row for row in left if sizes[row] == size]
        if alike:
            made.append(max(alike, key=lambda row: ends[row]))
            left.remove(made[-1])
    begins = min((lowers[row] for row in made), default=trace.steps)
    ended = max((lowers[row] for row in (*made, *left)), default=0)
    calls = sorted([(lowers[row], row) for row in left] + [(ends[row], row) for row in left if ends[row] < ended])
    number = {row: place + 1 for place, (_, row) in enumerate((at, row) for at, row in calls if at == lowers[row])}
    steps = tuple(int(sizes[row]) if at == lowers[row] else -number[row] for at, row in calls)
    return Scratch(steps, before=sum(bool(at < begins) for at, _ in calls)) if steps else NOTHING


def _alone(node: NodeProto, inputs: Sequence[_Value | None], fed: Mapping[str, _Value], proto: ModelProto) -> bytes:
    """A model of one node."""
    alone = NodeProto()
    alone.CopyFrom(node)
    del alone.input[:]
    alone.input.extend("" if value is None else f"x{place}" for place, value in enumerate(inputs))
    stored = [
        _named(value.constant, f"x{place}")
        for place, value in enumerate(inputs)
        if value is not None and value.constant is not None
    ]
    graph = helper.make_graph(
        [alone],
        "alone",
        [helper.make_tensor_value_info(name, value.kind, value.shape) for name, value in fed.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        stored,
    )
    model = helper.make_model(graph, opset_imports=list(proto.opset_import), ir_version=proto.ir_version)
    written: bytes = model.SerializeToString()
    return written


def _named(tensor: TensorProto, name: str) -> TensorProto:
    """The same constant by another name; zeros, where its numbers were left out."""
    named = TensorProto()
    if tensor.data_location == TensorProto.EXTERNAL or not _has_numbers(tensor):
        zeros = np.zeros(tuple(tensor.dims), _array_type(tensor.data_type))
        if zeros.nbytes > _LARGEST_WEIGHT:
            raise ValueError(f"a weight of {zeros.nbytes:,} bytes does not fit into a model of its own")
        named.CopyFrom(numpy_helper.from_array(zeros))
        named.data_type = tensor.data_type
    else:
        named.CopyFrom(tensor)
    named.name = name
    return named


def _has_numbers(tensor: TensorProto) -> bool:
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    return any(len(getattr(tensor, field)) for field in fields) or not int(np.prod(tuple(tensor.dims)))


def _value(name: str, tensors: Mapping[str, Tensor], constants: Mapping[str, TensorProto]) -> _Value | Unknown | None:
    if not name:
        return None
    if name in constants:
        stored = constants[name]
        return _Value(stored.data_type, tuple(stored.dims), stored)
    tensor = tensors.get(name)
    if tensor is None or tensor.shape is None or not all(isinstance(dim, int) for dim in tensor.shape):
        return Unknown("its shape is not known")
    kind = TensorProto.DataType.Value(_ONNX_NAMES.get(tensor.dtype, tensor.dtype.upper()))
    return _Value(kind, tuple(int(str(dim)) for dim in tensor.shape), None)


_ONNX_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


def _sizes(node: Node, tensors: Mapping[str, Tensor]) -> list[int] | None:
    sizes = [tensors[name].size for name in node.outputs if name and name in tensors]
    return None if any(isinstance(size, Unknown) for size in sizes) else [int(str(size)) for size in sizes]


def _key(node: NodeProto, inputs: Sequence[_Value | None]) -> object:
    attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
    values = tuple(
        value and (value.kind, value.shape, value.constant is not None, _small(value.constant)) for value in inputs
    )
    return node.op_type, node.domain, attributes, values, len(node.output)


def _small(constant: TensorProto | None) -> bytes:
    """What decides sizes: axes, shapes and the like."""
    few = constant is not None and int(np.prod(tuple(constant.dims))) <= 64
    return constant.SerializeToString(deterministic=True) if few and constant is not None else b""


def _first(names: Sequence[str]) -> str:
    return next(filter(None, names), "")


def _array_type(kind: int) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))
