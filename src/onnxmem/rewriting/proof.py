"""May a batch be run a few rows at a time? A proof that rows do not mix.

Every node is looked at, in the model as it was written, with the batch as a name: `n`. A tensor either has nothing to
do with the batch, or holds the number of its rows (as shapes do), or has one axis along which each row is in one piece.
Where none of that can be shown, the batch is not split, and `Unknown` says which node it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from os import PathLike
from typing import TypeAlias

from google.protobuf.message import DecodeError
from onnx import AttributeProto, ModelProto, NodeProto, helper, load_model_from_string

from onnxmem.errors import OnnxmemError
from onnxmem.model.bindings import input_shapes
from onnxmem.model.comparing import substitute
from onnxmem.model.dims import Dim, Expr, floor_div, symbol, symbols_of
from onnxmem.model.dtypes import dtype_name
from onnxmem.model.load import captured_names, subgraphs_of
from onnxmem.model.model import Model
from onnxmem.model.shapes import infer_shapes, topological
from onnxmem.model.tensor_types import Scope
from onnxmem.model.values import Value
from onnxmem.model.weights import is_constant, read_weights
from onnxmem.process.child import serve
from onnxmem.rewriting.axis_rules import follow
from onnxmem.rewriting.batch import ROWS, Batch, Look, Looked
from onnxmem.rewriting.exactness import Condition, condition
from onnxmem.rewriting.flow import Operator
from onnxmem.unknown import Unknown

_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
_OWN = ("", "com.microsoft", "com.microsoft.nchwc")
# Inputs that say a shape, or where a slice ends. What is made of them is seen in the shape of the output.
_SHAPE_INPUTS = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Resize": 3, "Slice": 2}
_SECONDS = 20.0


def main() -> None:
    """The program of a child process: looking takes memory that the one that runs the model is not to have."""
    serve(Look, _look)


def look_at(model: str | bytes | PathLike[str], *, packed: bool) -> Batch | Unknown:
    """The batch of a model's file or bytes, if its rows do not mix; Unknown, with the reason, otherwise."""
    try:
        found = Model.of(load_model_from_string(model)) if isinstance(model, bytes) else Model.open(model)
    except (OnnxmemError, DecodeError) as error:
        return Unknown(str(error))
    return find_batch(found.proto, packed=packed)


def _look(task: Look) -> Looked:
    found = look_at(task.model, packed=task.packed)
    return Looked("", found.reason) if isinstance(found, Unknown) else Looked(json.dumps(found.document()), "")


class _Apart(Enum):
    """What a tensor without rows has to do with the batch."""

    WHOLE = auto()
    """Nothing: it is the same however many rows there are."""
    COUNT = auto()
    """It holds a number that depends on how many there are."""


_Place: TypeAlias = "int | _Apart"


def find_batch(proto: ModelProto, *, packed: bool = True) -> Batch | Unknown:
    """The model's batch, if it has one whose rows do not mix; Unknown, with the reason, otherwise.

    `packed` says whether constant weights are packed when a session is made, as they are by default.
    """
    declared = input_shapes(proto)
    if None in declared.values():
        return Unknown("the file does not say the rank of every input")
    shapes = {name: shape for name, shape in declared.items() if shape is not None}
    first = Unknown("no input has a free first dimension, which a batch would be")
    for names in _candidates(shapes):
        renamed = {name: tuple(_renamed(dim, names) for dim in shape) for name, shape in shapes.items()}
        found = _Walk(proto, renamed, packed).batch()
        if isinstance(found, Batch):
            return found
        first = found if first.reason.startswith("no input") else first
    return first


def _candidates(shapes: Mapping[str, tuple[Dim, ...]]) -> Iterator[tuple[str, ...]]:
    """Names of dimensions that may be the batch: all first ones together, then each of them alone."""
    leading = [shape[0] for shape in shapes.values() if shape and isinstance(shape[0], Expr)]
    names = tuple(dict.fromkeys(name for dim in leading for name in symbols_of(dim)))
    called = (n for shape in shapes.values() for dim in shape for n in symbols_of(dim) if "batch" in n.lower())
    if len(names) > 1:
        yield names
    yield from dict.fromkeys((name,) for name in (*names, *called))


