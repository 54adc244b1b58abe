"""An ONNX file → a checked ModelProto, without its external weights in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from onnxmem.errors import ModelError, UsageError
from onnxmem.files import check_file
from onnxmem.model.external import external_location
from onnxmem.model.values import MOST_DIMENSIONS
from onnxmem.model.wire import has_more_messages, without_weights

_PROTOBUF_LIMIT = 2**31
# Of nodes, and of all parts of a model: attributes, tensors, dimensions … Real models have a fifth of it.
_MOST_NODES, _MOST_PARTS, _DEEPEST_CALLS = 500_000, 1_000_000, 100


def load_proto(path: Path, *, light: bool = False) -> ModelProto:
    """Read, check and inline a model. External data stays in its files, which are only looked at.

    With `light`, so do large weights in the file itself, which then are external data like the others.
    """
    return check_proto(parse_proto(path, light=light), str(path), path.parent)


def check_proto(model: ModelProto, name: str, folder: Path) -> ModelProto:
    """The model with its local functions inlined, once nothing about it is wrong."""
    if not model.graph.node:
        raise ModelError(f"'{name}' has an empty graph: there is nothing to run")
    if (nodes := _count(model.graph)) > _MOST_NODES:
        raise ModelError(f"'{name}' has {nodes} nodes, and at most {_MOST_NODES} are followed")
    if not all(isinstance(text, str) for text in _texts(model)):
        # Protobuf hands out what is not UTF-8 as bytes.
        raise ModelError(f"'{name}' is damaged: a name in it is not text")
    check_structure(model.graph)
    for tensor in all_tensors(model):
        if any(dim < 0 for dim in tensor.dims):
            raise ModelError(f"tensor '{tensor.name}' has a negative dimension")
        if (dims := len(tensor.dims)) > MOST_DIMENSIONS:
            most = f"and at most {MOST_DIMENSIONS} are followed"
            raise ModelError(f"tensor '{tensor.name}' has {dims} dimensions, {most}")
        if tensor.data_location == TensorProto.EXTERNAL:
            external_location(tensor, folder)
    return _inlined(model, name) if model.functions else model


def _count(graph: GraphProto) -> int:
    return len(graph.node) + sum(_count(inner) for node in graph.node for inner in subgraphs_of(node))


def _inlined(model: ModelProto, name: str) -> ModelProto:
    """Local functions are calls; what runs, and takes memory, is their bodies."""
    from onnx import inliner  # noqa: PLC0415

    _check_calls(model, name)
    try:
        model = inliner.inline_local_functions(model)
    except (onnx.checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        message = " ".join(str(error).split())[:200]
        raise ModelError(f"the local functions of '{name}' cannot be followed: {message}") from error
    check_structure(model.graph)
    return model


def _check_calls(model: ModelProto, name: str) -> None:
    """Functions that call others twice, and those others twice, grow without end, as does one that calls itself."""
    unclear = f"the local functions of '{name}' cannot be followed"
    bodies = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Iterable[NodeProto], within: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            called = node.domain, node.op_type
            if called in within:
                raise ModelError(f"{unclear}: '{node.op_type}' calls itself")
            if called in bodies and called not in sizes:
                if len(within) >= _DEEPEST_CALLS:
                    raise ModelError(
                        f"the local functions of '{name}' cannot be followed: they call each other too deep"
                    )
                sizes[called] = size(bodies[called].node, (*within, called))
            total += sizes.get(called, 1) + sum(size(graph.node, within) for graph in subgraphs_of(node))
        return total

    nodes = size(model.graph.node, ())
    if nodes > _MOST_NODES:
        raise ModelError(f"{unclear}: with their bodies it has {nodes} nodes")


def _texts(model: ModelProto) -> Iterator[object]:
    """Every name in a model."""
    yield from (entry.domain for entry in model.opset_import)
    yield from _graph_texts(model.graph)
    for function in model.functions:
        yield from (function.domain, function.name, *function.input, *function.output, *function.attribute)
        for node in function.node:
            yield from _node_texts(node)


def _graph_texts(graph: GraphProto) -> Iterator[object]:
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for node in graph.node:
        yield from _node_texts(node)


def _node_texts(node: NodeProto) -> Iterator[object]:
    yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
    for attribute in node.attribute:
        yield from (attribute.name, attribute.ref_attr_name)
        yield from (text for entry in attribute.t.external_data for text in (entry.key, entry.value))
    for graph in subgraphs_of(node):
        yield from _graph_texts(graph)


def refuse_package(path: Path, *, ort: bool = False) -> None:
    """Say which file to give instead of a package; `ort`: whether that may be one in ORT format."""
    manifest = path / "manifest.json"
    if not manifest.is_file():
        return
    try:
        model = str(json.loads(manifest.read_bytes())["model"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        hint = "give the .onnx file in it"
    else:
        usable = ort or not model.endswith(".ort")
        hint = f"give the model in it: {path / model}" if usable else "give the .onnx file it was made from"
    raise UsageError(f"'{path}' is a package, and this takes a model file", hint=hint)


def parse_proto(path: Path, *, light: bool = False) -> ModelProto:
    """Read a model, as it is: nothing in it is looked at."""
    try:
        refuse_package(path)
        check_file(path)
        with path.open("rb") as file:
            head = file.read(64)
            if head[4:8] == b"ORTM":
                raise ModelError(
                    f"'{path}' is in ORT format, which holds an already optimized graph",
                    hint="give the .onnx file it was made from",
                )
            if head.startswith(b"version https://git-lfs"):
                raise ModelError(f"'{path}' is a Git LFS pointer, not the model", hint="run: git lfs pull")
            if path.stat().st_size >= _PROTOBUF_LIMIT:
                raise ModelError(
                    f"'{path}' is 2 GiB or more, which protobuf cannot hold",
                    hint="models of this size keep their weights in external data files",
                )
            if has_more_messages(path, _MOST_PARTS):
                raise ModelError(f"'{path}' has more than {_MOST_PARTS} nodes, tensors and other parts")
            model = onnx.load_model_from_string(without_weights(path) if light else head + file.read())
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except DecodeError as error:
        raise ModelError(f"'{path}' is not an ONNX model, or it is truncated") from error
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(f"'{path}' is not an ONNX model{'' if head else ': it is empty'}")
    return model


def check_structure(graph: GraphProto, outer: tuple[Set[str], ...] = ()) -> None:
    """Every name is defined once and before it is needed, or at least without a cycle.

    `outer` are the names of each graph around this one. Not in one set: that would be made again for every graph inside
    of this one, of which there may be as many as there are names.
    """
    where = f" in graph '{graph.name}'" if graph.name else ""
    produced: dict[str, int] = {}
    fed = {value.name for value in graph.input}
    constants = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    if len(fed) != len(graph.input) or len(constants) != len(graph.initializer) + len(graph.sparse_initializer):
        raise ModelError(f"an input or initializer name appears twice{where}")
    for index, node in enumerate(graph.node):
        _check_node(node, where)
        for name in filter(None, node.output):
            if name in produced or name in fed or name in constants:
                raise ModelError(f"tensor '{name}' is defined twice{where}")
            produced[name] = index
    around = (*outer, fed | constants | produced.keys())
    for node in graph.node:
        for name in node_reads(node):
            if not any(name in names for names in around):
                raise ModelError(f"node '{node.name or node.op_type}' needs '{name}', which nothing produces{where}")
        for subgraph in subgraphs_of(node):
            check_structure(subgraph, around)
    for value in graph.output:
        if not any(value.name in names for names in around):
            raise ModelError(f"output '{value.name}' is produced by nothing{where}")
    _check_acyclic(graph, produced, where)


_CONSTANT_KINDS = {
    "value": onnx.AttributeProto.TENSOR,
    "sparse_value": onnx.AttributeProto.SPARSE_TENSOR,
    "value_int": onnx.AttributeProto.INT,
    "value_ints": onnx.AttributeProto.INTS,
    "value_float": onnx.AttributeProto.FLOAT,
    "value_floats": onnx.AttributeProto.FLOATS,
    "value_string": onnx.AttributeProto.STRING,
    "value_strings": onnx.AttributeProto.STRINGS,
}


def _check_node(node: NodeProto, where: str) -> None:
    """A node has all that is later taken for granted."""
    label = f"node '{node.name}' ({node.op_type})" if node.name else f"a node {node.op_type}"
    if not any(node.output):
        raise ModelError(f"{label} has no output{where}")
    if node.domain not in ("", "ai.onnx"):
        return
    kinds = {attribute.name: attribute.type for attribute in node.attribute}
    graphs = list(subgraphs_of(node))
    if node.op_type == "Constant":
        (name, kind), *more = [*kinds.items()] or [("", 0)]
        sound = not more and _CONSTANT_KINDS.get(name) == kind and len(node.attribute) == 1 and bool(node.output[0])
    elif node.op_type == "If":
        sound = len(graphs) == 2 and len(node.input) == 1
    elif node.op_type == "Loop":
        sound = len(graphs) == 1 and len(graphs[0].input) >= 2 and len(graphs[0].output) >= 1 and len(node.input) >= 2
    elif node.op_type == "Scan":
        scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)
        sound = len(graphs) == 1 and 1 <= scanned <= len(node.input)
    else:
        return
    if not sound:
        raise ModelError(f"{label} lacks what its operator needs{where}")


def _check_acyclic(graph: GraphProto, produced: dict[str, int], where: str) -> None:
    waiting = [len({produced[n] for n in node_reads(node) if n in produced}) for node in graph.node]
    readers: dict[int, set[int]] = {}
    for index, node in enumerate(graph.node):
        for name in node_reads(node):
            if name in produced:
                readers.setdefault(produced[name], set()).add(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    done = 0
    while ready:
        done += 1
        for reader in readers.get(ready.pop(), ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if done < len(graph.node):
        stuck = next(node for node, count in zip(graph.node, waiting, strict=True) if count > 0)
        raise ModelError(f"the graph has a cycle through node '{stuck.name or stuck.op_type}'{where}")


def subgraphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node, as in If, Loop and Scan."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def node_reads(node: NodeProto) -> Iterator[str]:
    """The names a node needs from its own graph or those around it: inputs and its subgraphs' captures."""
    yield from filter(None, node.input)
    for graph in subgraphs_of(node):
        yield from captured_names(graph)


def captured_names(graph: GraphProto) -> Iterator[str]:
    """The names a subgraph needs from outside itself, each once."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    needed = [name for node in graph.node for name in node_reads(node)] + [value.name for value in graph.output]
    yield from dict.fromkeys(name for name in needed if name not in own)


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor of a model: initializers and attributes, in all graphs and functions."""
    yield from graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)


def graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every stored tensor of a graph and its subgraphs."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors
    for graph in subgraphs_of(node):
        yield from graph_tensors(graph)
