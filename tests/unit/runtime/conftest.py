"""Small models and packages for the tests of loading."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxmem import zoo
from onnxmem.pack import pack


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four MatMuls: 4 MiB of weights, all of which kernels pack."""
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    onnx.save(zoo.build("matmul", layers=4, width=512), path)
    return path


@pytest.fixture(scope="session")
def packed(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its package. Tests that spoil it copy it first."""
    folder = tmp_path_factory.mktemp("packages") / "chain.pack"
    pack(chain, folder)
    return folder