def _renamed(dim: Dim, names: Sequence[str]) -> Dim:
    return substitute(dim, {name: symbol(ROWS) for name in names})


class _Mixed(Exception):
    """Rows mix, or it cannot be shown that they do not."""


class _Walk:
    """One look at all nodes, for one choice of what the batch is."""

    def __init__(self, proto: ModelProto, shapes: Mapping[str, tuple[Dim, ...]], packed: bool) -> None:
        bare = ModelProto()
        bare.CopyFrom(proto)
        # What the file says of shapes in between proves nothing.
        del bare.graph.value_info[:]
        for value in bare.graph.output:
            value.type.tensor_type.ClearField("shape")
        self.graph, self.shapes = bare.graph, shapes
        self.opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)
        names = {name: symbol(name) for shape in shapes.values() for dim in shape for name in symbols_of(dim)}
        self.scope: Scope = infer_shapes(bare, shapes, names=names, time_limit=_SECONDS).scope
        fed = {value.name for value in bare.graph.input} if proto.ir_version >= 4 else set()
        weights = {weight.name for weight in read_weights(bare.graph)}
        self.constants = weights - fed if packed else set()
        self.places: dict[str, _Place] = dict.fromkeys(weights, _Apart.WHOLE)
        self.conditions: list[Condition] = []

    def batch(self) -> Batch | Unknown:
        try:
            inputs = {
                name: axis for name, shape in self.shapes.items() if (axis := self._input(name, shape)) is not None
            }
            for index in topological(self.graph):
                if not is_constant(self.graph.node[index]):
                    self._node(self.graph.node[index])
            outputs = {value.name: self._output(value.name) for value in self.graph.output}
        except _Mixed as mixed:
            return Unknown(str(mixed))
        if not inputs or all(axis is None for axis in outputs.values()):
            return Unknown("no output comes in rows of the batch")
        known = frozenset().union(*(symbols_of(dim) for shape in self.shapes.values() for dim in shape))
        made = {name: shape for name in outputs if (shape := self._shape(name)) is not None
                if all(symbols_of(dim) <= known for dim in shape)}  # fmt: skip
        return Batch(inputs=inputs, outputs=outputs, shapes=self.shapes, made=made, conditions=tuple(self.conditions))

    def _input(self, name: str, shape: tuple[Dim, ...]) -> int | None:
        axes = [axis for axis, dim in enumerate(shape) if ROWS in symbols_of(dim)]
        if len(axes) > 1:
            raise _Mixed(f"input '{name}' has the batch as two of its dimensions")
        self.places[name] = axes[0] if axes else _Apart.WHOLE
        return axes[0] if axes else None

    def _output(self, name: str) -> int | None:
        place = self.places[name]
        if place is _Apart.COUNT:
            raise _Mixed(f"output '{name}' is a number that depends on how many rows there are")
        if not isinstance(place, int):
            return None
        shape = self._shape(name)
        # One entry per row: how many there are is what the caller sees.
        if shape is None or shape[place] != symbol(ROWS) * floor_div(shape[place], symbol(ROWS)):
            raise _Mixed(f"the shape of output '{name}' is not known")
        return place

    def _node(self, node: NodeProto) -> None:
        label = f"{node.op_type} '{node.name or node.output[0]}'"
        if _draws(node) or (node.domain not in ("ai.onnx", *_OWN) and not node.domain.startswith("ai.onnx")):
            raise _Mixed(f"{label} may give other results in each run")
        captured = [name for graph in subgraphs_of(node) for name in captured_names(graph)]
        places = [self.places[name] if name else _Apart.WHOLE for name in (*node.input, *captured)]
        value = self.scope.value_of(node.output[0]) if node.output[0] else None
        if value is not None:
            entries: list[object] = value.reshape(-1).tolist()
            counts = any(ROWS in entry.symbols for entry in entries if isinstance(entry, Expr))
            self._put(node, [_Apart.COUNT if counts else _Apart.WHOLE] * len(node.output))
        elif all(place is _Apart.WHOLE for place in places):
            self._put(node, [_Apart.WHOLE] * len(node.output))
        elif any(subgraphs_of(node)):
            raise _Mixed(f"{label} has a graph of its own that works on the batch")
        else:
            self._put(node, self._followed(node, places, label))

    def _put(self, node: NodeProto, places: Sequence[_Place]) -> None:
        for name, place in zip(node.output, places, strict=True):
            if not name:
                continue
            shape = self._shape(name)
            counted = [axis for axis, dim in enumerate(shape or ()) if ROWS in symbols_of(dim)]
            if counted != ([place] if isinstance(place, int) else []):
                raise _Mixed(f"{node.op_type} '{node.name or name}' makes a tensor whose shape mixes rows")
            self.places[name] = place

    def _followed(self, node: NodeProto, places: Sequence[_Place], label: str) -> list[_Place]:
        operator = self._operator(node)
        says_shape = _SHAPE_INPUTS.get(node.op_type)
        wanted = [
            _Apart.WHOLE if place is _Apart.COUNT and says_shape == k else place for k, place in enumerate(places)
        ]
        for axis in range(operator.rank):
            flow = follow(operator, axis, symbol(ROWS))
            if flow is None or [_Apart.WHOLE if each is None else each for each in flow.inputs] != wanted:
                continue
            dtypes = tuple(self._dtype(name) for name in node.input)
            exact = condition(operator, flow, symbol(ROWS), dtypes, constant=lambda k: node.input[k] in self.constants)
            if isinstance(exact, str):
                raise _Mixed(f"{label} is not the same bit for bit in parts: {exact}")
            if exact is not None:
                self.conditions.append(replace(exact, node=label))
            return [_Apart.WHOLE if each is None else each for each in flow.outputs]
        if any(place is _Apart.COUNT for place in places):
            raise _Mixed(f"{label} computes with how many rows there are")
        raise _Mixed(f"{label} cannot be shown to keep the rows of the batch apart")

    def _operator(self, node: NodeProto) -> Operator:
        graphs = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
        return Operator(
            op_type=node.op_type,
            domain="" if node.domain == "ai.onnx" else node.domain,
            attributes={a.name: helper.get_attribute_value(a) for a in node.attribute if a.type not in graphs},
            inputs=tuple(self._shape(name) for name in node.input),
            outputs=tuple(self._shape(name) for name in node.output),
            values=tuple(_numbers(self.scope.value_of(name)) if name else None for name in node.input),
            opset=self.opset,
            given=tuple(bool(name) for name in node.input),
        )

    def _shape(self, name: str) -> tuple[Dim, ...] | None:
        kind = self.scope.type_of(name) if name else None
        return kind.shape if kind else None

    def _dtype(self, name: str) -> str:
        kind = self.scope.type_of(name) if name else None
        return dtype_name(kind.elem_type) if kind else ""


def _draws(node: NodeProto) -> bool:
    """Whether it draws random numbers, or a graph inside of it does: each part would get others."""
    trains = node.op_type == "Dropout" and len(node.input) > 2  # it may
    return node.op_type in _RANDOM or trains or any(_draws(inner) for g in subgraphs_of(node) for inner in g.node)


def _numbers(value: Value | None) -> tuple[int, ...] | None:
    """What a small tensor holds, if all of it is whole numbers."""
    entries: list[object] = [] if value is None else value.reshape(-1).tolist()
    whole = tuple(entry for entry in entries if isinstance(entry, int))
    return None if value is None or len(whole) < len(entries) else whole
