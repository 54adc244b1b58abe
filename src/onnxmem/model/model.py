"""A model file, and the graphs that can be seen in it: as written, or as ONNX Runtime would run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TypeProto, helper

from onnxmem.deadline import Deadline
from onnxmem.errors import ImpossibleShapes, ModelError, RuntimeUnsupported, UsageError
from onnxmem.model.bindings import free_dimensions, input_shapes
from onnxmem.model.comparing import substitute
from onnxmem.model.dims import Dim, ceil_div, product, symbol, symbols_of
from onnxmem.model.dtypes import bits, dtype_name
from onnxmem.model.duplicates import Duplicates, find_duplicates
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.model.load import captured_names, check_proto, load_proto, subgraphs_of
from onnxmem.model.optimize import LEVELS, ON_HOST, node_numbers, optimize, sort_by_chance, sort_by_numbers
from onnxmem.model.runtime_shapes import with_runtime_shapes
from onnxmem.model.shapes import Inferred, computes_shapes, infer_shapes
from onnxmem.model.tensor_types import Scope, TensorType
from onnxmem.model.weights import Weight, is_constant, read_weights
from onnxmem.unknown import Unknown

VIEWS = ("raw", "optimized")


@dataclass(frozen=True, eq=False)
class Model:
    """An ONNX model whose weights stay on disk."""

    name: str
    proto: ModelProto
    folder: Path
    file_size: int
    _cache: dict[object, ModelProto] = field(default_factory=dict, repr=False)
    _numbered: dict[object, dict[str, int]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Model:
        """Read and check a model file."""
        path = Path(path)
        proto = load_proto(path, light=True)
        return cls(path.name, proto, path.parent, path.stat().st_size)

    @classmethod
    def of(cls, proto: ModelProto, name: str = "model") -> Model:
        """A model that is in memory, without external data."""
        return cls(name, check_proto(proto, name, Path()), Path(), proto.ByteSize())

    @cached_property
    def inputs(self) -> dict[str, tuple[Dim, ...] | None]:
        """The inputs a caller feeds, with their symbolic shapes."""
        return input_shapes(self.proto)

    @property
    def opset(self) -> int:
        """Which version of ONNX's own operators it uses."""
        return next((entry.version for entry in self.proto.opset_import if entry.domain in ("", "ai.onnx")), 1)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the model's free dimensions."""
        return free_dimensions(self.inputs)

    def weights(self, level: str | None = None) -> tuple[Weight, ...]:
        """All constants, those of subgraphs included: as in the file, or after ONNX Runtime's optimizer at a level."""
        proto = self.proto if level is None else self._optimized(level, {}, ordered=False)
        return tuple(_all_weights(proto.graph))

    def duplicates(self) -> tuple[Duplicates, ...]:
        """Weights stored more than once."""
        return find_duplicates(self.proto, self.folder)

    def graph(
        self,
        bindings: Mapping[str, int] | None = None,
        *,
        view: str | None = None,
        level: str = "all",
        fix_dims: bool = False,
        numbered: bool = False,
        device: int | None = None,
        time_limit: float = 20.0,
    ) -> Graph:
        """The graph with its shapes, for given numbers of the free dimensions; those without a number stay symbolic.

        `view` is "raw" or "optimized"; by default optimized, or raw with a note if ONNX Runtime cannot load it.
        `fix_dims` optimizes for just these dimensions, as ONNX Runtime does when they are overridden in the session.
        `numbered` gives nodes ONNX Runtime's own numbers, which its priority-based order needs. With a CUDA `device`
        it is the graph that ONNX Runtime would run there.
        """
        if view not in (None, *VIEWS):
            raise UsageError(f"there is no view '{view}'", hint=f"known: {', '.join(VIEWS)}")
        if level not in LEVELS:
            raise UsageError(f"there is no optimization level '{level}'", hint=f"known: {', '.join(LEVELS)}")
        bound = {name: shape for name, shape in self.inputs.items() if shape is not None}
        shapes = {n: tuple(substitute(d, bindings or {}) for d in shape) for n, shape in bound.items()}
        numbers = {n: shape for n, shape in _numeric(shapes).items() if fix_dims}
        notes: list[str] = []
        proto, seen = self.proto, "raw"
        if view != "raw":
            try:
                proto, seen = self._optimized(level, numbers, device=device), f"optimized ({level})"
            except ModelError as error:
                if view == "optimized":
                    raise
                notes.append(f"{error}; this is the graph as in the file")
        names = {name: substitute(symbol(name), bindings or {}) for name in self.dimensions}
        found = self._infer(proto, shapes, names, Deadline(max(time_limit, 0.01)))
        if found.contradictions:
            self._refuse(found.contradictions[0], _numeric(shapes))
        if below_zero := _below_zero(found.scope.types):
            raise _impossible(f"tensor '{below_zero}' would have a negative dimension", _numeric(shapes))
        there = device is not None and seen != "raw"
        graph = _build(proto.graph, found.scope, found.reasons, optimized=seen != "raw", on_cuda=there)
        if seen != "raw" and [list(n.outputs) for n in graph.nodes] == _outputs(self.proto.graph):
            # Nothing was changed, so ONNX Runtime wrote the nodes as they were, not in the order it would run them.
            graph = replace(graph, numbering="file")
        # Old files list their weights as inputs too, and the list outlives the weights that the optimizer folds away.
        graph = replace(
            graph,
            inputs=tuple(self.inputs),
            tensors={n: t for n, t in graph.tensors.items() if n in self.inputs or n not in graph.inputs},
        )
        if seen != "raw":
            declared = {value.name: _runtime_shape(value.type) for value in self.proto.graph.input}
            graph = with_runtime_shapes(graph, {name: shape for name, shape in declared.items() if shape is not None})
        if numbered and seen != "raw":
            numbered_as = self._numbers(level, numbers)
            nodes = tuple(replace(node, index=_number(node, numbered_as)) for node in graph.nodes)
            graph = replace(graph, nodes=nodes, numbering="runtime")
        return replace(_viewed(graph, seen), notes=tuple(notes))

    def optimized(self, level: str, fixed: Mapping[str, tuple[int, ...]], device: int | None = None) -> ModelProto:
        """What ONNX Runtime makes of it at a level, for these input shapes; its large weights are left out."""
        return self._optimized(level, fixed, device=device)

    def _optimized(
        self,
        level: str,
        fixed: Mapping[str, tuple[int, ...]],
        *,
        ordered: bool = True,
        device: int | None = None,
    ) -> ModelProto:
        key = (level, tuple(sorted(fixed.items())), device)
        if key not in self._cache:
            self._check_dimensions()
            optimized = optimize(self.proto, self.folder, level, fixed, device)
            if not ordered or device is not None:
                return optimized
            if not sort_by_chance(optimized):
                with suppress(RuntimeUnsupported):  # too large to be numbered: any of its orders will do
                    sort_by_numbers(optimized, self._numbers(level, fixed))
            self._cache[key] = optimized
        return self._cache[key]

    def _check_dimensions(self) -> None:
        """ONNX Runtime follows a shape of any length, into all the memory there is: it gets no such model."""
        if not self._cache and computes_shapes(self.proto.graph):
            shapes = {name: shape for name, shape in self.inputs.items() if shape is not None}
            infer_shapes(self.proto, shapes, names={}, time_limit=20.0)

    def _numbers(self, level: str, fixed: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        key = (level, tuple(sorted(fixed.items())))
        if key not in self._numbered:
            self._numbered[key] = node_numbers(self.proto, self.folder, level, fixed)
        return self._numbered[key]

    def _infer(
        self,
        proto: ModelProto,
        shapes: Mapping[str, tuple[Dim, ...]],
        names: Mapping[str, Dim],
        deadline: Deadline,
    ) -> Inferred:
        found = infer_shapes(proto, shapes, names=names, time_limit=deadline.left)
        complete = all(_known(kind) for kind in found.scope.types.values())
        if complete or found.contradictions or len(_numeric(shapes)) < len(self.inputs) or deadline.passed:
            return found
        # ONNX Runtime has schemas for its own operators that ONNX lacks: with numbers for all inputs, let it infer too.
        try:
            inferred = optimize(proto, self.folder, "disabled", _numeric(shapes))
        except ModelError:
            return found
        richer = ModelProto()
        richer.CopyFrom(proto)
        del richer.graph.value_info[:]
        richer.graph.value_info.extend(inferred.graph.value_info)
        return infer_shapes(richer, shapes, names=names, time_limit=deadline.left)

    def _refuse(self, contradiction: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ImpossibleShapes if ONNX Runtime, too, takes the model but not with inputs of these shapes."""
        try:
            optimize(self.proto, self.folder, "disabled", {})
        except ModelError:
            return  # it does not know the model at all: no second witness
        try:
            optimize(self.proto, self.folder, "disabled", shapes)
        except ModelError as error:
            raise _impossible(contradiction, shapes) from error


def _below_zero(types: Mapping[str, TensorType]) -> str | None:
    """A tensor of the main graph, which is always computed, for which the inputs are too small."""
    sized = ((name, kind.shape) for name, kind in types.items() if kind.shape is not None)
    return next((name for name, shape in sized if any(isinstance(dim, int) and dim < 0 for dim in shape)), None)


def _impossible(why: str, shapes: Mapping[str, tuple[int, ...]]) -> ImpossibleShapes:
    inputs = ", ".join(f"{name} {'×'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())
    return ImpossibleShapes(
        f"the model cannot run with these inputs: {why}",
        hint=f"the inputs were {inputs}; give sizes that suit the model with --shape or --dim",
    )


def _all_weights(graph: GraphProto) -> Iterator[Weight]:
    yield from read_weights(graph)
    for node in graph.node:
        for inner in subgraphs_of(node):
            yield from _all_weights(inner)


def _numeric(shapes: Mapping[str, tuple[Dim, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes in which nothing is symbolic."""
    found = {}
    for name, shape in shapes.items():
        numbers = tuple(dim for dim in shape if isinstance(dim, int))
        if len(numbers) == len(shape):
            found[name] = numbers
    return found


def _outputs(graph: GraphProto) -> list[list[str]]:
    return [list(node.output) for node in graph.node if not is_constant(node)]


def _viewed(graph: Graph, view: str) -> Graph:
    """The same, and every graph in it, as seen in this view."""
    nodes = tuple(
        replace(node, subgraphs=tuple(_viewed(each, view) for each in node.subgraphs)) if node.subgraphs else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, view=view)


def _number(node: Node, numbers: Mapping[str, int]) -> int:
    return numbers.get(next(filter(None, node.outputs), ""), node.index)


def _known(kind: TensorType) -> bool:
    return kind.shape is not None and not any(name.startswith("?") for dim in kind.shape for name in symbols_of(dim))


def _build(
    proto: GraphProto, scope: Scope, reasons: Mapping[str, str], *, optimized: bool, on_cuda: bool = False
) -> Graph:
    stored = {tensor.name for tensor in proto.initializer} | {t.values.name for t in proto.sparse_initializer}
    inputs = tuple(value.name for value in proto.input if value.name not in stored)
    listed = (*proto.value_info, *proto.input) if optimized else ()
    runtime_shapes = {value.name: _runtime_shape(value.type) for value in listed}
    nodes, tensors = (
        [],
        {
            name: replace(_tensor(name, scope.types.get(name), reasons), runtime_shape=runtime_shapes.get(name))
            for name in inputs
        },
    )
    for index, node in enumerate(proto.node):
        if is_constant(node):
            continue
        graphs = tuple(
            _build(graph, scope.children.get((index, k), Scope(scope)), reasons, optimized=optimized, on_cuda=on_cuda)
            for k, graph in enumerate(subgraphs_of(node))
        )
        names = tuple(node.input), tuple(node.output)
        on_host = node.doc_string == ON_HOST
        nodes.append(Node(index, node.name, node.op_type, node.domain, *names, graphs, _attributes(node), on_host))
        for name in filter(None, node.output):
            tensors[name] = replace(
                _tensor(name, scope.types.get(name), reasons), runtime_shape=runtime_shapes.get(name)
            )
    return Graph(
        proto.name,
        tuple(nodes),
        inputs,
        tuple(value.name for value in proto.output),
        tensors,
        read_weights(proto),
        captured=tuple(captured_names(proto)),
        on_cuda=on_cuda,
        numbering="saved" if optimized else "file",
    )


def _attributes(node: NodeProto) -> dict[str, Any]:
    plain = (a for a in node.attribute if not a.HasField("t") and not a.HasField("g") and not a.graphs)
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in plain}


def _tensor(name: str, kind: TensorType | None, reasons: Mapping[str, str]) -> Tensor:
    if kind is None:
        return Tensor(name, "unknown", None, Unknown("its type is not known"))
    dtype, width = dtype_name(kind.elem_type), bits(kind.elem_type)
    if kind.shape is None:
        return Tensor(name, dtype, None, Unknown(kind.reason or "its shape is not known"))
    unknown = next((n for dim in kind.shape for n in sorted(symbols_of(dim)) if n.startswith("?")), None)
    if unknown is not None:
        return Tensor(name, dtype, kind.shape, Unknown(reasons[unknown]))
    if any(isinstance(dim, int) and dim < 0 for dim in kind.shape):
        return Tensor(
            name, dtype, kind.shape, Unknown("a dimension is negative: the inputs are too small for the model")
        )
    if width is None:
        what = "a string has no fixed size" if dtype == "string" else f"elements of type {dtype} have no known size"
        return Tensor(name, dtype, kind.shape, Unknown(what))
    return Tensor(name, dtype, kind.shape, ceil_div(product(kind.shape) * width, 8))


def _runtime_shape(proto: TypeProto) -> tuple[int | str | None, ...] | None:
    """A shape as ONNX Runtime saved it: numbers, names it knows to be equal, and None for what it cannot tell."""
    if proto.WhichOneof("value") != "tensor_type":
        return None
    if not proto.tensor_type.HasField("shape"):
        return (None,)
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in proto.tensor_type.shape.dim
    )
