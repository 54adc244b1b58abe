"""Packing: every mode, the right outputs, and nothing half-done whatever goes wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem import InferenceSession, pack, repack, verify_package
from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.packing import parity
from onnxmem.packing.blobs import ALIGNMENT, align, blobs_of
from onnxmem.packing.outputs import Outputs
from onnxmem.packing.pack import PACKABLE
from onnxmem.progress import Progress
from onnxmem.session.modes import find_mode


def odd(path: Path, rows: int = 120) -> Path:
    """Weights of odd sizes, behind which ONNX Runtime puts packed ones at addresses that crash its kernels."""
    random = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for number, columns in enumerate((360, 18, 120, 333, 120, 7)):
        array = random.random((rows, columns), dtype=np.float32)
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{number}"], [f"h{number}"]))
        name, rows = f"h{number}", columns
    graph = helper.make_graph(
        nodes,
        "odd",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 120])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 7])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def outputs(session: onnxruntime.InferenceSession, x: np.ndarray) -> np.ndarray:
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("mode", [mode.name for mode in PACKABLE])
def test_every_mode_packs_and_computes_the_same(chain: Path, tmp_path: Path, mode: str) -> None:
    package = pack(chain, tmp_path / "p", mode)
    x = np.random.default_rng(1).random((5, 512), dtype=np.float32)
    options = onnxruntime.SessionOptions()
    if not find_mode(mode).exact:
        assert package.manifest.verified.reference == "stock without packing"
        options.add_session_config_entry("session.disable_prepacking", "1")
    expected = outputs(onnxruntime.InferenceSession(chain, options, providers=["CPUExecutionProvider"]), x)
    for asked, loaded in ((None, "planned"), (mode, mode)):
        session = InferenceSession(tmp_path / "p", mode=asked)
        assert session.loaded_mode == loaded
        for _ in range(3):  # the first run is recorded, the others happen inside the plan
            assert np.array_equal(outputs(session, x), expected)
        assert session.memory.runs_replayed == (2 if loaded == "planned" else 0)
    assert os.listdir(tmp_path) == ["p"]


def test_packed_weights_at_odd_addresses_are_moved(tmp_path: Path) -> None:
    model = odd(tmp_path / "odd.onnx")
    package = pack(model, tmp_path / "p")
    proto = onnx.load(package.package.model, load_external_data=False)
    found = [
        blob for tensor in proto.graph.initializer if tensor.external_data for blob in blobs_of(tensor, tmp_path / "p")
    ]
    assert any(blob.packed for blob in found)
    assert all(blob.offset % ALIGNMENT == 0 for blob in found)
    x = np.random.default_rng(1).random((9, 120), dtype=np.float32)
    assert np.array_equal(outputs(InferenceSession(tmp_path / "p"), x), outputs(onnxruntime.InferenceSession(model), x))


def test_moving_keeps_every_byte(tmp_path: Path) -> None:
    array = np.arange(4096, dtype=np.uint8).tobytes()
    (tmp_path / "w.bin").write_bytes(b"\1" * 32 + array[:100] + b"\2" * 60 + array[:64])
    tensor = TensorProto(name="w", dims=[100], data_type=TensorProto.UINT8, data_location=TensorProto.EXTERNAL)
    notes = {"location": "w.bin", "offset": "32", "length": "100", "prepacked_0": "MatMul+7|192;64;0"}
    for key, value in notes.items():
        tensor.external_data.add(key=key, value=value)
    model = onnx.ModelProto(ir_version=8)
    model.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert align(tmp_path / "m.onnx", tmp_path / "w.bin")
    moved = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer[0]
    raw, packed = blobs_of(moved, tmp_path)
    content = (tmp_path / "w.bin").read_bytes()
    assert content[raw.offset :][:100] == array[:100]
    assert content[packed.offset :][:64] == array[:64]
    assert raw.offset % ALIGNMENT == packed.offset % ALIGNMENT == 0
    assert not align(tmp_path / "m.onnx", tmp_path / "w.bin")


def test_what_came_there_meanwhile_stays_too(chain: Path, tmp_path: Path) -> None:
    def somebody_else(_: Progress) -> None:
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "p" / "mine").touch()

    with pytest.raises(UsageError, match="holds other things than a package"):
        pack(chain, tmp_path / "p", on_progress=somebody_else)
    assert os.listdir(tmp_path) == ["p"] and os.listdir(tmp_path / "p") == ["mine"]


def test_a_package_is_replaced_only_by_force_and_other_things_never(chain: Path, tmp_path: Path) -> None:
    target = tmp_path / "p"
    target.mkdir()
    pack(chain, target, "external")
    with pytest.raises(UsageError, match="there is a package"):
        pack(chain, target)
    assert pack(chain, target, force=True).manifest.mode == "prepacked"
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other things"):
        pack(chain, tmp_path / "q", force=True)
    with pytest.raises(UsageError, match="no folder"):
        pack(chain, tmp_path / "none" / "p")
    assert sorted(os.listdir(tmp_path)) == ["p", "q"]


def test_repack_makes_the_same_again(chain: Path, tmp_path: Path) -> None:
    source = Path(shutil.copy(chain, tmp_path / "m.onnx"))
    before = pack(source, tmp_path / "p", "mapped").manifest
    again = repack(tmp_path / "p", source).manifest
    assert (again.mode, again.verified) == (before.mode, before.verified)
    source.unlink()
    with pytest.raises(UsageError, match="is not at"):
        repack(tmp_path / "p")
    odd(source)
    with pytest.raises(UsageError, match="is not the model"):
        repack(tmp_path / "p")


@pytest.mark.parametrize("mode", ["stock", "tuned", "fast"])
def test_what_needs_no_package_is_refused(chain: Path, tmp_path: Path, mode: str) -> None:
    with pytest.raises(UsageError):
        pack(chain, tmp_path / "p", mode)


def test_a_model_that_computes_something_else_each_time_cannot_be_checked(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("RandomUniformLike", ["x"], ["y"])],
        "dice",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "dice.onnx")
    with pytest.raises(ModelError, match="something else each time"):
        pack(tmp_path / "dice.onnx", tmp_path / "p")
    assert os.listdir(tmp_path) == ["dice.onnx"]


def test_an_ort_file_packs_only_for_the_modes_that_read_it(chain: Path, tmp_path: Path) -> None:
    source = pack(chain, tmp_path / "first", "ort").package.model
    assert pack(source, tmp_path / "second", "ort-mapped").manifest.weights.raw == source.stat().st_size
    with pytest.raises(OnnxmemError, match="from which ONNX Runtime cannot write"):
        pack(source, tmp_path / "third")


def test_a_folder_one_may_not_write_to(chain: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    if os.access(closed, os.W_OK):  # root may write anywhere; a folder of the kernel's is closed even then
        closed = Path("/proc/self")
    with pytest.raises(UsageError, match=r"cannot write|no room"):
        pack(chain, closed / "p")


LIMITED = """
import resource, signal, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
from onnxmem import pack
from onnxmem.errors import UsageError
try:
    pack(sys.argv[1], sys.argv[2])
