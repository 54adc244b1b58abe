"""Commands as they are typed, and small models that load and run in no time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem import IsolatedSession, zoo
from onnxmem.cli import main
from onnxmem.packing.pack import pack

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Type a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def type_it(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onnxmem", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        code = stopped.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return type_it


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models below are kept for all tests."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def packed(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of `chain`. Tests that spoil it copy it first."""
    folder = tmp_path_factory.mktemp("packages") / "chain.pack"
    pack(chain, folder)
    return folder


@pytest.fixture(scope="session")
def matmul(folder: Path) -> Path:
    """16 MiB of weights and nearly no activations."""
    path = folder / "matmul.onnx"
    onnx.save_model(zoo.build("matmul", layers=4, width=1024), path)
    return path


@pytest.fixture(scope="session")
def external(folder: Path, matmul: Path) -> Path:
    """The same with external weights."""
    path = folder / "external.onnx"
    proto = onnx.load_model(matmul)
    onnx.save_model(proto, path, save_as_external_data=True, location="external.bin", size_threshold=1024)
    return path


@pytest.fixture(scope="session")
def ort(folder: Path, matmul: Path) -> Path:
    """The same in ORT format."""
    import onnxruntime  # noqa: PLC0415

    path = folder / "matmul.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(matmul), options, providers=["CPUExecutionProvider"])
    return path


@pytest.fixture(scope="session")
def unet(folder: Path) -> Path:
    """Many activations."""
    path = folder / "unet.onnx"
    onnx.save_model(zoo.build("unet"), path)
    return path


@pytest.fixture(scope="session")
def unimplemented(folder: Path) -> Path:
    """A model with an operator that no one has."""
    node = helper.make_node("Telepathy", ["x"], ["y"], domain="nowhere")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("nowhere", 1)]
    path = folder / "unimplemented.onnx"
    onnx.save_model(
        helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=10, opset_imports=opsets), path
    )
    return path


@pytest.fixture(scope="session")
def reshaping(folder: Path) -> Path:
    """A model whose declared shape lies: only a batch of 2 fits the shape it reshapes to."""
    shape = numpy_helper.from_array(np.array([2, 8], np.int64), "shape")
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])
    graph = helper.make_graph([node], "g", [x], [y], [shape])
    path = folder / "reshaping.onnx"
    onnx.save_model(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


@pytest.fixture
def session(model: Path) -> Iterator[IsolatedSession]:
    """An isolated one."""
    with IsolatedSession(model, {"intra_op_num_threads": 1}) as opened:
        yield opened
