"""The shapes of operators that only ONNX Runtime has, as it says itself when it runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from tests.helpers import model_of, tensors_when_run
from tests.unit.model.test_shapes_of_operators import agree

DIMS = ({"N": 2, "H": 7, "W": 12}, {"N": 1, "H": 20, "W": 9})
SCALE, ZERO = np.float32(0.1), np.uint8(3)


def node(op: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs or ["y"], domain="com.microsoft", **attributes)


def quantized(op: str, **attributes: Any) -> NodeProto:
    return node(op, ["x", "s", "z", "s", "z"], **attributes)


# The node, its element type, the shape of its first input, and what else it reads.
CASES: dict[str, tuple[NodeProto, int, tuple[int | str, ...], dict[str, Any]]] = {
    "pool of bytes": (
        node("NhwcMaxPool", ["x"], kernel_shape=[3, 2], strides=[2, 1], ceil_mode=1),
        TensorProto.UINT8,
        ("N", "H", "W", 5),
        {},
    ),
    "average of bytes": (
        quantized("QLinearAveragePool", kernel_shape=[2, 2], channels_last=1),
        TensorProto.UINT8,
        ("N", "H", "W", 5),
        {"s": SCALE, "z": ZERO},
    ),
    "global average of bytes": (
        quantized("QLinearGlobalAveragePool", channels_last=1),
        TensorProto.UINT8,
        ("N", "H", "W", 5),
        {"s": SCALE, "z": ZERO},
    ),
    "global average of bytes, channels first": (
        quantized("QLinearGlobalAveragePool"),
        TensorProto.UINT8,
        ("N", 5, "H", "W"),
        {"s": SCALE, "z": ZERO},
    ),
    "where of bytes": (
        node("QLinearWhere", ["c", "x", "s", "z", "b", "s", "z", "s", "z"]),
        TensorProto.UINT8,
        ("N", "H"),
        {"c": np.ones((3, 1, 1), bool), "b": np.ones((1,), np.uint8), "s": SCALE, "z": ZERO},
    ),
    "bytes side by side": (
        node("QLinearConcat", ["s", "z", "x", "s", "z", "x", "s", "z"], axis=3),
        TensorProto.UINT8,
        ("N", "H", "W", 5),
        {"s": SCALE, "z": ZERO},
    ),
    "affine": (
        node("QGemm", ["x", "s", "z", "w", "s", "z", "b", "s", "z"]),
        TensorProto.UINT8,
        ("N", 16),
        {"w": np.ones((16, 8), np.uint8), "b": np.ones(8, np.int32), "s": SCALE, "z": ZERO},
    ),
    "affine, floats": (
        node("QGemm", ["x", "s", "z", "w", "s", "z", "b"]),
        TensorProto.UINT8,
        ("N", 16),
        {"w": np.ones((16, 8), np.uint8), "b": np.ones(8, np.int32), "s": SCALE, "z": ZERO},
    ),
    "heads": (
        node("MultiHeadAttention", ["x", "x", "x"], ["y", "k", "v"], num_heads=4),
        TensorProto.FLOAT,
        ("N", "H", 32),
        {},
    ),
    "packed attention": (
        node("QAttention", ["x", "w", "b", "s", "s", "", "z", "z"], num_heads=4),
        TensorProto.UINT8,
        ("N", "H", 16),
        {"w": np.ones((16, 96), np.uint8), "b": np.ones(96, np.float32), "s": SCALE, "z": ZERO},
    ),
    "four bits": (
        node("MatMulBnb4", ["x", "w", "m"], K=64, N=32, block_size=64, quant_type=1),
        TensorProto.FLOAT,
        ("N", "H", 64),
        {"w": np.ones(1024, np.uint8), "m": np.ones(32, np.float32)},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("dims", DIMS)
def test_contrib_operators(
    case: tuple[NodeProto, int, tuple[int | str, ...], dict[str, Any]], dims: dict[str, int]
) -> None:
    operator, dtype, shape, constants = case
    model = model_of([operator], {"x": shape}, list(operator.output), constants, dtype=dtype)
    sizes = [dims[dim] if isinstance(dim, str) else dim for dim in shape]
    real = tensors_when_run(model, {"x": np.ones(sizes, helper.tensor_dtype_to_np_dtype(dtype))})
    agree(model, real, dims, known=True)


@pytest.mark.parametrize("past", [0, 15])
def test_grouped_queries_hand_on_all_keys(past: int) -> None:
    steps = 1 if past else 6
    operator = node(
        "GroupQueryAttention",
        ["x", "k", "k", "pk", "pk", "lengths", "total"],
        ["y", "key", "value"],
        num_heads=4,
        kv_num_heads=2,
    )
    state = helper.make_tensor_value_info("pk", TensorProto.FLOAT, [1, 2, past, 8])
    constants = {"lengths": np.array([steps + past - 1], np.int32), "total": np.array(steps + past, np.int32)}
    model = model_of(
        [operator], {"x": [1, steps, 32], "k": [1, steps, 16], "pk": state}, list(operator.output), constants
    )
    ones = {"x": np.ones((1, steps, 32)), "k": np.ones((1, steps, 16)), "pk": np.ones((1, 2, past, 8))}
    real = tensors_when_run(model, {name: value.astype(np.float32) for name, value in ones.items()})
    agree(model, real, {}, known=True)