except UsageError as error:
    print(error)
"""


def test_a_disk_that_fills_up(chain: Path, tmp_path: Path) -> None:
    target = tmp_path / "p"
    run = subprocess.run([sys.executable, "-c", LIMITED, chain, target], capture_output=True, text=True, check=True)
    assert "no room" in run.stdout
    assert os.listdir(tmp_path) == []


def test_a_kill_leaves_nothing_or_a_whole_package(chain: Path, tmp_path: Path) -> None:
    """Two moments here; benchmarks/kill_pack.py tries fifty."""
    code = "import sys; from onnxmem import pack; pack(*sys.argv[1:3], force=True)"
    for number, moment in enumerate((0.8, 1.5)):
        target = tmp_path / "p"
        child = subprocess.Popen([sys.executable, "-c", code, chain, target])
        try:
            child.wait(moment)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        child.wait()
        if target.exists():
            verify_package(target)
        assert sum(name.startswith(".p.partial-") for name in os.listdir(tmp_path)) <= 1, number
    pack(chain, tmp_path / "p", force=True)
    assert os.listdir(tmp_path) == ["p"]
    verify_package(tmp_path / "p")


def test_plans_in_which_outputs_are_others_make_no_package(
    matmul: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = vars(parity)["outputs_of"]

    def wrong(model: Path, *arguments: Any, **more: Any) -> Outputs:
        found: Outputs = run(model, *arguments, **more)
        return replace(found, digests=("00",)) if model != matmul else found

    monkeypatch.setattr("onnxmem.packing.parity.outputs_of", wrong)
    with pytest.raises(ModelError, match="cannot be packed with plans: inside them its outputs are others"):
        pack(matmul, tmp_path / "p", plans=[{"x": (2, 1024)}])
    assert not list(tmp_path.iterdir())
