"""The zoo's enhancer and its PyTorch twin are one network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxmem import zoo
from onnxmem.errors import ModelError
from onnxmem.torch.enhancer import make, write_weights

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install onnxscript safetensors torch")


def test_pytorch_answers_as_onnx_runtime_does(tmp_path: Path) -> None:
    onnx.save(zoo.build("enhancer"), tmp_path / "enhancer.onnx")
    write_weights(tmp_path / "enhancer.onnx", tmp_path / "enhancer.pth")
    network = make()
    network.load_state_dict(torch.load(tmp_path / "enhancer.pth", weights_only=True))
    image = np.random.default_rng(0).random((2, 3, 64, 40), np.float32)
    (expected,) = onnxruntime.InferenceSession(tmp_path / "enhancer.onnx").run(None, {"image": image})
    with torch.inference_mode():
        answer = network(torch.from_numpy(image)).numpy()
    assert np.abs(answer - expected).max() < 1e-4


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    onnx.save(zoo.build("unet", channels=4), tmp_path / "unet.onnx")
    with pytest.raises(ModelError, match="is not the zoo's enhancer"):
        write_weights(tmp_path / "unet.onnx", tmp_path / "unet.pth")
