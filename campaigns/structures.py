"""What strangers might write into a graph beyond changed fields: functions, subgraphs, sparse tensors, cycles."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
)

from campaigns.mutations import NUMBERS, TEXTS, changed_model

_LARGE = (2**31 - 1, 2**32, 2**53, 2**61, 2**62, 2**63 - 1, 2**63 - 64, -(2**63))
_PATHS = (
    "../outside.bin", "../outside.bin", "./../outside.bin", "sub/../../outside.bin", "weights.bin/../../outside.bin",
    "/etc/passwd", "/dev/zero", "/proc/self/mem",
    "weights.bin", "./weights.bin", "weights.bin/", "link.bin", "model.onnx", "", ".", "..", "a\x00b", "n" * 300,
)  # fmt: skip


def restructured_model(model: ModelProto, chance: random.Random) -> ModelProto:
    """A model with one to three things of these kinds, and at times with changed fields on top."""
    result = ModelProto()
    result.CopyFrom(model)
    for _ in range(chance.choice((1, 1, 2, 3))):
        chance.choice(_CHANGES)(result, chance)
    return changed_model(result, chance) if chance.random() < 0.3 else result


def _names(graph: GraphProto) -> list[str]:
    return [name for node in graph.node for name in (*node.input, *node.output) if name] or ["x"]


def _inner(model: ModelProto) -> list[GraphProto]:
    """All graphs, those in functions and in lists of graphs among them."""
    nodes, found = [*model.graph.node, *(n for f in model.functions for n in f.node)], [model.graph]
    for node in nodes:
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
            found += graphs
            nodes += [inner for graph in graphs for inner in graph.node]
    return found


def _function(model: ModelProto, chance: random.Random) -> None:
    """A function that calls itself, or another that calls it; two of one name; other inputs and attributes."""
    if not model.functions:
        body = helper.make_node("Relu", ["a"], ["b"])
        function = helper.make_function("local", "f", ["a"], ["b"], [body], [helper.make_opsetid("", 17)])
        model.functions.append(function)
        model.opset_import.append(helper.make_opsetid("local", 1))
    function = chance.choice(model.functions)
    call = helper.make_node(function.name, list(function.input), ["z"], domain=function.domain)
    how = chance.randrange(8)
    if how == 0:
        function.node.append(call)
    elif how == 1:
        model.functions.append(FunctionProto.FromString(function.SerializeToString()))
    elif how == 2:
        function.input.append(chance.choice((*TEXTS, *function.input)))
    elif how == 3:
        function.output.append(chance.choice((*TEXTS, *function.output)))
    elif how == 4:
        function.attribute.append(chance.choice(TEXTS))
        node = function.node.add(op_type="Constant", output=["k"])
        node.attribute.add(name="value_int", ref_attr_name=chance.choice(TEXTS), type=AttributeProto.INT)
    elif how == 5:
        del function.opset_import[:]
    elif how == 6:  # each calls the one before twice: the last is 2^n of the first
        for number in range(chance.choice((3, 12, 30))):
            inner, domain = (f"g{number}", "local") if number else ("Relu", "")
            twice = [helper.make_node(inner, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))]
            imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
            model.functions.append(helper.make_function("local", f"g{number + 1}", ["a"], ["b"], twice, imports))
        if model.graph.node:
            node = chance.choice(model.graph.node)
            node.op_type, node.domain = f"g{number + 1}", "local"
    else:
        model.graph.node.append(call)


def _subgraph(model: ModelProto, chance: random.Random) -> None:
    """A graph in a node that has none, in itself many levels deep, or twice."""
    graph = chance.choice(_inner(model))
    if not graph.node:
        return
    node, how = chance.choice(graph.node), chance.randrange(4)
    if how == 0:
        node.attribute.append(helper.make_attribute("body", chance.choice(_inner(model))))
    elif how == 1:
        inner = helper.make_graph([helper.make_node("Relu", [chance.choice(_names(graph))], ["q"])], "inner", [], [
            helper.make_tensor_value_info("q", TensorProto.FLOAT, None)])  # fmt: skip
        for _ in range(chance.choice((2, 10, 25))):
            deeper = helper.make_node("If", ["c"], ["q"], then_branch=inner, else_branch=GraphProto(name="e"))
            inner = helper.make_graph([deeper], "inner", [], list(inner.output))
        node.attribute.append(helper.make_attribute("then_branch", inner))
        node.op_type, node.domain = "If", ""
    elif how == 2:
        attribute = node.attribute.add(name="graphs", type=AttributeProto.GRAPHS)
        attribute.graphs.add().CopyFrom(GraphProto(name=chance.choice(TEXTS)))
    else:
        chance.choice(_inner(model)).output.add(name=chance.choice(_names(graph)))


def _sparse(model: ModelProto, chance: random.Random) -> None:
    """A sparse weight: its values, their places, and a shape that may not hold them."""
    graph = chance.choice(_inner(model))
    count = chance.choice((0, 1, 3))
    values = helper.make_tensor(chance.choice(_names(graph)), TensorProto.FLOAT, [count], [1.0] * count)
    indices = helper.make_tensor("i", TensorProto.INT64, [count], [chance.choice(NUMBERS) for _ in range(count)])
    sparse = SparseTensorProto(dims=[chance.choice((*NUMBERS, *_LARGE)) for _ in range(chance.choice((0, 1, 2)))])
    sparse.values.CopyFrom(values)
    if chance.random() < 0.8:
        sparse.indices.CopyFrom(indices)
    if chance.random() < 0.6 or not graph.node:
        graph.sparse_initializer.append(sparse)
    else:
        node = chance.choice(graph.node)
        node.op_type, node.domain = "Constant", ""
        del node.input[:], node.attribute[:]
        node.attribute.append(helper.make_attribute("sparse_value", sparse))


def _cycle(model: ModelProto, chance: random.Random) -> None:
    """A node reads what comes after it, or what it makes itself, also through a subgraph."""
    graph = chance.choice(_inner(model))
    if not graph.node:
        return
    first, last = graph.node[0], graph.node[-1]
    chance.choice((first, last)).input.append(chance.choice((*last.output, *first.output, "x")))


def _twice(model: ModelProto, chance: random.Random) -> None:
    """A name that stands for two things: inputs, outputs, weights, nodes, dimensions, imports, entries."""
    graph, how = chance.choice(_inner(model)), chance.randrange(6)
    if how == 0 and graph.input:
        graph.input.append(chance.choice(graph.input))
    elif how == 1 and graph.output:
        graph.output.append(chance.choice(graph.output))
    elif how == 2 and graph.initializer:
        graph.initializer.append(chance.choice(graph.initializer))
    elif how == 3:
        graph.initializer.add(name=chance.choice(_names(graph)), data_type=1, dims=[1], raw_data=bytes(4))
    elif how == 4 and graph.node:
        node = chance.choice(graph.node)
        node.attribute.extend([AttributeProto.FromString(a.SerializeToString()) for a in node.attribute])
    else:
        model.opset_import.add(domain=chance.choice(("", "ai.onnx", "local")), version=chance.choice((1, 13, 17, 99)))


def _large(model: ModelProto, chance: random.Random) -> None:
    """Sizes whose product does not fit into 64 bits, where the graph takes them from."""
    graph, sizes = chance.choice(_inner(model)), [chance.choice(_LARGE) for _ in range(chance.choice((1, 2, 4)))]
    how = chance.randrange(5)
    if how == 0:
        shape = [str(size) for size in sizes] if chance.random() < 0.2 else sizes
        graph.input.append(helper.make_tensor_value_info(f"l{chance.random()}", chance.choice((1, 7, 8, 16)), shape))
    elif how == 1 and graph.node:
        node = chance.choice(graph.node)
        graph.initializer.append(helper.make_tensor("large", TensorProto.INT64, [len(sizes)], sizes))
        operator = chance.choice(("Reshape", "Expand", "ConstantOfShape", "Tile", "Resize", "Pad", "Range", "Slice"))
        node.op_type, node.domain = operator, ""
        node.input[:] = ["large"] if operator == "ConstantOfShape" else [*node.input[:1], "large", "large"][:3]
    elif how == 2 and graph.initializer:
        chance.choice(graph.initializer).dims[:] = sizes
    elif how == 3 and graph.value_info:
        chance.choice(graph.value_info).type.tensor_type.shape.dim.add().dim_value = sizes[0]
    else:
        graph.value_info.append(helper.make_tensor_value_info(chance.choice(_names(graph)), 1, sizes))


def _external(model: ModelProto, chance: random.Random) -> None:
    """Weights in other files: outside of the folder, through links, behind the end, the model itself."""
    nodes = [node for graph in _inner(model) for node in graph.node]
    tensors = [tensor for graph in _inner(model) for tensor in graph.initializer]
    if not tensors or (nodes and chance.random() < 0.2):
        node = chance.choice(nodes) if nodes else model.graph.node.add(output=["k"])
        node.op_type, node.domain = "Constant", ""
        del node.input[:], node.attribute[:]
        tensor = TensorProto(name="t", data_type=1, dims=[4])
        node.attribute.append(helper.make_attribute("value", tensor))
        tensor = node.attribute[0].t
    else:
        tensor = chance.choice(tensors)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    if chance.random() < 0.7:
        tensor.dims[:] = [4]
    entries = {
        "location": chance.choice(_PATHS),
        "offset": str(chance.choice((0, 0, 16, 60, 64, *_LARGE, " 4", "0x4", "1e3", "٣"))),
        "length": str(chance.choice((16, 16, 0, 64, *_LARGE, "-0", "16 "))),
        chance.choice(("checksum", "basepath", "location", *TEXTS)): chance.choice((*TEXTS, "../")),
    }
    del tensor.external_data[:]
    for key, value in entries.items():
        if chance.random() < 0.9:
            tensor.external_data.add(key=key, value=value)


def _types(model: ModelProto, chance: random.Random) -> None:
    """Inputs that are no tensors: sequences of optional maps of sparse tensors."""
    value = chance.choice(_inner(model)).input.add(name=chance.choice((*TEXTS, "s")))
    kind = value.type
    for _ in range(chance.choice((1, 2, 40))):
        kind = chance.choice((lambda k: k.sequence_type.elem_type, lambda k: k.optional_type.elem_type,
                              lambda k: k.map_type.value_type))(kind)  # fmt: skip
    kind.tensor_type.elem_type = chance.choice((0, 1, 8, 99))


def _functions_node(model: ModelProto, chance: random.Random) -> None:
    """A node of a domain that is nobody's, with attributes of every kind."""
    node = NodeProto(op_type=chance.choice((*TEXTS, "Add")), domain=chance.choice((*TEXTS, "com.microsoft")))
    graph = chance.choice(_inner(model))
    node.input.extend(chance.choice(_names(graph)) for _ in range(chance.choice((0, 1, 3, 300))))
    node.output.extend(chance.choice((f"o{k}", "")) for k in range(chance.choice((0, 1, 3, 300))))
    for kind in range(14):
        if chance.random() < 0.2:
            node.attribute.add(name=chance.choice(TEXTS), type=kind)
    graph.node.insert(chance.randrange(len(graph.node) + 1), node)


def _grown(model: ModelProto, chance: random.Random) -> None:
    """A size that grows with each node, and the shape of a tensor at the end of it."""
    name, nodes = chance.choice([value.name for value in model.graph.input] or ["x"]), []
    nodes.append(helper.make_node("Shape", [name], ["grown0"]))
    steps = chance.choice((3, 20, 40))
    for step in range(steps):
        operator, last = chance.choice(("Mul", "Mul", "Add", "Max", "Div", "Concat", "Where")), f"grown{step}"
        inputs = [last] * {"Where": 3, "Concat": 100}.get(operator, 2)
        axis: dict[str, Any] = {"axis": 0} if operator == "Concat" else {}
        nodes.append(helper.make_node(operator, inputs, [f"grown{step + 1}"], **axis))
    nodes.append(helper.make_node("ConstantOfShape", [f"grown{steps}"], ["filled"]))
    model.graph.node.extend(nodes)


_CHANGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _function, _function, _subgraph, _sparse, _cycle, _twice, _large, _large, _external, _external, _types,
    _functions_node, _grown,
)  # fmt: skip
