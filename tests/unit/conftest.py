"""Small models to load, run and let go of."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxmem import zoo


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x (batch × 64) → y (batch × 64)."""
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=64), path)
    return path


@pytest.fixture(scope="session")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose arena is many times its output."""
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet"), path)
    return path


@pytest.fixture(scope="session")
def strings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """text → the same text, a sequence of twice a tensor, and the tensor in half precision."""
    path = tmp_path_factory.mktemp("models") / "strings.onnx"
    half = helper.make_tensor_value_info("half", TensorProto.FLOAT16, ["m"])
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["text"], ["same"]),
            helper.make_node("SequenceConstruct", ["number", "number"], ["pair"]),
            helper.make_node("Cast", ["number"], ["half"], to=TensorProto.FLOAT16),
        ],
        "strings",
        [
            helper.make_tensor_value_info("text", TensorProto.STRING, ["n", 2]),
            helper.make_tensor_value_info("number", TensorProto.FLOAT, ["m"]),
        ],
        [
            helper.make_tensor_value_info("same", TensorProto.STRING, ["n", 2]),
            helper.make_tensor_sequence_value_info("pair", TensorProto.FLOAT, ["m"]),
            half,
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path
