"""Small models to load, run and let go of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from onnxmem import zoo
from onnxmem.prediction.calibration import Calibration, Process, calibration_file


@pytest.fixture(scope="session")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose arena is many times its output."""
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet"), path)
    return path


@pytest.fixture(autouse=True, scope="session")
def known_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a process takes by itself is in the cache already: asking would start one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        stock = Process(imported=56 << 20, shared=33 << 20, loading=7 << 20, running=700 << 10)
        planned = Process(imported=58 << 20, shared=34 << 20, loading=7 << 20, running=600 << 10)
        path = calibration_file()
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(Calibration(stock=stock, planned=planned).document()))
        yield
