"""The shape of every tensor: ONNX's own schemas node by node, with named dimensions carried through them.

For each node, in this order:
  1. its value, if it is a small integer tensor computed from shapes (`values.py`);
  2. ONNX's schema for the operator, with every dimension expression passed in under a made-up name;
  3. our arithmetic for the dimensions that leaves open (`shape_rules.py`);
  4. what the file declares;
  5. Unknown, with the reason.
A deadline bounds all of it: nodes not reached by then are Unknown, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    checker,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError
from onnxmem.model import shape_rules, values
from onnxmem.model.contrib_rules import CONTRIB_RULES
from onnxmem.model.control_flow import infer_control_flow
from onnxmem.model.dims import Dim, Expr, can_be_multiplied, is_modest, symbol
from onnxmem.model.load import node_reads, subgraphs_of
from onnxmem.model.shape_rules import RULES
from onnxmem.model.tensor_types import Partial, Scope, TensorType
from onnxmem.model.values import LARGEST_VALUE, MOST_DIMENSIONS, Value
from onnxmem.model.weights import constant_value, is_constant

# Here ONNX's own inference is wrong, or ONNX Runtime does something else: 1.23 takes a one-sided STFT (the default) for
# a two-sided one, and doubles its size; slices backwards "to the end" are not empty; "same" padding of a transposed
# convolution adds nothing, and of a pool forgets the dilation; Resize multiplies in single precision.
_WRONG_IN_ONNX = {"STFT", "Slice", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "Resize"}

_ENDLESS = 2**63
"""What no file can hold: sizes are numbers of 64 bits, and arithmetic on them may exceed that."""
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}

# Operators of ONNX Runtime whose output has the type of another input than the first, and its type without that input.
_TYPED_BY = {
    "QLinearConcat": 2,
    "QLinearWhere": 1,
    "QAttention": 2,
    "EmbedLayerNormalization": 2,
    "QuantizeLinear": 2,
    "QGemm": 8,
}
_TYPED_OTHERWISE = {"QuantizeLinear": TensorProto.UINT8, "QGemm": TensorProto.FLOAT}

# Where the length of an input is the number of an output's dimensions.
_SHAPE_GIVEN_BY = {
    "CenterCropPad": (1,),
    "Col2Im": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Tile": (1,),
    "Upsample": (1,),
}

# Larger constants are data, not shapes: ONNX's schemas have no use for them.
_LARGEST_INPUT_DATA = 1024


@dataclass(frozen=True)
class Inferred:
    """Types of all names, and the reasons behind dimensions named `?…`."""

    scope: Scope
    reasons: Mapping[str, str]
    contradictions: tuple[str, ...]
    """Nodes whose inputs do not go together, by ONNX's own rules and all in numbers."""


def infer_shapes(
    model: ModelProto, inputs: Mapping[str, tuple[Dim, ...]], *, names: Mapping[str, Dim], time_limit: float
) -> Inferred:
    """What is known of every tensor.

    `inputs` are the graph inputs' shapes; `names` what the dimension names stand for that mean something outside.
    """
    inference = _Inference(model, names, Deadline(max(time_limit, 0.01)))
    scope = Scope()
    for value in model.graph.input:
        declared = inference.from_proto(value.type)
        if declared.elem_type or value.name in inputs:
            shape = inputs.get(value.name, declared.shape)
            scope.types[value.name] = TensorType(declared.elem_type, shape, declared.reason)
        else:
            scope.types[value.name] = declared
    inference.infer_graph(model.graph, scope)
    return Inferred(scope, inference.reasons, tuple(inference.contradictions))


