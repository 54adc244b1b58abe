"""Sessions made from packages, and files made for a mode: the same outputs, in less memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxmem
from onnxmem import InferenceSession
from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.packing.convert import convert
from onnxmem.session import modes
from onnxmem.session.package import Package
from onnxmem.session.planned import bridge

X = np.random.default_rng(0).random((3, 512), dtype=np.float32)


@pytest.fixture(scope="module")
def stock(chain: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(chain, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


def test_it_is_a_drop_in(packed: Path, stock: np.ndarray) -> None:
    session = InferenceSession(str(packed))
    assert isinstance(session, onnxruntime.InferenceSession)
    assert session.loaded_mode == "planned"
    assert session.package is not None and session.package.mode.name == "prepacked"
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert np.array_equal(session.run(["y"], {"x": X})[0], stock)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], stock)


def test_plans_come_from_the_package_if_nobody_gives_any(
    packed: Path, stock: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    donor = InferenceSession(packed)
    donor.run(None, {"x": X})
    monkeypatch.setattr(Package, "plans", lambda _: donor.export_plans())
    session = InferenceSession(packed)
    assert np.array_equal(session.run(None, {"x": X})[0], stock)
    assert (session.memory.runs_recorded, session.memory.runs_replayed) == (0, 1)
    assert InferenceSession(packed, plans=[]).export_plans() == []
    InferenceSession(packed, mode="prepacked")


def resident(package: Path) -> int:
    """Of the package's weights, in KiB."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [n for n, line in enumerate(lines) if line.endswith(str(package.resolve() / "weights.bin"))]
    sizes = [next(line for line in lines[n:] if line.startswith("Rss:")) for n in starts]
    return sum(int(line.split()[1]) for line in sizes)


def test_mapped_weights_are_there_before_the_first_run(packed: Path) -> None:
    session = InferenceSession(packed)
    before = resident(packed)
    x = np.zeros([dim if isinstance(dim, int) else 1 for dim in session.get_inputs()[0].shape], np.float32)
    session.run(None, {session.get_inputs()[0].name: x})
    assert 0 < before == resident(packed)


def test_a_table_that_runs_look_up_is_not_fetched(tmp_path: Path) -> None:
    table = np.zeros((16 * 1024, 256), np.float32)  # 16 MiB
    nodes = [
        onnx.helper.make_node("Gather", ["table", "rows"], ["found"]),
        onnx.helper.make_node("Add", ["found", "bias"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "lookup",
        [onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.INT64, [16])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(table[0], "bias")],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    package = onnxmem.pack(tmp_path / "m.onnx", tmp_path / "p")
    assert sum(size for _, size in package.manifest.always_read) == table[0].nbytes
    session = InferenceSession(package.folder)
    assert resident(package.folder) < 1024
    session.run(None, {"rows": np.arange(16) * 1024})
    # Around each row lie 2 MiB in one piece, right after the file was written.
    assert resident(package.folder) < 4 * 1024


def test_weights_that_are_equal_are_packed_once_and_open(tmp_path: Path) -> None:
    weight = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "one"], ["between"]),
            onnx.helper.make_node("MatMul", ["between", "two"], ["y"]),
        ],
        "twins",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(weight, name) for name in ("one", "two")],
    )
    model, x = tmp_path / "m.onnx", np.ones((3, 64), np.float32)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), model)
    package = onnxmem.pack(model, tmp_path / "p")
    # ONNX Runtime notes the packed form at one of them and uses it for both: the other one is dropped once it is read.
    assert sum(size for _, size in package.manifest.always_mapped) == weight.nbytes
    assert sum(size for _, size in package.manifest.always_read) == 2 * weight.nbytes
    session = InferenceSession(package.folder)
    expected = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
    assert np.array_equal(session.run(None, {"x": x})[0], expected)


def test_any_list_of_providers_for_the_cpu_will_do(packed: Path) -> None:
    assert InferenceSession(path_or_bytes=packed, providers=onnxruntime.get_available_providers()).package


def test_loading_a_package_logs_nothing(packed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for mode in (None, "mapped"):
        InferenceSession(packed, mode=mode)
    assert capfd.readouterr().err == ""


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


def test_weights_inside_the_model_are_no_weights_beside_it(chain: Path, tmp_path: Path) -> None:
    for mode in ("prepacked", "external", "mapped"):
        with pytest.raises(UsageError, match=f"mode '{mode}' needs .*, and 'chain.onnx' holds its weights itself"):
            InferenceSession(chain, mode=mode)
    convert(chain, "external", tmp_path / "beside.onnx")
    session = InferenceSession(tmp_path / "beside.onnx", mode="mapped")
    assert session.loaded_mode == "mapped"


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


def test_where_it_cannot_be_planned_it_runs_in_its_own_mode(
    packed: Path, stock: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = f"planned sessions need another machine than this one ({id(monkeypatch)})"
    monkeypatch.setattr(bridge, "unsupported", lambda: reason)
    with pytest.warns(RuntimeWarning, match="not planned, it runs as prepacked: planned sessions need another"):
        package = InferenceSession(packed)
    assert (package.loaded_mode, package.memory.reason) == ("prepacked", reason)
    assert np.array_equal(package.run(None, {"x": X})[0], stock)
