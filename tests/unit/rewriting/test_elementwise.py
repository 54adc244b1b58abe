"""Kernels that compute element by element, asked: does an element get the same bits wherever it stands?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxmem.rewriting.elementwise import BROADCASTING, UNARY
from tests.unit.rewriting.models import Array, run

LENGTH = 4099
_TRUTH = ("Not", "And", "Or", "Xor", "Where")


def asked(op_type: str, domain: str, inputs: list[Array], threads: int) -> Array:
    """What the kernel makes of these."""
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in inputs]
    names = [f"x{k}" for k in range(len(inputs))]
    attributes: dict[str, Any] = {"to": TensorProto.DOUBLE} if op_type == "Cast" else {}
    made = {"Cast": TensorProto.DOUBLE}.get(op_type, TensorProto.BOOL if _decides(op_type) else TensorProto.FLOAT)
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], domain=domain, **attributes)],
        "one",
        [helper.make_tensor_value_info(name, kind, [None]) for name, kind in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info("y", made, [None])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return run(model, dict(zip(names, inputs, strict=True)), threads)[0]


def _decides(op_type: str) -> bool:
    return op_type in ("Not", "And", "Or", "Xor", "Equal") or op_type.startswith(("Less", "Greater"))


CASES = [("", name, 1) for name in UNARY] + [("com.microsoft", name, 1) for name in ("Gelu", "QuickGelu")]
CASES += [("", name, 3 if name == "Where" else 2) for name in BROADCASTING]


@pytest.mark.parametrize(("domain", "op_type", "count"), [c for c in CASES if c[:2] != ("", "QuickGelu")])
def test_an_element_gets_the_same_bits_wherever_it_stands(domain: str, op_type: str, count: int) -> None:
    random = np.random.default_rng(0)
    inputs: list[Array] = [(3 * random.standard_normal(LENGTH)).astype(np.float32) for _ in range(count)]
    if op_type in ("Sqrt", "Pow"):
        inputs = [np.abs(array) for array in inputs]
    if op_type in _TRUTH:
        inputs[: 1 if op_type == "Where" else count] = [
            array > 0 for array in inputs[: 1 if op_type == "Where" else count]
        ]
    for threads in (1, 2):
        whole = asked(op_type, domain, inputs, threads)
        for first, last in ((0, 7), (1, 30), (3, 1025), (17, 4098), (2051, 4099)):
            part = asked(op_type, domain, [array[first:last].copy() for array in inputs], threads)
            assert part.tobytes() == whole[first:last].tobytes(), (threads, first, last)
