"""Models as ONNX Runtime has optimized them, and how they are run as a package would run them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import ModelProto, helper

Array = npt.NDArray[Any]


def fixed(proto: ModelProto, dims: Mapping[str, int]) -> ModelProto:
    """The model with numbers for its free dimensions."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = dims[dim.dim_param]
    return copy


def optimized(proto: ModelProto, folder: Path) -> Path:
    """The file that ONNX Runtime writes of a model with level `all`."""
    path = folder / "optimized.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return path


def random_inputs(proto: ModelProto, seed: int = 0) -> dict[str, Array]:
    """Numbers for every input that is fed."""
    random = np.random.default_rng(seed)
    weights = {tensor.name for tensor in proto.graph.initializer}
    made = {}
    for value in proto.graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            shape = [dim.dim_value for dim in kind.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            made[value.name] = random.standard_normal(shape).astype(dtype)
    return made


def run(proto: ModelProto, feeds: Mapping[str, Array], threads: int = 1) -> list[Array]:
    """The outputs of a model whose graph is taken as it stands."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, dict(feeds))
    return found


def load(path: Path) -> ModelProto:
    """The model in a file, weights included."""
    return onnx.load_model(path)
