"""The constants of a model: initializers and `Constant` nodes alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from onnxmem.model.dtypes import dtype_name, tensor_bytes


@dataclass(frozen=True)
class Weight:
    """A constant tensor. `size` is in bytes as it lies in memory; None for strings, which have no fixed size."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int | None
    source: str
    """`initializer`, `constant` (a Constant node) or `sparse`."""


def read_weights(graph: GraphProto) -> tuple[Weight, ...]:
    """The constants of one graph, subgraphs not included."""
    found = [_weight(tensor, tensor.name, "initializer") for tensor in graph.initializer]
    found += [_sparse_weight(sparse, sparse.values.name) for sparse in graph.sparse_initializer]
    for node in graph.node:
        if is_constant(node):
            value = constant_value(node)
            if isinstance(value, SparseTensorProto):
                found.append(_sparse_weight(value, node.output[0]))
            else:
                found.append(_weight(value, node.output[0], "constant"))
    return tuple(found)


def is_constant(node: NodeProto) -> bool:
    """Is this node nothing but a stored value?"""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def constant_value(node: NodeProto) -> TensorProto | SparseTensorProto:
    """The value in a `Constant` node, whichever attribute holds it."""
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto | SparseTensorProto):
        return value
    if attribute.name.startswith("value_string"):
        strings = value if isinstance(value, list) else [value]
        shape = [len(strings)] if attribute.name == "value_strings" else []
        return helper.make_tensor(node.output[0], TensorProto.STRING, shape, strings)
    dtype = np.int64 if attribute.name.startswith("value_int") else np.float32
    return numpy_helper.from_array(np.array(value, dtype=dtype), node.output[0])


def _weight(tensor: TensorProto, name: str, source: str) -> Weight:
    size = tensor_bytes(tensor.data_type, tensor.dims)
    return Weight(name, dtype_name(tensor.data_type), tuple(tensor.dims), size, source)


def _sparse_weight(sparse: SparseTensorProto, name: str) -> Weight:
    parts = [tensor_bytes(part.data_type, part.dims) for part in (sparse.values, sparse.indices)]
    size = None if None in parts else sum(part or 0 for part in parts)
    return Weight(name, dtype_name(sparse.values.data_type), tuple(sparse.dims), size, "sparse")