class _Inference:
    """One run over a model."""

    def __init__(self, model: ModelProto, names: Mapping[str, Dim], deadline: Deadline) -> None:
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.opset_protos = list(model.opset_import)
        self.ir_version = model.ir_version
        self.names = names
        self.deadline = deadline
        self.reasons: dict[str, str] = {}
        self.contradictions: list[str] = []
        self.schemas: dict[tuple[str, str], Any] = {}
        self.name_of: dict[Expr, str] = {}
        self.dim_of: dict[str, Dim] = {}

    # Dimensions ↔ the names ONNX sees

    def unknown(self, reason: str) -> Expr:
        """A new dimension that nothing is known of but why."""
        name = f"?{len(self.reasons)}"
        self.reasons[name] = reason
        return symbol(name)

    def to_proto(self, kind: TensorType) -> TypeProto:
        proto = TypeProto()
        proto.tensor_type.elem_type = kind.elem_type
        if kind.shape is not None:
            shape = proto.tensor_type.shape
            shape.SetInParent()  # a scalar has a shape too: the empty one
            for dim in kind.shape:
                entry = shape.dim.add()
                if not isinstance(dim, int):
                    entry.dim_param = self._name(dim)
                elif 0 <= dim < _ENDLESS:  # onnx ends the process where a Slice meets a negative one
                    entry.dim_value = dim
        return proto

    def _name(self, dim: Expr) -> str:
        name = self.name_of.get(dim)
        if name is None:
            name = self.name_of[dim] = f"d{len(self.name_of)}"
            self.dim_of[name] = dim
        return name

    def from_proto(self, proto: TypeProto) -> TensorType:
        """A declared type; dimensions it leaves open become unknown."""
        which = proto.WhichOneof("value")
        if which != "tensor_type":
            kind = (which or "untyped value").removesuffix("_type").replace("_", " ")
            return TensorType(0, None, f"a {kind} has no fixed size")
        shape = self._declared_dims(proto)
        if shape is None:
            return TensorType(proto.tensor_type.elem_type, None, "the file does not say its rank")
        dims = [self.unknown("the file does not say it") if dim is None else dim for dim in shape]
        return TensorType.of(proto.tensor_type.elem_type, dims)

    def _declared_dims(self, proto: TypeProto) -> list[Dim | None] | None:
        """What the file itself says of a shape; names count only if they are names of the inputs' dimensions."""
        if not proto.tensor_type.HasField("shape"):
            return None
        return [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else self.names.get(dim.dim_param)
            for dim in proto.tensor_type.shape.dim
        ]

    # Graphs

    def infer_graph(self, graph: GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            self._constant(tensor.name, tensor, scope)
        for sparse in graph.sparse_initializer:
            scope.types[sparse.values.name] = TensorType.of(sparse.values.data_type, sparse.dims)
        declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        for index in topological(graph):
            node = graph.node[index]
            if is_constant(node):
                value = constant_value(node)
                if isinstance(value, SparseTensorProto):
                    scope.types[node.output[0]] = TensorType.of(value.values.data_type, value.dims)
                else:
                    self._constant(node.output[0], value, scope)
            elif self.deadline.passed:
                self._give_up(node, scope, declared)
            else:
                self._infer_node(node, index, scope, declared)

    def _constant(self, name: str, tensor: TensorProto, scope: Scope) -> None:
        scope.types[name] = TensorType(tensor.data_type, tuple(tensor.dims))
        count = int(np.prod(tensor.dims, dtype=object)) if tensor.dims else 1
        small = count <= LARGEST_VALUE and tensor.data_type != TensorProto.STRING
        # Long float constants are weights. Integers of any use to shapes are short, but lookup tables may not be.
        if small and tensor.data_location != TensorProto.EXTERNAL and (count <= 64 or tensor.data_type in (6, 7)):
            scope.values[name] = _array(tensor, name).astype(object)

    def _give_up(self, node: NodeProto, scope: Scope, declared: Mapping[str, TypeProto]) -> None:
        reason = f"shape inference ran out of its {self.deadline.time_limit:.2g} s"
        for name in filter(None, node.output):
            found = self.from_proto(declared[name]) if name in declared else TensorType(0, None)
            scope.types[name] = found if found.shape is not None else TensorType(found.elem_type, None, reason)

    def _infer_node(self, node: NodeProto, index: int, scope: Scope, declared: Mapping[str, TypeProto]) -> None:
        attributes = {a.name: _attribute(a) for a in node.attribute}
        if node.domain in ("", "ai.onnx") and node.op_type in ("If", "Loop", "Scan"):
            found = self._infer_control_flow(node, index, attributes, scope)
        else:
            found = self._infer_operator(node, attributes, scope)
        for position, name in enumerate(node.output):
            if name:
                scope.types[name] = self._complete(node, found, position, declared.get(name))

    def _complete(
        self, node: NodeProto, found: Sequence[Partial], position: int, declared: TypeProto | None
    ) -> TensorType:
        """What was inferred, gaps filled from what the file declares, and the rest marked unknown."""
        partial = found[position] if position < len(found) else Partial(0, None)
        if declared is not None and declared.WhichOneof("value") == "tensor_type":
            partial = partial.filled(self._declared_dims(declared), declared.tensor_type.elem_type)
        elif declared is not None and declared.WhichOneof("value") and partial.shape is None:
            return self.from_proto(declared)
        if partial.shape is None:
            return TensorType(partial.elem_type, None, partial.reason or f"the shape of {_label(node)} is not known")
        reason = partial.reason or f"{_label(node)} decides it from data"
        dims = tuple(self.unknown(reason) if dim is None else dim for dim in partial.shape)
        if not all(is_modest(dim) for dim in dims) or not can_be_multiplied(dims):
            return TensorType(partial.elem_type, None, f"{_label(node)} makes its size too long a formula")
        return TensorType.of(partial.elem_type, dims)

    # Operators

    def _infer_operator(self, node: NodeProto, attributes: Mapping[str, Any], scope: Scope) -> list[Partial]:
        types = [scope.type_of(name) if name else None for name in node.input]
        inputs = [scope.value_of(name) if name else None for name in node.input]
        shapes = [kind.shape if kind else None for kind in types]
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opsets.get(domain, 1)
        if domain == "" and node.output[0]:
            floats = types[0] is not None and types[0].elem_type in _FLOATS if types else False
            value = values.propagate(node.op_type, attributes, inputs, shapes, opset, floats=floats)
            if value is not None:
                scope.values[node.output[0]] = value
        found = self._ask_onnx(node, domain, opset, scope)
        by_onnx = found
        if domain == "" and node.op_type in _WRONG_IN_ONNX:
            found = [Partial(partial.elem_type, None, partial.reason) for partial in found]
        if len(found) < len(node.output) or any(not partial.complete for partial in found):
            call = shape_rules.Call(node.op_type, attributes, shapes, inputs, len(node.output), opset)
            ruled = shape_rules.infer(call, RULES if domain == "" else CONTRIB_RULES)
            found += [Partial(0, None)] * (len(node.output) - len(found))
            if ruled:
                missing = _output_type(node, types)
                found = [p.filled(ruled[k] if k < len(ruled) else None, missing) for k, p in enumerate(found)]
        if node.op_type != "STFT":
            found = [p.filled(t.shape, t.elem_type) for p, t in zip_longest(found, by_onnx, fillvalue=Partial(0, None))]
        return found

    def _ask_onnx(self, node: NodeProto, domain: str, opset: int, scope: Scope) -> list[Partial]:
        key = (domain, node.op_type)
        if key not in self.schemas:
            try:
                self.schemas[key] = defs.get_schema(node.op_type, opset, domain)
            except (defs.SchemaError, TypeError):  # or a version that is no number of theirs
                self.schemas[key] = None
        schema = self.schemas[key]
        if schema is None:
            return []
        _check_dimensions(node, scope)
        types, data = {}, {}
        for name in filter(None, node.input):
            kind = scope.type_of(name)
            types[name] = self.to_proto(kind) if kind is not None and kind.elem_type else TypeProto()
            value = scope.value_of(name)
            if value is not None and value.size <= _LARGEST_INPUT_DATA and values.concrete(value) and kind is not None:
                # A type that a file gives wrongly has no such values.
                with suppress(KeyError, NotImplementedError, TypeError, ValueError, OverflowError):
                    data[name] = _tensor(value, kind.elem_type)
        try:
            outputs = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=self.opset_protos, ir_version=self.ir_version
            )
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
            shapes = [kind.shape for name in node.input if (kind := scope.type_of(name)) is not None]
            if isinstance(error, shape_inference.InferenceError) and all(_numeric(shape) for shape in shapes):
                listed = ", ".join("×".join(map(str, shape or ())) or "scalar" for shape in shapes)
                self.contradictions.append(f"{_label(node)} cannot take inputs of {listed}")
            return [Partial(0, None, _one_line(error))] * len(node.output)
        return [self._partial(outputs[name]) if name in outputs else Partial(0, None) for name in node.output]

    def _partial(self, proto: TypeProto) -> Partial:
        if proto.WhichOneof("value") != "tensor_type":
            declared = self.from_proto(proto)
            return Partial(0, None, declared.reason)
        if not proto.tensor_type.HasField("shape"):
            return Partial(proto.tensor_type.elem_type, None)
        dims = [
            dim.dim_value if dim.HasField("dim_value") else self.dim_of.get(dim.dim_param)
            for dim in proto.tensor_type.shape.dim
        ]
        return Partial(proto.tensor_type.elem_type, tuple(dims))

    # Graphs inside of nodes

    def _infer_control_flow(
        self, node: NodeProto, index: int, attributes: Mapping[str, Any], scope: Scope
    ) -> list[Partial]:
        graphs = list(subgraphs_of(node))
        before, impossible = self.contradictions, list[list[str]]()

        def branch(graph: GraphProto, inputs: Mapping[str, TensorType]) -> Scope:
            inner = Scope(scope)
            for value in graph.input:
                inner.types[value.name] = inputs.get(value.name) or self.from_proto(value.type)
            self.contradictions = []
            self.infer_graph(graph, inner)
            impossible.append(self.contradictions)
            return inner

        inner, found = infer_control_flow(node, graphs, attributes, scope, branch, self.unknown)
        # A branch of If that cannot be may be the one that these inputs do not take.
        certain = node.op_type != "If" or all(impossible)
        self.contradictions = [*before, *chain.from_iterable(impossible)] if certain else before
        scope.children.update({(index, k): each for k, each in enumerate(inner)})
        return found


