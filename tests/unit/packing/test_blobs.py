"""Weights of several graphs in one file: what is there already is not written again."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from onnxmem.packing.blobs import ALIGNMENT, adopt, blobs_of, drop_packed
from onnxmem.session.package import WEIGHTS


def written(path: Path, weights: dict[str, bytes], packed: dict[str, bytes]) -> Path:
    """A model of weights in a file beside it, some of them also in a packed form, as ONNX Runtime notes it."""
    path.parent.mkdir(exist_ok=True)
    content, tensors = bytearray(), []
    for name, data in weights.items():
        tensor = TensorProto(name=name, data_type=TensorProto.UINT8, dims=[len(data)])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": WEIGHTS, "offset": str(len(content)), "length": str(len(data))}
        content += data
        if name in packed:
            entries["prepacked_0"] = f"MatMul+1|{len(content)};{len(packed[name])};0"
            content += packed[name]
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    graph = helper.make_graph([], "weights", [], [], tensors)
    path.write_bytes(helper.make_model(graph).SerializeToString())
    (path.parent / WEIGHTS).write_bytes(content)
    return path


def content(path: Path) -> dict[str, list[bytes]]:
    """By weight, the bytes of its raw and packed forms."""
    data = (path.parent / WEIGHTS).read_bytes()
    proto = onnx.load_model(path, load_external_data=False)
    return {
        tensor.name: [data[blob.offset : blob.offset + blob.length] for blob in blobs_of(tensor, path.parent)]
        for tensor in proto.graph.initializer
    }


def test_equal_weights_are_there_once(tmp_path: Path) -> None:
    own = written(tmp_path / "p" / "model.onnx", {"a": b"a" * 64, "b": b"b" * 128}, {"b": b"B" * 192})
    size, before = (tmp_path / "p" / WEIGHTS).stat().st_size, content(own)
    other = written(tmp_path / "w" / "tiled.onnx", {"b": b"b" * 128, "x": b"a" * 64}, {"b": b"B" * 192})
    adopt(other, own)
    assert (tmp_path / "p" / WEIGHTS).stat().st_size == size
    assert content(tmp_path / "p" / "tiled.onnx") == {"b": [b"b" * 128, b"B" * 192], "x": [b"a" * 64]}
    assert content(own) == before


def test_what_is_new_is_added_where_kernels_can_read_it(tmp_path: Path) -> None:
    own = written(tmp_path / "p" / "model.onnx", {"a": b"a" * 60}, {})
    other = written(tmp_path / "w" / "tiled.onnx", {"a": b"a" * 60, "n": b"n" * 100}, {"n": b"N" * 200})
    adopt(other, own)
    found = content(tmp_path / "p" / "tiled.onnx")
    assert found == {"a": [b"a" * 60], "n": [b"n" * 100, b"N" * 200]}
    proto = onnx.load_model(tmp_path / "p" / "tiled.onnx", load_external_data=False)
    new = list(blobs_of(proto.graph.initializer[1], tmp_path / "p"))
    assert all(blob.offset % ALIGNMENT == 0 for blob in new)
    assert content(own) == {"a": [b"a" * 60]}


def test_a_package_without_weights_in_a_file_gets_one(tmp_path: Path) -> None:
    own = written(tmp_path / "p" / "model.onnx", {}, {})
    (tmp_path / "p" / WEIGHTS).unlink()
    adopt(written(tmp_path / "w" / "tiled.onnx", {"n": b"n" * 100}, {}), own)
    assert content(tmp_path / "p" / "tiled.onnx") == {"n": [b"n" * 100]}


def test_notes_on_packed_forms_can_be_forgotten(tmp_path: Path) -> None:
    proto = onnx.load_model(written(tmp_path / "m.onnx", {"b": b"b" * 8}, {"b": b"B" * 8}), load_external_data=False)
    (tensor,) = proto.graph.initializer
    drop_packed(tensor)
    assert [blob.packed for blob in blobs_of(tensor, tmp_path)] == [False]
