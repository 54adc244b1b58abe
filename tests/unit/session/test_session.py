"""`onnxmem.InferenceSession`: onnxruntime's, from a model or a package, with the same outputs."""

from __future__ import annotations

import gc
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxmem
from onnxmem import Arena, InferenceSession
from onnxmem.errors import ModelError, UsageError
from onnxmem.session import modes
from onnxmem.session.planned import bridge

X = np.random.default_rng(0).random((3, 512), dtype=np.float32)


@pytest.fixture(scope="module")
def stock(chain: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(chain, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


@pytest.mark.parametrize("mode", ["stock", "planned"])
def test_a_name_that_is_no_text_is_an_error_of_the_model(chain: Path, tmp_path: Path, mode: str) -> None:
    """ONNX Runtime quotes it in what it says, which Python then cannot read."""
    content = chain.read_bytes()
    assert b"MatMul" in content
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(content.replace(b"MatMul", b"MatM\xb0\xb0"))
    with pytest.raises(ModelError, match="a name in it is not text"):
        InferenceSession(damaged, mode=mode)


def test_a_model_is_planned_and_mode_says_otherwise(chain: Path, stock: np.ndarray) -> None:
    planned = InferenceSession(chain)
    assert planned.loaded_mode == "planned"
    for _ in range(3):
        assert np.array_equal(planned.run(None, {"x": X})[0], stock)
    assert planned.memory.reason == ""
    assert planned.memory.runs_replayed == 2
    as_it_comes = InferenceSession(chain, mode="stock")
    assert (as_it_comes.loaded_mode, as_it_comes.memory.reason) == ("stock", "mode 'stock' does not plan")
    assert as_it_comes.get_session_options().enable_mem_pattern is True
    tuned = InferenceSession(chain, mode="tuned")
    assert tuned.get_session_options().enable_mem_pattern is False
    assert np.array_equal(tuned.run(None, {"x": X})[0], stock)


@pytest.mark.parametrize("budget", [None, "1GiB"])
def test_names_of_outputs_may_come_from_a_generator(chain: Path, stock: np.ndarray, budget: str | None) -> None:
    planned = InferenceSession(chain, budget=budget)
    (name,) = [value.name for value in planned.get_outputs()]
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    for _ in range(2):
        assert np.array_equal(planned.run((each for each in [name]), {"x": X})[0], stock)
        assert np.array_equal(planned.run_with_ort_values((each for each in [name]), {"x": value})[0].numpy(), stock)


def test_what_is_not_planned_has_no_plans_and_can_be_trimmed(chain: Path, stock: np.ndarray) -> None:
    session = InferenceSession(chain, mode="stock")
    assert np.array_equal(session.run(None, {"x": X})[0], stock)
    session.trim()
    assert (session.traces(), session.export_plans(), session.arena) == ([], [], None)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    assert np.array_equal(session.run_with_ort_values(None, {"x": value})[0].numpy(), stock)
    binding = session.io_binding()
    assert type(binding) is onnxruntime.IOBinding
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], stock)


@pytest.fixture
def no_bridge(monkeypatch: pytest.MonkeyPatch) -> str:
    """As if this machine could not do it."""
    reason = f"planned sessions need another machine than this one ({id(monkeypatch)})"
    monkeypatch.setattr(bridge, "unsupported", lambda: reason)
    return reason


def test_where_it_cannot_be_planned_it_falls_back_and_warns_once(
    chain: Path, stock: np.ndarray, no_bridge: str
) -> None:
    with pytest.warns(RuntimeWarning, match="not planned, it runs as stock: planned sessions need another") as caught:
        session = InferenceSession(chain, max_plans=3)
    assert [warning.filename for warning in caught] == [__file__]
    assert (session.loaded_mode, session.memory.reason) == ("stock", no_bridge)
    assert session.get_session_options().enable_mem_pattern is True
    assert np.array_equal(session.run(None, {"x": X})[0], stock)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert InferenceSession(chain, mode="planned").loaded_mode == "stock"
        InferenceSession(chain, mode="tuned")


def test_nodes_in_parallel_are_a_reason_not_to_plan(chain: Path) -> None:
    settings: dict[str, modes.Setting] = {"execution_mode": "ORT_PARALLEL", "inter_op_num_threads": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = InferenceSession(chain, settings=settings)
    assert session.loaded_mode == "stock"
    assert "parallel" in session.memory.reason
    session.run(None, {"x": X})


def test_other_providers_are_a_reason_not_to_plan(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert InferenceSession(chain, providers=onnxruntime.get_available_providers()).loaded_mode == "planned"
    session = InferenceSession(chain)
    # As if there were one: asked for, it is ignored by ONNX Runtime, which then runs on the CPU.
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["TensorrtExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.set_providers([("TensorrtExecutionProvider", {}), "CPUExecutionProvider"])
    assert session.loaded_mode == "stock"
    assert "TensorrtExecutionProvider was asked for" in session.memory.reason


def test_what_is_only_for_plans_is_refused_elsewhere(chain: Path) -> None:
    with pytest.raises(UsageError, match=r"^arena= is for planned runs, and mode 'tuned' does not plan$"):
        InferenceSession(chain, mode="tuned", arena=Arena())
    given: list[dict[str, Any]] = [{"plans": []}, {"max_plans": 16}, {"trim_after": 1.0}, {"debug": False}]
    for option in given:
        with pytest.raises(UsageError, match=f"^{min(option)}= is for planned runs"):
            InferenceSession(chain, mode="stock", **option)


def test_planning_options_may_be_one_record(chain: Path, stock: np.ndarray) -> None:
    arena = Arena()
    session = InferenceSession(chain, planning=onnxmem.PlanningOptions(arena=arena, max_plans=1))
    assert session.arena is arena
    assert np.array_equal(session.run(None, {"x": X})[0], stock)
    with pytest.raises(UsageError, match=r"^max_plans= stands beside planning=$"):
        InferenceSession(chain, planning=onnxmem.PlanningOptions(), max_plans=3)
    with pytest.raises(UsageError, match=r"^arena= is for planned runs"):
        InferenceSession(chain, mode="stock", planning=onnxmem.PlanningOptions(arena=arena))


def test_released_sessions_keep_no_arena(chain: Path) -> None:
    session = InferenceSession(chain)
    session.run(None, {"x": X})
    arena = weakref.ref(session.arena)
    onnxmem.release(session)
    gc.collect()
    assert arena() is None
    assert session.memory.reason == "the session was released"


def test_nearly_right_arguments_are_told(chain: Path) -> None:
    with pytest.raises(UsageError, match="trim_afer"):
        InferenceSession(chain, trim_afer=30)
    with pytest.raises(UsageError, match="max_plans cannot be '2'"):
        InferenceSession(chain, max_plans="2")  # type: ignore[arg-type]
    InferenceSession(chain, enable_fallback=0)  # onnxruntime's own


def test_shrinking_the_arena_after_a_run_is_a_trim(chain: Path, stock: np.ndarray) -> None:
    session, options = InferenceSession(chain), onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    for _ in range(3):
        assert np.array_equal(session.run(None, {"x": X}, options)[0], stock)
    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    assert session.memory.runs_replayed == 2


def test_options_of_the_caller_are_kept_and_settings_come_last(chain: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(chain, options, mode="tuned", settings={"enable_mem_pattern": True})
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_session_options().enable_mem_pattern is True
