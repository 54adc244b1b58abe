"""What strangers might write: valid files with a few things changed, and changed bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

NUMBERS = (0, 1, -1, 2, 7, 64, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
TEXTS = (
    "", "x", "<script>alert(1)</script>", "a\x00b", "\x1b[31mred\x1b[0m", "\u202egnp.exe", "../../etc/passwd",
    "/dev/zero", "{{7*7}}", "| a | b |", "é" * 40, "n" * 5_000, "\n\n# title", "con", "%s%n", "a\tb",
)  # fmt: skip
OPERATORS = (
    "Add", "Conv", "Relu", "MatMul", "Gemm", "Reshape", "Transpose", "Concat", "Slice", "Resize", "If", "Loop", "Scan",
    "Split", "Gather", "Shape", "ConstantOfShape", "Range", "Expand", "Tile", "Pad", "MaxPool", "LSTM", "TopK",
    "NonZero", "Where", "Cast", "QLinearConv", "Einsum", "ScatterND", "Squeeze", "Unsqueeze", "Constant", "NoSuch",
    "ReduceSum", "Flatten", "OneHot", "SequenceAt", "Optional", "Attention", "STFT", "ConvTranspose", "GridSample",
)  # fmt: skip


def changed_bytes(content: bytes, chance: random.Random) -> bytes:
    """Some bytes flipped, removed, repeated or cut off."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if not data:
            return bytes(data)
        place, length = chance.randrange(len(data)), chance.choice((1, 2, 4, 16))
        how = chance.randrange(5)
        if how == 0:
            data[place] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[place : place + length] = chance.randbytes(length)
        elif how == 2:
            del data[place : place + length]
        elif how == 3:
            data[place:place] = data[place : place + length] * chance.choice((1, 2, 50))
        elif chance.random() < 0.3:
            del data[place:]
    return bytes(data)


def changed_text(content: str, chance: random.Random) -> str:
    """Some numbers, fields and lines of a table replaced."""
    lines = content.split("\n")
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(lines))
        fields = lines[place].split(",")
        how = chance.randrange(6)
        if how in (0, 5):
            fields[chance.randrange(len(fields))] = str(chance.choice((*NUMBERS, 1e308, "nan", "inf", "0x10", "1_0")))
        elif how == 1:
            fields[chance.randrange(len(fields))] = chance.choice(TEXTS)
        elif how == 2:
            fields = fields[:-1] if chance.random() < 0.5 else [*fields, *fields]
        elif how == 3:
            lines.insert(place, chance.choice(lines))
        else:
            lines[place], lines[0] = lines[0], lines[place]
            continue
        lines[place] = ",".join(fields)
    return "\n".join(lines)


_TOML = (
    "true", "[]", "{}", "[[]]", "1.5", "nan", "-inf", "1e308", "2026-11-16", "07:32:00", '{a = {b = 1}}', '["a", 1]',
    "9223372036854775808", '"*"', '"**x"', '"[a"', '"../*"', '"."', "[1, [2]]", '{"" = 1}', "1_000", "'lit'",
)  # fmt: skip


def changed_toml(content: str, chance: random.Random) -> str:
    """Some keys, values and lines of a TOML file replaced."""
    lines = content.split("\n")
    for _ in range(chance.choice((1, 1, 2, 4))):
        place, how = chance.randrange(len(lines)), chance.randrange(6)
        key, equals, value = lines[place].partition(" = ")
        if how in (0, 1) and equals:
            texts = [json.dumps(text) for text in TEXTS]
            lines[place] = f"{key} = {chance.choice((*map(str, NUMBERS), *_TOML, *texts))}"
        elif how == 2 and equals:
            keys = [line.partition(" = ")[0] for line in lines if " = " in line]
            lines[place] = f"{chance.choice((*keys, json.dumps(chance.choice(TEXTS))))} = {value}"
        elif how == 3 and equals:  # inside a value
            inner = [number for number in range(len(value)) if value[number].isdigit()]
            if inner:
                at = chance.choice(inner)
                lines[place] = f"{key} = {value[:at]}{chance.choice(NUMBERS)}{value[at + 1 :]}"
        elif how == 4:
            lines.insert(place, chance.choice(lines))
        else:
            del lines[place]
            lines = lines or [""]
    return "\n".join(lines)


def changed_json(content: str, chance: random.Random) -> str:
    """Some values of a document replaced, removed or put elsewhere."""
    document = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = list(_places(document))
        if not places:
            break
        holder, key = chance.choice(places)
        how = chance.randrange(4)
        if how == 0:
            holder[key] = chance.choice((*NUMBERS, *TEXTS, None, True, 1.5, 1e308, [], {}, [[]], {"a": {}}))
        elif how == 1:
            del holder[key]
        elif how == 2:
            other, name = chance.choice(places)
            try:
                holder[key] = json.loads(json.dumps(other[name]))
            except (KeyError, IndexError):
                continue
        elif isinstance(holder, dict):
            holder[chance.choice(TEXTS)] = holder.pop(key)
    return json.dumps(document)


def _places(document: Any) -> Any:
    if isinstance(document, dict | list):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _places(document[key])


def changed_model(model: ModelProto, chance: random.Random) -> ModelProto:
    """A few things of a model changed: shapes, types, names, operators, attributes, weights, versions."""
    result = ModelProto()
    result.CopyFrom(model)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        chance.choice(_CHANGES)(result, chance)
    return result


def _graphs(model: ModelProto) -> list[GraphProto]:
    found = [model.graph]
    for graph in found:
        found += [a.g for n in graph.node for a in n.attribute if a.type == AttributeProto.GRAPH]
    return found


