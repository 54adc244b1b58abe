"""Kernels that compute element by element, asked: does an element get the same bits wherever it stands?"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxmem.rewriting.elementwise import BROADCASTING, UNARY
from tests.helpers import hashes
from tests.unit.rewriting.models import Array, run

LENGTH = 4099
ODD = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1.0)
"""Where a routine for many elements at once and one for single elements may differ."""
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
            assert hashes([part]) == hashes([whole[first:last]]), (threads, first, last)


@pytest.mark.parametrize(("domain", "op_type", "count"), [c for c in CASES if c[:2] != ("", "QuickGelu")])
def test_so_do_zeros_of_both_signs_and_what_is_no_number(domain: str, op_type: str, count: int) -> None:
    for odd in itertools.product(ODD, repeat=min(count, 2)):
        inputs: list[Array] = [np.full(37, value, np.float32) for value in odd]
        if op_type == "Where":
            inputs.insert(0, np.arange(37) >= 0)
        elif op_type in _TRUTH:
            inputs = [array != 0 for array in inputs]
        made = asked(op_type, domain, inputs, 1)
        assert made.tobytes() == made[:1].tobytes() * 37, odd
