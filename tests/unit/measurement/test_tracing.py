"""`onnxmem.trace`: what one run asks its allocator for, in figures and buffer by buffer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import onnxmem
from onnxmem.errors import ModelError, UsageError


def test_figures_are_those_of_the_buffers_and_come_back_equal(unet: Path) -> None:
    result = onnxmem.trace(unet, shapes={"image": (1, 3, 64, 96)})
    assert result.inputs == {"image": (1, 3, 64, 96)}
    assert isinstance(result.trace, onnxmem.Trace)
    assert result.lower_bound_bytes == result.trace.problem().lower_bound
    assert (result.outputs, result.buffers) == (1, len(result.trace))
    assert result.output_bytes == 4 * 2 * 64 * 96
    document = json.loads(json.dumps(result.document()))
    assert document["schema"] == "onnxmem.trace/1"
    saved = onnxmem.Tracing.from_document(document)
    assert saved == result
    assert isinstance(saved.trace, onnxmem.Unknown)


def test_free_dimensions_and_paths_may_be_given_in_any_form(model: Path) -> None:
    result = onnxmem.trace(str(model), dims={"batch": 5}, ranges={"x": (-1, 1)}, seed=3)
    assert result.inputs == {"x": (5, 64)}


@pytest.mark.parametrize("verb", [onnxmem.trace, onnxmem.track_onnx_runtime_memory_release])
def test_a_model_that_fails_says_so_once(
    verb: Callable[..., object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "fails.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [name]) for name in "xy")
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [3])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "fails", [x], [y], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), model)
    with pytest.raises(ModelError, match="Reshape"):
        verb(model, dims={"x": 4})
    assert capfd.readouterr() == ("", "")


def test_what_is_not_an_onnx_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        onnxmem.trace(tmp_path / "missing.onnx")
