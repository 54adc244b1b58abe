"""ONNX Runtime's own layout of images: channels in blocks, N × C/b × H × W × b in memory, whatever a shape says."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from onnx import TensorProto, helper

from onnxmem.errors import ModelError
from onnxmem.model.optimize import optimize

BLOCKED_DOMAIN = "com.microsoft.nchwc"
"""The domain of the operators that work on blocks."""
_USUAL = 8


@cache
def block_size() -> int:
    """How many channels ONNX Runtime puts in a block on this processor.

    Only ONNX Runtime knows. A convolution with 36 filters gets as many as fill whole blocks: 48 says 16.
    """
    filters = helper.make_tensor("w", TensorProto.FLOAT, [36, 3, 1, 1], [1.0] * 108)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 36, 4, 4])
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    proto = helper.make_model(
        helper.make_graph([node], "block", [image], [result], [filters]), opset_imports=[helper.make_opsetid("", 13)]
    )
    proto.ir_version = 8
    try:
        found = optimize(proto, Path(), "all", {})
    except ModelError:
        return _USUAL
    if not any(node.domain == BLOCKED_DOMAIN for node in found.graph.node):
        return _USUAL
    widest = max(tensor.dims[0] for tensor in found.graph.initializer if len(tensor.dims) == 4)
    return {64: 32, 48: 16, 40: 8}.get(widest, 4)
