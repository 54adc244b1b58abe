"""By what is a model known again? By everything but the numbers in its large tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem.session.planned import identity
from onnxmem.session.planned.identity import content_of, name_of


def model(*, large: Any = 0.0, width: int = 4096, small: float = 1.0, axis: int = 0, inner: Any = 0.0) -> bytes:
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.full(5000, inner, np.float32)))],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("c")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "large"], ["a"]),
            helper.make_node("Softmax", ["a"], ["b"], axis=axis),
            helper.make_node("If", ["small"], ["y"], then_branch=branch, else_branch=branch),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(np.full(width, large, np.float32), "large"),
            numpy_helper.from_array(np.full(4, small, np.float32), "small"),
        ],
    )
    written: bytes = helper.make_model(graph).SerializeToString()
    return written


def test_all_but_the_content_of_large_tensors_counts(tmp_path: Path) -> None:
    same = content_of(model())
    assert len(same) == 32
    assert content_of(model(large=3.0)) == content_of(model(inner=5.0)) == same
    others = [content_of(each) for each in (model(width=4097), model(small=2.0), model(axis=1))]
    assert len({same, *others}) == 4
    (tmp_path / "model.onnx").write_bytes(model())
    assert content_of(tmp_path / "model.onnx") == content_of(str(tmp_path / "model.onnx")) == same


def test_where_external_weights_are_counts() -> None:
    def external(location: str) -> bytes:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        written: bytes = helper.make_model(helper.make_graph([], "g", [], [], [tensor])).SerializeToString()
        return written

    assert content_of(external("a.bin")) != content_of(external("b.bin"))


def test_what_cannot_be_read_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert content_of(tmp_path / "nowhere.onnx") == content_of(b"ORTM" * 9) == content_of(b"\xff" * 99) == ""
    (tmp_path / "model.ort").write_bytes(model())
    assert content_of(tmp_path / "model.ort") == ""
    monkeypatch.setattr(identity, "_FEW", 8)
    assert content_of(model()) == ""


def test_options_and_entries_count() -> None:
    def options(**settings: Any) -> Any:
        made = onnxruntime.SessionOptions()
        for name, value in settings.items():
            setattr(made, name, value)
        return made

    entered = options()
    entered.add_session_config_entry("session.disable_prepacking", "1")
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    plain = name_of("content", options(), {})
    assert plain == name_of("content", options(), {})
    others = [
        name_of("other", options(), {}),
        name_of("content", options(intra_op_num_threads=3), {}),
        name_of("content", options(graph_optimization_level=level), {}),
        name_of("content", entered, {}),
        name_of("content", options(), {"session.any": "1"}),
    ]
    assert len({plain, *others}) == 6
