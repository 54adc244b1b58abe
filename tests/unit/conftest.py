"""Small models to load, run and let go of."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis
import onnx
import pytest

from onnxmem import zoo
from onnxmem.prediction.calibration import Calibration, Process, calibration_file

# However long a busy machine takes for one example: a failure is about the code.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose arena is many times its output."""
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet"), path)
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which it is written already what a process takes by itself: asking would start one."""
    folder = tmp_path_factory.mktemp("cache")
    stock = Process(imported=56 << 20, shared=33 << 20, loading=7 << 20, running=700 << 10)
    planned = Process(imported=58 << 20, shared=34 << 20, loading=7 << 20, running=600 << 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        path = calibration_file()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(Calibration(stock=stock, planned=planned).document()))
    return folder


@pytest.fixture(autouse=True)
def known_environment(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit test finds that cache; others ask their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
