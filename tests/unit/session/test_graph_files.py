"""Wherever a graph names a file, it is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from onnxmem.errors import ModelError
from onnxmem.session.graph_files import check_locations
from onnxmem.session.stored_files import state_of

_LARGE = numpy_helper.from_array(np.zeros(2**17, np.uint8), "large")


def _outside(location: str = "extra") -> TensorProto:
    tensor = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value="16")
    return tensor


def _check(folder: Path, content: ModelProto | bytes) -> None:
    path = folder / "model.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    check_locations(path, state_of(path), {"weights.bin"})


def _in_attribute(**content: object) -> ModelProto:
    return ModelProto(graph=GraphProto(node=[NodeProto(attribute=[AttributeProto(**content)])]))  # type: ignore[arg-type]


_SPARSE = SparseTensorProto(values=_outside(), indices=_LARGE)
_GRAPH = GraphProto(initializer=[_LARGE, _outside()])
PLACES = {
    "initializer": ModelProto(graph=_GRAPH),
    "sparse": ModelProto(graph=GraphProto(sparse_initializer=[_SPARSE])),
    "attribute": _in_attribute(t=_outside()),
    "tensors": _in_attribute(tensors=[_LARGE, _outside()]),
    "graph": _in_attribute(g=_GRAPH),
    "graphs": _in_attribute(graphs=[GraphProto(), _GRAPH]),
    "sparse_tensor": _in_attribute(sparse_tensor=_SPARSE),
    "sparse_tensors": _in_attribute(sparse_tensors=[_SPARSE]),
}
for _name, _function in (("function", "node"), ("default", "attribute_proto")):
    PLACES[_name] = ModelProto()
    _added = PLACES[_name].functions.add()
    (_added.node.add().attribute.add() if _function == "node" else _added.attribute_proto.add()).t.CopyFrom(_outside())
PLACES["training"] = ModelProto()
PLACES["training"].training_info.add().algorithm.CopyFrom(_GRAPH)


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_is_not_of_the_package(place: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="in 'extra', which is no file of its package"):
        _check(tmp_path, PLACES[place])
    own = PLACES[place].SerializeToString().replace(b"\x0a\x08location\x12\x05extra", b"\x0a\x08location\x12\x05xtra.")
    with pytest.raises(ModelError, match=r"in 'xtra\.'"):
        _check(tmp_path, own)


def test_files_of_the_package(tmp_path: Path) -> None:
    _check(tmp_path, ModelProto(graph=GraphProto(initializer=[_LARGE, _outside("weights.bin")])))


def test_two_names_in_one_place(tmp_path: Path) -> None:
    """Of fields that are there twice, protobuf takes the last: all of them have to be known."""
    entry = b"\x0a\x08location\x12\x0bweights.bin\x12\x05extra"
    tensor = b"\x6a" + bytes([len(entry)]) + entry + b"\x70\x01"
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    with pytest.raises(ModelError, match="in 'extra'"):
        _check(tmp_path, b"\x3a" + bytes([len(graph)]) + graph)
    # A tag of five bytes: protobuf may refuse it, or take 32 bits of it.
    with pytest.raises(ModelError, match="in 'extra'"):
        _check(tmp_path, b"\xba\x80\x80\x80\x10" + bytes([len(graph)]) + graph)


def test_what_is_no_model(tmp_path: Path) -> None:
    nested = b"location"
    for _ in range(1000):  # a node with an attribute that is a graph
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            nested = tag + _varint(len(nested)) + nested
    for content in (b"\x3a\x7f", b"\xff" * 20, b"\x3b", b"\x3a" + _varint(len(nested)) + nested):
        with pytest.raises(ModelError, match="not an ONNX model"):
            _check(tmp_path, content)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
