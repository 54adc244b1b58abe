"""Measuring on a GPU without one: NVML is played, and says that what a process has resident is what it has there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from onnxmem import Measurement, compare, measure
from onnxmem.comparison import trials
from onnxmem.errors import UsageError
from onnxmem.measurement import measure as measuring
from onnxmem.measurement.protocol import Task
from onnxmem.measurement.trial import Trial, run_trial
from onnxmem.releasing import ladder
from onnxmem.releasing.ladder import release_ladder
from onnxmem.report.build import make_report
from onnxmem.report.render.to_terminal import render_text
from onnxmem.session.modes import CPU, CUDA
from onnxmem.unknown import Bytes, Unknown
from tests.nvml import Nvml, play


def resident() -> dict[int, int | None]:
    """What the children of this process have, by process id."""
    found: dict[int, int | None] = {}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread, or a child, that has ended meanwhile
            for child in (thread / "children").read_text().split():
                pages = Path(f"/proc/{child}/statm").read_text().split()[1]
                found[int(child)] = int(pages) * os.sysconf("SC_PAGE_SIZE")
    return found


def about(size: Bytes | None) -> Any:
    """The kernel's two ways to count pages may differ by some."""
    return pytest.approx(size, abs=2**20)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, Nvml(resident))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])


@pytest.fixture
def stand_in(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs on the CPU, for one on the device."""

    def on_cpu(task: Task, **more: Any) -> Trial:
        return run_trial(task, **{**more, "worker": "tests.integration.device_worker"})

    for room in (measuring, trials, ladder):
        monkeypatch.setattr(room, "run_trial", on_cpu)


@pytest.mark.usefixtures("stand_in")
def test_phases_and_peaks_on_a_device(chain: Path) -> None:
    result = measure(chain, device="cuda:1", mode="planned", runs=2)
    assert result.verdict.ok
    assert result.device is not None
    assert (result.device.name, result.scenario.device) == ("NVIDIA Played, driver 580.1", "cuda:1")
    assert "of the process;" in result.device.method
    loaded, ran = (phase for phase in result.phases if phase.name in ("load", "steady runs"))
    assert loaded.device == about(loaded.reading.rss)  # the process waits while it is looked at
    assert loaded.before_device == about(loaded.before)
    assert ran.device == about(ran.reading.rss)
    assert ran.device <= ran.peak_device <= result.device.peak  # type: ignore[operator]
    assert 0 < result.device.load_growth <= result.load_growth + 2**20  # type: ignore[operator]
    assert result.runtime.nodes == Unknown("ONNX Runtime tells it of the CPU only")
    assert Measurement.from_document(result.document()) == result
    text = render_text(make_report([result]))
    assert "mode planned on cuda:1" in text
    assert "peak on the device" in text
    assert "NVML, of the process" in text


@pytest.mark.usefixtures("stand_in")
def test_candidates_are_compared_by_what_they_take_on_the_device(chain: Path) -> None:
    result = compare([chain, f"{chain}+planned"], device="cuda:1", repeat=1, repeat_limit=1, runs=1)
    assert result.ok
    rows = {row.metric: row for row in result.rows}
    assert set(rows["device memory"].values) == set(rows["device memory of loading"].values)
    assert all(isinstance(value, int) for value in rows["device memory of inference"].values.values())
    assert (result.advice, result.fits) == ((), ())
    text = render_text(make_report([result]))
    assert "Peak memory on the device" in text
    assert "How the peak RSS comes about" not in text


@pytest.mark.usefixtures("stand_in")
def test_what_each_step_gives_back_on_the_device(chain: Path) -> None:
    result = release_ladder(chain, device="cuda:1", runs=1)
    assert [step.device for step in result.steps[:-1]] == [about(step.reading.rss) for step in result.steps[:-1]]
    assert result.full.device == about(result.full.reading.rss)
    assert result.steps[-1].device == 0
    assert "On the device" in result.derived()["explanation"][0]
    text = render_text(make_report([result]))
    assert "remain until it ends" in " ".join(text.split())
    assert "left there" in text
    assert type(result).from_document(result.document()) == result


@pytest.mark.usefixtures("gpu")
def test_an_onnx_runtime_that_cannot_use_the_gpu_is_not_measured_on_the_cpu(chain: Path) -> None:
    with pytest.raises(UsageError, match="ONNX Runtime could not load CUDAExecutionProvider"):
        measure(chain, device="cuda", mode="planned", runs=1)
