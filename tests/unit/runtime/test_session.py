"""`onnxmem.InferenceSession`: onnxruntime's, from a model or a package, with the same outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxmem import InferenceSession
from onnxmem.convert import convert
from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.runtime import modes

X = np.random.default_rng(0).random((3, 512), dtype=np.float32)


@pytest.fixture(scope="module")
def stock(chain: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(chain, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


def test_it_is_a_drop_in(packed: Path, stock: np.ndarray) -> None:
    session = InferenceSession(str(packed))
    assert isinstance(session, onnxruntime.InferenceSession)
    assert session.loaded_mode == "prepacked"
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert np.array_equal(session.run(["y"], {"x": X})[0], stock)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], stock)


def test_a_model_is_loaded_as_stock_and_mode_says_otherwise(
    chain: Path,
    stock: np.ndarray,
) -> None:
    assert InferenceSession(chain).loaded_mode == "stock"
    tuned = InferenceSession(chain, mode="tuned")
    assert tuned.get_session_options().enable_mem_pattern is False
    assert np.array_equal(tuned.run(None, {"x": X})[0], stock)


def test_options_of_the_caller_are_kept_and_settings_come_last(chain: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(chain, options, mode="tuned", settings={"enable_mem_pattern": True})
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_session_options().enable_mem_pattern is True


def test_the_options_of_the_caller_stay_as_they_were(packed: Path) -> None:
    options = onnxruntime.SessionOptions()
    session = InferenceSession(packed, options, mode="mapped")
    level = onnxruntime.GraphOptimizationLevel
    assert session.get_session_options().graph_optimization_level == level.ORT_DISABLE_ALL
    assert session.get_session_options().get_session_config_entry(modes.DISABLE_PREPACKING) == "1"
    assert options.graph_optimization_level == level.ORT_ENABLE_ALL
    assert options.enable_mem_pattern is True
    assert options.get_session_config_entry(modes.DISABLE_PREPACKING) == "0"
    session.set_providers(["CPUExecutionProvider"])
    assert session.get_session_options().get_session_config_entry(modes.DISABLE_PREPACKING) == "1"


def test_a_package_can_be_loaded_unpacked(packed: Path, stock: np.ndarray) -> None:
    session = InferenceSession(packed, mode="external")
    assert np.array_equal(session.run(None, {"x": X})[0], stock)
    with pytest.raises(UsageError, match="was packed for 'prepacked'"):
        InferenceSession(packed, mode="ort")


def test_what_would_crash_is_refused(chain: Path, packed: Path, tmp_path: Path) -> None:
    convert(chain, "ort", tmp_path / "chain.ort")
    content = (tmp_path / "chain.ort").read_bytes()
    config = {modes.ORT_BYTES: "1", modes.ORT_INITIALIZERS: "1"}
    with pytest.raises(UsageError, match="wrong outputs in silence"):
        InferenceSession(content, config=config)
    with pytest.raises(UsageError, match="a model in bytes has none"):
        InferenceSession(content, mode="ort-mapped")
    with pytest.raises(UsageError, match="would ignore its packed weights"):
        InferenceSession(packed, config={modes.DISABLE_PREPACKING: "1"})
    with pytest.raises(RuntimeUnsupported, match="not for CUDAExecutionProvider"):
        InferenceSession(packed, providers=["CUDAExecutionProvider"])
    with pytest.raises(UsageError, match="is no package"):
        InferenceSession(tmp_path)


def test_a_session_outlives_its_files(packed: Path, tmp_path: Path, stock: np.ndarray) -> None:
    copy = Path(shutil.copytree(packed, tmp_path / "copy"))
    session = InferenceSession(copy)
    shutil.rmtree(copy)
    for _ in range(2):
        assert np.array_equal(session.run(None, {"x": X})[0], stock)