def computes_shapes(graph: GraphProto, known: frozenset[str] = frozenset()) -> bool:
    """Whether an operator is told a shape by anything but a constant."""
    known |= {tensor.name for tensor in graph.initializer if np.prod(tensor.dims, dtype=object) <= MOST_DIMENSIONS}
    known |= {node.output[0] for node in graph.node if is_constant(node)}
    return any(
        not {*_shapes_given(node)} <= known or any(computes_shapes(inner, known) for inner in subgraphs_of(node))
        for node in graph.node
    )


def _shapes_given(node: NodeProto) -> list[str]:
    return [name for k in _SHAPE_GIVEN_BY.get(node.op_type, ()) for name in node.input[k : k + 1] if name]


def _check_dimensions(node: NodeProto, scope: Scope) -> None:
    for kind in map(scope.type_of, _shapes_given(node)):
        length = kind.shape[0] if kind is not None and kind.shape is not None and len(kind.shape) == 1 else 0
        if isinstance(length, int) and length > MOST_DIMENSIONS:
            many = f"{length} dimensions, and at most {MOST_DIMENSIONS} are followed"
            raise ModelError(f"{_label(node)} makes a tensor of {many}")


def topological(graph: GraphProto) -> Iterable[int]:
    """Node indices such that producers come first: file order, unless the file is out of order."""
    produced = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    placed: set[int] = set()
    order: list[int] = []
    for start in range(len(graph.node)):
        stack = [start]
        while stack:
            index = stack[-1]
            if index in placed:
                stack.pop()
                continue
            waiting = [
                produced[name]
                for name in node_reads(graph.node[index])
                if name in produced and produced[name] not in placed and produced[name] != index
            ]
            if waiting:
                stack.extend(waiting)
            else:
                placed.add(index)
                order.append(index)
                stack.pop()
    return order


