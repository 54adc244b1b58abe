"""Weights stored twice are found wherever they are stored, and only if they are really equal."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxmem.model.model import Model
from tests.helpers import model_of

ONE = np.arange(1024, dtype=np.float32).reshape(32, 32)
OTHER = ONE + np.eye(32, dtype=np.float32)


def model_with(constants: dict[str, Any], nodes: dict[str, Any]) -> ModelProto:
    made = [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(v)) for name, v in nodes.items()]
    read = [helper.make_node("Add", ["x", name], [f"y_{name}"]) for name in (*constants, *nodes)]
    return model_of([*made, *read], {"x": (32, 32)}, [node.output[0] for node in read], constants)


def test_equal_weights_are_found_in_initializers_and_constant_nodes() -> None:
    # Many nodes, so that anything remembered by the address of a passing object goes wrong.
    nodes = {"c": ONE, **{f"n{k}": ONE + k + 1 for k in range(50)}, "d": OTHER}
    model = Model.of(model_with({"a": ONE, "b": ONE, "e": OTHER}, nodes))
    gc.collect()
    groups = {group.names: (group.size, group.wasted) for group in model.duplicates()}
    assert groups == {("a", "b", "c"): (4096, 8192), ("e", "d"): (4096, 4096)}


def test_how_a_weight_is_stored_makes_no_difference(tmp_path: Path) -> None:
    listed = helper.make_tensor("listed", TensorProto.FLOAT, [32, 32], ONE.flatten().tolist())
    outside = TensorProto(name="outside", data_type=1, dims=[32, 32], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "100"), ("length", "4096")):
        outside.external_data.add(key=key, value=value)
    (tmp_path / "w.bin").write_bytes(bytes(100) + ONE.tobytes())
    proto = model_with({"inline": ONE}, {"node": ONE})
    proto.graph.initializer.extend([listed, outside])
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    (group,) = Model.open(tmp_path / "model.onnx").duplicates()
    assert set(group.names) == {"inline", "node", "listed", "outside"}


def test_equal_bytes_of_another_type_or_shape_are_not_equal() -> None:
    constants = {
        "a": ONE,
        "row": ONE.reshape(1, 1024),
        "whole": ONE.view(np.int32),
        "late": np.where(np.arange(1024).reshape(32, 32) == 1023, 0, ONE).astype(np.float32),
    }
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"], constants)
    assert Model.of(proto).duplicates() == ()


def test_small_constants_are_not_worth_a_word() -> None:
    proto = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"], {"a": np.zeros(255, "f"), "b": np.zeros(255, "f")}
    )
    assert Model.of(proto).duplicates() == ()


def test_four_bit_weights_compare_packed_or_not() -> None:
    raw = TensorProto(name="raw", data_type=TensorProto.UINT4, dims=[4096], raw_data=bytes([0x21] * 2048))
    listed = helper.make_tensor("listed", TensorProto.UINT4, [4096], [1, 2] * 2048)
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"], [raw, listed])
    (group,) = Model.of(proto).duplicates()
    assert (set(group.names), group.size) == ({"raw", "listed"}, 2048)
