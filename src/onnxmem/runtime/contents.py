"""Where do the weights of a built model lie: in the mapped file, packed or not, or still inside the graph?"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.load import all_tensors
from onnxmem.runtime.blobs import blobs_of
from onnxmem.runtime.build import SMALLEST
from onnxmem.runtime.package import Weights
from onnxmem.units import format_bytes


def describe_weights(model: Path) -> tuple[Weights, tuple[str, ...]]:
    """The bytes by place, and what is not in the file, with the reason. A file that is too short is an error."""
    if model.suffix == ".ort":
        # One flatbuffer: all weights are in the file, and the graph around them is small.
        return Weights(model.stat().st_size, 0, 0), ()
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
    if not large:
        return Weights(raw, packed, inline), ()
    note = (
        f"{format_bytes(large)} of weights stay inside the graph, where ONNX Runtime keeps them: one copy per process"
    )
    return Weights(raw, packed, inline), (note,)
