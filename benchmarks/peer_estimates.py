"""What other tools say a model takes, without running it: a script for the Python they are installed in.

    pip install onnx-tool onnxsim tigris-ml
    python benchmarks/peer_estimates.py onnx-tool MODEL.onnx FEEDS.npz

Prints one JSON document. `activations` is the tool's own figure for the most memory that tensors take at once (or the
arena it would lay them out in), `weights` that of the constants, where it has one. Imports nothing of onnxmem.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx

Feeds = dict[str, Any]
Figures = dict[str, Any]


def onnx_tool(path: str, feeds: Feeds) -> Figures:
    """Liveness in file order, then a first fit: `Graph.compress_memory`."""
    from onnx_tool import Model  # noqa: PLC0415

    graph = Model(path).graph
    graph.shape_infer(feeds)
    graph.profile()
    return {
        "activations": int(graph.compress_memory()[1]),
        "weights": int(sum(graph.tensormap[name].get_memsize() for name in graph.initials)),
    }


def onnxsim(path: str, feeds: Feeds) -> Figures:
    """Simplified for these shapes, then a best fit over lifetimes: `plan_activation_memory`."""
    import onnxsim as tool  # noqa: PLC0415

    shapes = {name: list(array.shape) for name, array in feeds.items()}
    try:
        model, simplified = tool.simplify(path, overwrite_input_shapes=shapes)[0], True
    except Exception:  # it refuses models that its checker does not like; it plans them all the same
        model, simplified = _with_shapes(onnx.load(path), shapes), False
    plan = tool.plan_activation_memory(model)
    weights = sum(int(np.prod(tensor.dims)) * _item_bytes(tensor.data_type) for tensor in model.graph.initializer)
    return {
        "activations": plan.arena_bytes,
        "weights": weights,
        "left_out": len(plan.unplanned),
        "simplified": simplified,
    }


def tigris(path: str, feeds: Feeds) -> Figures:
    """Lifetimes in its own order: the unscheduled peak that `tigris analyze` prints."""
    from tigris.analysis.lifetime import compute_lifetimes  # noqa: PLC0415
    from tigris.analysis.memory import compute_memory_timeline  # noqa: PLC0415
    from tigris.loaders import load_model  # noqa: PLC0415

    graph = load_model(path, {name: tuple(array.shape) for name, array in feeds.items()})
    graph = compute_memory_timeline(compute_lifetimes(graph), capture_live_tensors=False)
    weights = sum(tensor.size_bytes for tensor in graph.tensors.values() if tensor.is_constant)
    return {"activations": graph.peak_memory_bytes, "weights": weights}


PEERS = {
    "onnx-tool": ("onnx-tool", onnx_tool),
    "tigris": ("tigris-ml", tigris),
    "onnxsim": ("onnxsim", onnxsim),
}


def _with_shapes(model: onnx.ModelProto, shapes: dict[str, list[int]]) -> onnx.ModelProto:
    """The model with the shapes of its inputs written into it."""
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    return model


def _item_bytes(kind: int) -> int:
    return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)


def main() -> int:
    """Ask one tool about one model."""
    peer, path, feeds = sys.argv[1:]
    package, ask = PEERS[peer]
    with np.load(feeds) as arrays, contextlib.redirect_stdout(io.StringIO()):
        found = ask(path, dict(arrays))
    print(json.dumps({"peer": peer, "version": version(package), **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
