"""Converting: the same model in other files."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxmem import convert, zoo
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.model.external import external_location


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "lstm.onnx"
    onnx.save(zoo.build("lstm", layers=1, features=8, hidden=32), path)
    return path


def outputs(path: Path) -> np.ndarray:
    x = np.random.default_rng(0).random((2, 5, 8), dtype=np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"features": x})[0])


def test_there_and_back(model: Path, tmp_path: Path) -> None:
    files = [file.path for file in convert(model, "external", tmp_path / "e.onnx").files]
    assert [file.name for file in files] == ["e.onnx", "e.weights"]
    proto = onnx.load(files[0], load_external_data=False)
    places = [external_location(tensor, tmp_path) for tensor in proto.graph.initializer if tensor.external_data]
    assert places and all(offset % 4096 == 0 for _, offset, _ in places)
    convert(files[0], "onnx", tmp_path / "o.onnx")
    convert(files[0], "ort", tmp_path / "o.ort")
    assert onnx.load(tmp_path / "o.onnx") == onnx.load(model)
    for path in (files[0], tmp_path / "o.onnx", tmp_path / "o.ort"):
        assert np.array_equal(outputs(path), outputs(model))


def test_replacing_leaves_no_old_weights(model: Path, tmp_path: Path) -> None:
    convert(model, "external", tmp_path / "e.onnx")
    with pytest.raises(UsageError, match="already"):
        convert(model, "external", tmp_path / "e.onnx")
    files = [file.path for file in convert(model, "external", tmp_path / "e.onnx", force=True).files]
    assert sorted(os.listdir(tmp_path)) == sorted(file.name for file in files)
    assert np.array_equal(outputs(files[0]), outputs(model))


def test_wrong_requests(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no form 'zip'"):
        convert(model, "zip", tmp_path / "x.onnx")
    with pytest.raises(UsageError, match=r"should end with \.ort"):
        convert(model, "ort", tmp_path / "x.onnx")
    with pytest.raises(UsageError, match="is the model itself"):
        convert(model, "external", model, force=True)
    convert(model, "ort", tmp_path / "x.ort")
    with pytest.raises(OnnxmemError):
        convert(tmp_path / "x.ort", "onnx", tmp_path / "y.onnx")


@pytest.mark.parametrize(
    "moment", ["onnxmem.packing.convert._content", "os.link", "onnxmem.packing.convert._remove_weights"]
)
def test_a_killed_conversion_leaves_the_old_model_or_the_new_one_and_the_next_one_clears(
    model: Path, tmp_path: Path, moment: str
) -> None:
    """Weights have their name before their model has it, and the old ones go after: a process may end in between."""
    convert(model, "external", tmp_path / "e.onnx")
    module, name = moment.rsplit(".", 1)
    code = (
        f"import importlib, os, sys; setattr(importlib.import_module({module!r}), {name!r}, lambda *_: os._exit(9))\n"
        "from onnxmem import convert\n"
        "convert(sys.argv[1], 'external', sys.argv[2], force=True)"
    )
    killed = subprocess.run([sys.executable, "-c", code, model, tmp_path / "e.onnx"], check=False)
    assert killed.returncode == 9 and len(list(tmp_path.glob("*.weights"))) == 2
    assert np.array_equal(outputs(tmp_path / "e.onnx"), outputs(model))
    convert(model, "external", tmp_path / "e.onnx", force=True)
    assert len(os.listdir(tmp_path)) == 2
    assert np.array_equal(outputs(tmp_path / "e.onnx"), outputs(model))


def test_an_interrupt_when_the_model_is_there_leaves_its_weights(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, target = Path.replace, tmp_path / "e.onnx"

    def interrupted(self: Path, to: Path) -> None:
        replace(self, to)
        raise KeyboardInterrupt

    convert(model, "external", target)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", interrupted)
        convert(model, "external", target, force=True)
    assert np.array_equal(outputs(target), outputs(model))
    convert(model, "external", target, force=True)
    assert len(os.listdir(tmp_path)) == 2


def test_an_interrupt_before_leaves_nothing_beside_what_there_was(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (target := tmp_path / "e.onnx").write_bytes(b"no model")
    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(model, "external", target, force=True)
    assert os.listdir(tmp_path) == ["e.onnx"]


def test_two_conversions_at_once_do_not_take_each_others_weights(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) / 2, tensor.name))
    onnx.save(proto, other := tmp_path / "other.onnx")
    module = importlib.import_module("onnxmem.packing.convert")
    target, move, link = tmp_path / "e.onnx", module._move_weights, os.link
    both, first_moved, second_done = threading.Barrier(2), threading.Event(), threading.Event()

    def moving(*arguments: Any) -> Any:
        both.wait(60)  # both have chosen names
        if threading.current_thread().name == "second":
            assert first_moved.wait(60)
        return move(*arguments)

    def linking(*arguments: Any) -> None:
        if threading.current_thread().name != "second":
            first_moved.set()
            assert second_done.wait(60)
        link(*arguments)

    def second() -> None:
        convert(other, "external", target)
        second_done.set()

    monkeypatch.setattr(module, "_move_weights", moving)
    monkeypatch.setattr(os, "link", linking)
    thread = threading.Thread(target=second, name="second")
    thread.start()
    convert(model, "external", target, force=True)
    thread.join()
    assert np.array_equal(outputs(target), outputs(model))
    assert len(list(tmp_path.glob("e*"))) == 2