def _array(tensor: TensorProto, name: str) -> Any:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ModelError(f"the data of '{name}' do not fit its type and shape") from error


def _attribute(attribute: Any) -> Any:
    try:
        value = helper.get_attribute_value(attribute)
    except ValueError as error:
        raise ModelError(f"attribute '{attribute.name}' is of no known type") from error
    if isinstance(value, TensorProto):
        return None if value.data_location == TensorProto.EXTERNAL else _array(value, attribute.name)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _tensor(value: Value, elem_type: int) -> TensorProto:
    return numpy_helper.from_array(value.astype(helper.tensor_dtype_to_np_dtype(elem_type)))


def _output_type(node: NodeProto, types: Sequence[TensorType | None]) -> int:
    """Element type of an operator ONNX has no schema for: that of its first input, where no other input decides."""
    if node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DequantizeLinear"):
        return TensorProto.FLOAT
    place = _TYPED_BY.get(node.op_type, 0)
    kind = types[place] if place < len(types) else None
    return kind.elem_type if kind is not None else _TYPED_OTHERWISE.get(node.op_type, 0)


def _label(node: NodeProto) -> str:
    return f"{node.op_type} '{node.name}'" if node.name else node.op_type


def _numeric(shape: Sequence[Dim] | None) -> bool:
    return shape is not None and all(isinstance(dim, int) for dim in shape)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
