"""Where do the weights of a built model lie: in the mapped file, packed or not, or still inside the graph?"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.load import all_tensors
from onnxmem.packing.blobs import blobs_of
from onnxmem.packing.build import SMALLEST
from onnxmem.session.package import Weights
from onnxmem.units import format_bytes

_NEAR = 4096  # a page: what lies between such parts is read with them anyway
# Operators that read a few rows of their first inputs.
_LOOKUPS = ("Gather", "GatherElements", "GatherND", "GatherBlockQuantized", "EmbedLayerNormalization")


def describe_weights(model: Path) -> tuple[Weights, tuple[str, ...]]:
    """The bytes by place, and what is not in the file, with the reason. A file that is too short is an error."""
    if model.suffix == ".ort":
        # One flatbuffer: all weights are in the file, and the graph around them is small.
        return Weights(raw=model.stat().st_size, packed=0, inline=0), ()
    proto = onnx.load_model(model, load_external_data=False)
    raw = packed = inline = large = 0
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            blobs = list(blobs_of(tensor, model.parent))
            raw += sum(blob.length for blob in blobs if not blob.packed)
            packed += sum(blob.length for blob in blobs if blob.packed)
        else:
            size = tensor_bytes(tensor.data_type, tensor.dims) or 0
            inline += size
            large += size if size >= SMALLEST else 0
    weights = Weights(raw=raw, packed=packed, inline=inline)
    if not large:
        return weights, ()
    note = (
        f"{format_bytes(large)} of weights stay inside the graph, where ONNX Runtime keeps them: one copy per process"
    )
    return weights, (note,)


def always_read(model: Path) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths of the weights in the file that every run reads, and reads whole, in the form it uses.

    Not what only a branch or a loop may read, and not a table in which a run looks something up.
    """
    if model.suffix == ".ort":
        return ()
    graph = onnx.load_model(model, load_external_data=False).graph
    wanted = {name for node in graph.node if node.op_type not in _LOOKUPS for name in node.input}
    blobs = []
    for tensor in graph.initializer:
        if tensor.name in wanted and tensor.data_location == TensorProto.EXTERNAL:
            raw, *packed = blobs_of(tensor, model.parent)
            blobs.extend(packed or [raw])
    parts: list[tuple[int, int]] = []
    for blob in sorted(blobs, key=lambda blob: blob.offset):
        last, length = parts[-1] if parts else (0, 0)
        if parts and blob.offset <= last + length + _NEAR:
            parts[-1] = (last, max(length, blob.offset + blob.length - last))
        else:
            parts.append((blob.offset, blob.length))
    return tuple(parts)
