"""Small models to load, run and let go of."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxmem import zoo


@pytest.fixture(scope="session")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose arena is many times its output."""
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet"), path)
    return path
