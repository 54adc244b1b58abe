"""Small models whose runs are not always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any]) -> bytes:
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _value(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def data_dependent() -> bytes:
    """A convolution-like beginning that is always the same, then as many rows as there are positive numbers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Greater", ["c", "zero"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["where"]),
        helper.make_node("Cast", ["where"], ["floats"], to=FLOAT),
        helper.make_node("Sin", ["floats"], ["sines"]),
        helper.make_node("ReduceSum", ["sines"], ["sum"], keepdims=0),
        helper.make_node("Add", ["c", "sum"], ["y"]),
    ]
    constants = {
        "w": np.random.default_rng(0).standard_normal((32, 512), np.float32) / 32,
        "v": np.random.default_rng(1).standard_normal((512, 8), np.float32) / 32,
        "zero": np.float32(0),
    }
    inputs, outputs = [_value("x", FLOAT, "n", 32)], [_value("y", FLOAT, "n", 8)]
    return _model(nodes, inputs, outputs, constants)


def branching() -> bytes:
    """If the flag is set it needs much, otherwise little."""
    x, y = _value("x", FLOAT, "n"), _value("y", FLOAT, "n")
    large = helper.make_graph(
        [
            helper.make_node("Concat", ["h"] * 4, ["four"], axis=0),
            helper.make_node("Exp", ["four"], ["grown"]),
            helper.make_node("Split", ["grown"], ["p", "q", "r", "s"], axis=0),
            helper.make_node("Add", ["p", "s"], ["large"]),
        ],
        "then",
        [],
        [_value("large", FLOAT, "n")],
    )
    small = helper.make_graph([helper.make_node("Sin", ["h"], ["small"])], "else", [], [_value("small", FLOAT, "n")])
    nodes = [
        helper.make_node("Cos", ["x"], ["h"]),
        helper.make_node("If", ["flag"], ["picked"], then_branch=large, else_branch=small),
        helper.make_node("Tanh", ["picked"], ["y"]),
    ]
    return _model(nodes, [x, _value("flag", TensorProto.BOOL)], [y], {})


def looping() -> bytes:
    """A Loop whose number of turns is an input."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go"]),
            helper.make_node("Sin", ["state_in"], ["sine"]),
            helper.make_node("Add", ["sine", "x"], ["state"]),
        ],
        "body",
        [
            _value("turn", TensorProto.INT64),
            _value("go_in", TensorProto.BOOL),
            _value("state_in", FLOAT, "n"),
        ],
        [_value("go", TensorProto.BOOL), _value("state", FLOAT, "n")],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["start"]),
        helper.make_node("Loop", ["turns", "yes", "start"], ["looped"], body=body),
        helper.make_node("Cos", ["looped"], ["y"]),
    ]
    inputs = [_value("x", FLOAT, "n"), _value("turns", TensorProto.INT64)]
    return _model(nodes, inputs, [_value("y", FLOAT, "n")], {"yes": np.bool_(True)})


def tower(layers: int = 6) -> bytes:
    """A chain with a skip, and two outputs."""
    nodes, last = [], "x"
    for layer in range(layers):
        nodes.append(helper.make_node("Sin" if layer % 2 else "Exp", [last], [f"t{layer}"]))
        last = f"t{layer}"
    nodes.append(helper.make_node("Concat", ["t0", last], ["y"], axis=0))
    nodes.append(helper.make_node("ReduceMax", [last], ["z"], keepdims=0))
    outputs = [_value("y", FLOAT, "m", "k"), _value("z", FLOAT)]
    return _model(nodes, [_value("x", FLOAT, "n", "k")], outputs, {})
