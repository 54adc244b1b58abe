"""Large weights stay in the file: what is read is the same model, and says where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxmem.errors import ModelError
from onnxmem.model.external import external_location, read_external
from onnxmem.model.load import all_tensors, load_proto
from onnxmem.model.model import Model
from onnxmem.model.wire import has_more_messages, without_weights
from tests.helpers import model_of, saved

LARGE = np.arange(1 << 15, dtype=np.float32)


def sample() -> ModelProto:
    """Large weights as an initializer, in a Constant and in branches; a small one, and one in numbers, not bytes."""
    inside = helper.make_graph(
        [helper.make_node("Add", ["x", "inner"], ["z"])],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("z")],
        [numpy_helper.from_array(LARGE + 2, "inner")],
    )
    nodes = [
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(LARGE + 1)),
        helper.make_node("Sum", ["x", "a", "b", "few", "listed"], ["s"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=inside, else_branch=inside),
    ]
    listed = helper.make_tensor("listed", TensorProto.FLOAT, LARGE.shape, LARGE.tolist())
    few = numpy_helper.from_array(np.ones(1, np.float32), "few")
    yes = numpy_helper.from_array(np.array(True), "yes")
    weights = [numpy_helper.from_array(LARGE, "a"), few, listed, yes]
    return model_of(nodes, {"x": LARGE.shape}, ["y", "s"], weights)


def test_weights_stay_where_they_are(tmp_path: Path) -> None:
    path = saved(sample(), tmp_path)
    light = load_proto(path, light=True)
    whole = {tensor.name: tensor for tensor in all_tensors(onnx.load(path))}
    left = [tensor for tensor in all_tensors(light) if tensor.data_location == TensorProto.EXTERNAL]
    assert len(left) == 4
    for tensor in left:
        assert external_location(tensor, tmp_path)[0] == path
        assert read_external(tensor, tmp_path, LARGE.nbytes) == whole[tensor.name].raw_data
        tensor.CopyFrom(whole[tensor.name])
    assert light == onnx.load(path)
    assert len(without_weights(path)) < LARGE.nbytes * 2 < path.stat().st_size


def test_what_is_seen_is_the_same(tmp_path: Path) -> None:
    path = saved(sample(), tmp_path)
    light, whole = Model.open(path), Model.of(onnx.load(path))
    for view in ("raw", "optimized"):
        assert [(w.name, w.size) for w in light.graph(view=view).all_weights()] == [
            (w.name, w.size) for w in whole.graph(view=view).all_weights()
        ]
    assert light.duplicates() == whole.duplicates()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-10], lambda data: b"\xff" * 40 + data, lambda data: data + b"\x0b"]
)
def test_a_damaged_file_is_no_model(damage, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = saved(sample(), tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DecodeError):
        without_weights(path)
    with pytest.raises(ModelError, match="not an ONNX model"):
        Model.open(path)


def test_a_file_of_millions_of_empty_nodes_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08\x3a\x80\x80\x80\x01" + b"\x0a\x00" * 2**20)  # a graph of 2 MiB
    with pytest.raises(ModelError, match="has more than 1000000 nodes, tensors and other parts"):
        load_proto(path)


def test_parts_are_counted_wherever_they_are(tmp_path: Path) -> None:
    path = saved(sample(), tmp_path)

    def count(message: Message) -> int:
        found = 0
        for field, value in message.ListFields():
            if field.message_type is not None:
                inner = [value] if isinstance(value, Message) else value
                found += sum(1 + count(each) for each in inner)
        return found

    parts = count(onnx.load(path))
    assert not has_more_messages(path, parts) and has_more_messages(path, parts - 1)
