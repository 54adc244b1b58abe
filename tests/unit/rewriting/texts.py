"""Models from a few lines of ONNX's text format, with random weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnx import ModelProto, helper, numpy_helper, parser

Array = npt.NDArray[Any]


def model(
    nodes: str | Iterable[str],
    inputs: str = "float[n, 8] x",
    outputs: str = "y",
    *,
    opset: int = 18,
    seed: int = 0,
    **weights: tuple[int, ...] | Array,
) -> ModelProto:
    """`nodes` are lines such as "y = Add(x, w)". A weight is an array, or a shape to be filled with random numbers."""
    lines = nodes if isinstance(nodes, str) else "\n".join(nodes)
    made = ", ".join(each if "[" in each else f"float[] {each}" for each in outputs.split(", "))
    graph = parser.parse_graph(f"test ({inputs}) => ({made}) {{ {lines} }}")
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    random = np.random.default_rng(seed)
    for name, weight in weights.items():
        array = random.standard_normal(weight).astype(np.float32) / 2 if isinstance(weight, tuple) else weight
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def session(proto: ModelProto, threads: int = 1) -> Any:
    """A stock session."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds(proto: ModelProto, seed: int = 1, **dims: int) -> dict[str, Array]:
    """Random inputs, with these numbers for the free dimensions."""
    random, made = np.random.default_rng(seed), {}
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [dims.get(dim.dim_param, dim.dim_value) for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if np.issubdtype(dtype, np.floating):
            made[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            made[value.name] = random.integers(0, 2, shape).astype(dtype)
    return made


def same(left: Iterable[Array], right: Iterable[Array]) -> bool:
    """Whether these are the same, bit for bit."""
    return all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )


def in_parts(
    run: Any,
    fed: Mapping[str, Array],
    inputs: Mapping[str, int],
    outputs: Iterable[int | None],
    rows: int,
    at_once: int,
) -> list[Array]:
    """The outputs of a batch that is run a few rows at a time, the last of them together with some again."""
    found: list[list[Array]] = []
    for first in range(0, rows, at_once):
        start = min(first, rows - at_once)
        part = {
            name: np.take(array, range(start, start + at_once), inputs[name]) if name in inputs else array
            for name, array in fed.items()
        }
        kept = []
        for array, axis in zip(run(None, part), outputs, strict=True):
            if axis is not None:
                each = array.shape[axis] // at_once
                array = np.take(array, range((first - start) * each, at_once * each), axis)  # noqa: PLW2901
            kept.append(array)
        found.append(kept)
    return [
        parts[0] if axis is None else np.concatenate(parts, axis)
        for parts, axis in zip(zip(*found, strict=True), outputs, strict=True)
    ]
