"""Where do the weights of a built model lie: in the mapped file, packed or not, or still inside the graph?"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

from onnxmem.model.load import all_tensors
from onnxmem.model.weights import tensor_bytes
from onnxmem.runtime.build import SMALLEST
from onnxmem.runtime.package import Weights
from onnxmem.units import format_bytes

_PACKED = "prepacked_"


def describe_weights(model: Path) -> tuple[Weights, tuple[str, ...]]:
    """The bytes by place, and what is not in the file, with the reason."""
    if model.suffix == ".ort":
        # One flatbuffer: all weights are in the file, and the graph around them is small.
        return Weights(model.stat().st_size, 0, 0), ()
    proto = onnx.load_model(model, load_external_data=False)
    outer = {tensor.name for tensor in proto.graph.initializer}
    raw = packed = small = nested = 0
    for tensor in all_tensors(proto):
        size = tensor_bytes(tensor.data_type, tensor.dims) or 0
        if tensor.data_location == TensorProto.EXTERNAL:
            raw += size
            packed += sum(_packed_bytes(entry.value) for entry in tensor.external_data if entry.key.startswith(_PACKED))
        elif size >= SMALLEST and tensor.name not in outer:
            nested += size
        else:
            small += size
    notes = []
    if nested:
        notes.append(
            f"{format_bytes(nested)} of weights are in subgraphs (If, Loop, Scan), which ONNX Runtime saves inside "
            "the graph: each process has its own copy"
        )
    return Weights(raw, packed, small + nested), tuple(notes)


def _packed_bytes(entry: str) -> int:
    """The sizes in ONNX Runtime's note about packed blobs: `key|offset;length;checksum|offset;length;checksum…`."""
    blobs = (blob.split(";") for blob in entry.split("|")[1:])
    return sum(int(fields[1]) for fields in blobs if len(fields) > 1 and fields[1].isdigit())
