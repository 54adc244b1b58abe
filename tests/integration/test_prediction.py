"""Predictions against what ONNX Runtime does: the same calls of its allocator, and about the same memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxmem
from onnxmem import zoo
from onnxmem._native import arena as native
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import Calibration, Process, calibration, calibration_file
from onnxmem.prediction.predict import Subject
from onnxmem.schedule.scheduled import Question
from onnxmem.session.planned import bridge

MIB = 1 << 20


def _recorded(path: Path, shapes: Mapping[str, tuple[int, ...]], *, on: bool) -> list[list[int]]:
    """The sizes that a first and a second run ask for, with memory pattern and reuse on or off."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = options.enable_mem_reuse = on
    options.add_session_config_entry("session.use_env_allocators", "1")
    with bridge.enlisted():
        session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    feeds = {value.name: np.ones(shapes[value.name], types[value.type]) for value in session.get_inputs()}
    runs = []
    for _ in range(2):
        native.begin_record(limited=False)
        outputs = session.run(None, feeds)
        calls = native.end_run()
        assert isinstance(calls, native.Recorded)
        del outputs
        runs.append(sorted(int(size) for size in calls.sizes))
    return runs


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "densenet121", "transformer"])
@pytest.mark.parametrize("on", [False, True], ids=["tuned", "stock"])
def test_the_allocator_is_asked_for_what_was_predicted(name: str, on: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(zoo.build(name), path)
    subject = Subject.of(Model.open(path), Question(), threads=1)
    runs = subject.stock_runs if on else subject.plain_runs
    for asked, predicted in zip(_recorded(path, subject.input_shapes, on=on), (runs.first, runs.later), strict=True):
        sizes = [event.buffer.size for event in predicted if not event.freed]
        assert Counter(map(_rounded, sizes)) == Counter(map(_rounded, asked))


def _rounded(size: int) -> int:
    return -(-size // 256) * 256


@pytest.mark.parametrize("mode", ["stock", "tuned", "planned"])
def test_a_process_takes_about_what_was_predicted(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "unet.onnx"
    onnx.save(zoo.build("unet"), path)
    shapes = {"image": (1, 3, 256, 256)}
    predicted = onnxmem.predict(path, shapes=shapes, mode=mode, threads=1)
    measured = onnxmem.measure(path, shapes=shapes, mode=mode, threads=1, runs=3, nodes=False)
    growth = measured.run_growth
    assert isinstance(growth, int)
    peak = max(phase.peak.rss for phase in measured.phases if isinstance(phase.peak.rss, int))
    assert predicted.peak == pytest.approx(peak, rel=0.1)
    assert predicted.run_growth == pytest.approx(growth, rel=0.15, abs=2 * MIB)


def test_what_a_process_takes_is_measured_again_when_its_library_is_held_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = calibration()
    assert measured.touched > 0
    # What is kept is used as long as touches of the library bring what they brought …
    wrong = Process(imported=1, shared=1, loading=1, running=1)
    kept = replace(measured, stock=wrong)
    calibration_file().write_text(json.dumps(kept.document()))
    assert calibration() == kept
    # … and no longer.
    calibration_file().write_text(json.dumps(replace(kept, touched=3 * kept.touched).document()))
    again = calibration()
    assert again.stock.imported > 20 * MIB
    assert Calibration.from_document(json.loads(calibration_file().read_text())) == again
