"""A graph in pieces, as the providers at hand run it: those of the CPU, for which it is rewritten in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto

from onnxmem import InferenceSession, ModelError, UsageError, zoo
from onnxmem.session.device_tiles import HOW, tiled_for
from onnxmem.session.modes import CPU, CUDA
from tests.helpers import saved

IMAGE = np.random.default_rng(0).standard_normal((1, 3, 128, 128)).astype("f4")


def unet_for(*shape: int) -> ModelProto:
    model = zoo.build("unet")
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    return model


@pytest.fixture(scope="module")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(unet_for(*IMAGE.shape), tmp_path_factory.mktemp("unet"))


def test_what_is_rewritten_computes_the_same_in_less(unet: Path) -> None:
    expected = ort.InferenceSession(unet, providers=[CPU]).run(None, {"image": IMAGE})
    whole = InferenceSession(unet)
    tiled = InferenceSession(tiled_for(unet, [CPU]), settings=HOW[0], config=HOW[1])
    for session in (whole, tiled):
        assert np.array_equal(session.run(None, {"image": IMAGE})[0], expected[0])
    assert int(str(tiled.memory.plan_bytes)) < 0.7 * int(str(whole.memory.plan_bytes))


def test_what_cannot_be_is_said(unet: Path, tmp_path: Path) -> None:
    free = saved(zoo.build("unet"), tmp_path)
    with pytest.raises(UsageError, match=r"fixed input shapes, and 'model\.onnx' has free ones: batch"):
        tiled_for(free, [CPU])
    with pytest.raises(UsageError, match=r"for an \.onnx file"):
        tiled_for(unet.read_bytes(), [CPU])
    with pytest.raises(ModelError, match=r"no part of 'model.onnx' needs less in pieces"):
        tiled_for(saved(unet_for(1, 3, 8, 8), tmp_path), [CPU])


def test_a_session_for_a_gpu_is_rewritten_only_if_pieces_may_be_rounded_otherwise(
    unet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that there is not: ONNX Runtime runs on the CPU instead, and what it is given is the rewritten graph."""
    there: list[Any] = []

    def rewritten(path: Path, *_: Any) -> Path:
        there.append(path)
        return path

    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr("onnxmem.session.device_tiles.tiled_for", rewritten)
    with pytest.warns(RuntimeWarning, match="not planned"):
        InferenceSession(unet, providers=[CUDA, CPU], tile=True, exact=False)
    assert there == [unet]