def _graph(model: ModelProto, chance: random.Random) -> GraphProto:
    return chance.choice(_graphs(model))


def _node(model: ModelProto, chance: random.Random) -> NodeProto | None:
    nodes = [node for graph in _graphs(model) for node in graph.node]
    return chance.choice(nodes) if nodes else None


def _dimension(model: ModelProto, chance: random.Random) -> None:
    graph = _graph(model, chance)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    shape = chance.choice(values).type.tensor_type.shape
    how = chance.randrange(4)
    if how == 0 or not shape.dim:
        shape.dim.add().dim_value = chance.choice(NUMBERS)
    elif how == 1:
        del shape.dim[chance.randrange(len(shape.dim))]
    elif how == 2:
        chance.choice(shape.dim).dim_value = chance.choice(NUMBERS)
    else:
        chance.choice(shape.dim).dim_param = chance.choice(TEXTS)


def _type(model: ModelProto, chance: random.Random) -> None:
    graph = _graph(model, chance)
    values = [*graph.input, *graph.output, *graph.value_info]
    if values:
        chance.choice(values).type.tensor_type.elem_type = chance.choice((0, 1, 6, 7, 8, 9, 10, 11, 16, 22, 23, 99))


def _rename(model: ModelProto, chance: random.Random) -> None:
    """One name becomes another that is there: cycles, names made twice, names nobody makes."""
    node = _node(model, chance)
    if node is None:
        return
    graph = _graph(model, chance)
    names = [name for each in graph.node for name in (*each.input, *each.output)] or ["x"]
    side = node.input if node.input and chance.random() < 0.5 else node.output
    if side:
        side[chance.randrange(len(side))] = chance.choice((chance.choice(names), chance.choice(TEXTS)))


def _nodes(model: ModelProto, chance: random.Random) -> None:
    graph = _graph(model, chance)
    if not graph.node:
        return
    place, how = chance.randrange(len(graph.node)), chance.randrange(3)
    if how == 0:
        del graph.node[place]
    elif how == 1:
        graph.node.add().CopyFrom(graph.node[place])
    else:
        nodes = list(graph.node)
        chance.shuffle(nodes)
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _operator(model: ModelProto, chance: random.Random) -> None:
    node = _node(model, chance)
    if node is not None and chance.random() < 0.7:
        node.op_type = chance.choice(OPERATORS)
    elif node is not None:
        node.domain = chance.choice(("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "local", *TEXTS))


def _attribute(model: ModelProto, chance: random.Random) -> None:
    node = _node(model, chance)
    if node is None:
        return
    if not node.attribute or chance.random() < 0.2:
        name = chance.choice(("axis", "axes", "pads", "strides", "kernel_shape", "group", "to", "perm", *TEXTS[:3]))
        node.attribute.append(helper.make_attribute(name, chance.choice((*NUMBERS, [1, 2], [-1], "same", 1.5))))
        return
    attribute = chance.choice(node.attribute)
    how = chance.randrange(4)
    if how == 0:
        node.attribute.remove(attribute)
    elif how == 1:
        attribute.i = chance.choice(NUMBERS)
    elif how == 2:
        attribute.ints.append(chance.choice(NUMBERS))
    else:
        attribute.type = chance.choice((1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13))


def _weight(model: ModelProto, chance: random.Random) -> None:
    graph = _graph(model, chance)
    if not graph.initializer:
        return
    tensor = chance.choice(graph.initializer)
    how = chance.randrange(5)
    if how == 0:
        tensor.dims.append(chance.choice(NUMBERS))
    elif how == 1 and tensor.dims:
        tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice(NUMBERS)
    elif how == 2:
        tensor.data_type = chance.choice((0, 1, 2, 6, 7, 8, 9, 10, 16, 22, 23, 99))
    elif how == 3:
        tensor.raw_data = tensor.raw_data[: chance.randrange(len(tensor.raw_data) + 1)]
    else:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
        del tensor.external_data[:]
        for key, value in (("location", chance.choice((*TEXTS, "weights.bin"))), ("offset", chance.choice(NUMBERS)),
                           ("length", chance.choice(NUMBERS))):  # fmt: skip
            if chance.random() < 0.8:
                tensor.external_data.add(key=key, value=str(value))


def _version(model: ModelProto, chance: random.Random) -> None:
    if chance.random() < 0.5 and model.opset_import:
        chance.choice(model.opset_import).version = chance.choice((0, 1, 6, 9, 13, 21, 23, 99, 2**31))
    else:
        model.ir_version = chance.choice((0, 1, 3, 8, 13, 2**40))


def _text(model: ModelProto, chance: random.Random) -> None:
    node, text = _node(model, chance), chance.choice(TEXTS)
    how = chance.randrange(4)
    if how == 0 and node is not None:
        node.name = text
    elif how == 1:
        model.graph.name = text
    elif how == 2:
        model.producer_name = text
    else:
        old = chance.choice([*model.graph.input, *model.graph.output] or [model.graph.input.add()])
        for each in model.graph.node:
            each.input[:] = [text if name == old.name else name for name in each.input]
            each.output[:] = [text if name == old.name else name for name in each.output]
        old.name = text


def _drop(model: ModelProto, chance: random.Random) -> None:
    fields = ("input", "output", "initializer", "value_info", "node")
    field = getattr(_graph(model, chance), chance.choice(fields))
    if field:
        del field[chance.randrange(len(field))]


_CHANGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _dimension, _dimension, _type, _rename, _rename, _nodes, _operator, _attribute, _attribute, _weight, _version,
    _text, _drop,
)  # fmt: skip
