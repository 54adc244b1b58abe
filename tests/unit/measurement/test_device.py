"""What a process takes of a GPU, as NVML tells it; and what is said where there is none. NVML is played."""

from __future__ import annotations

import sys
import time

import onnxruntime
import pytest

from onnxmem.errors import MissingDependency, RuntimeUnsupported, UsageError
from onnxmem.measurement.device import Gpu, GpuWatch, check_device, device_number
from onnxmem.measurement.scenario import Scenario
from onnxmem.session.modes import CPU, CUDA
from onnxmem.unknown import Unknown
from tests.nvml import Nvml, play

PID = 4711


def test_names_of_devices() -> None:
    assert [device_number(name) for name in ("cpu", "cuda", "cuda:0", "cuda:3")] == [None, 0, 0, 3]
    for wrong in ("gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", ""):
        with pytest.raises(UsageError, match="there is no device"):
            device_number(wrong)


def test_what_is_missing_is_said_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device("cpu")
    with pytest.raises(RuntimeUnsupported, match="this ONNX Runtime is for the CPU") as told:
        check_device("cuda")
    assert "onnxruntime-gpu" in told.value.hint
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    with pytest.raises(MissingDependency, match="'nvidia-ml-py', which is not installed") as told:
        check_device("cuda")
    assert told.value.exit_code == 2
    nvml = play(monkeypatch, Nvml(dict))
    nvml.broken = "NVML Shared Library Not Found"
    with pytest.raises(RuntimeUnsupported, match="device 0 cannot be looked at: NVML Shared Library Not Found"):
        check_device("cuda")
    nvml.broken = ""
    check_device("cuda:1")
    with pytest.raises(RuntimeUnsupported, match="there is no CUDA device 2"):
        check_device("cuda:2")


@pytest.mark.parametrize(
    ("visible", "number", "asked"), [(None, 1, 1), ("1", 0, 1), ("1, 0", 1, 0), ("GPU-ab12,0", 0, "GPU-ab12")]
)
def test_devices_are_counted_as_cuda_does(
    visible: str | None, number: int, asked: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = play(monkeypatch, Nvml(dict))
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    Gpu(number)
    assert nvml.asked == [asked]


def test_none_may_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, Nvml(dict))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeUnsupported, match="there is no CUDA device 0"):
        Gpu(0)


def test_a_process_that_is_listed_is_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: dict[int, int | None] = {1: 3000}
    play(monkeypatch, Nvml(lambda: processes))
    gpu = Gpu(0)
    assert gpu.used(PID) == 0
    processes |= {PID: 500, 2: 7000}
    assert gpu.used(PID) == 500
    del processes[PID]
    assert gpu.used(PID) == 0  # whatever others have taken meanwhile
    assert "of the process;" in gpu.method
    assert gpu.name == "NVIDIA Played, driver 580.1"


def test_a_process_that_is_not_listed_is_what_the_device_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: dict[int, int | None] = {1: 3000}
    nvml = play(monkeypatch, Nvml(lambda: processes))
    gpu = Gpu(0)
    processes[99] = 800  # by the number that it has outside of its container
    assert gpu.used(PID) == 800
    processes |= {1: 0, 99: None, PID: None}  # as where the driver does not tell
    assert gpu.used(PID) == 0
    assert "of the whole device" in gpu.method
    nvml.lists = False  # as with an old driver
    processes[1] = 500
    assert gpu.used(PID) == 0
    processes[1] = 3500
    assert gpu.used(PID) == 500


def test_several_processes_have_their_own_or_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: dict[int, int | None] = {1: 3000}
    nvml = play(monkeypatch, Nvml(lambda: processes))
    gpu = Gpu(0)
    processes |= {98: 500, 99: 700}  # by the numbers that they have outside of their container
    assert gpu.shares([PID, PID + 1]) == [600, 600]
    processes |= {PID: 400, PID + 1: 800}
    assert gpu.shares([PID, PID + 1]) == [400, 800]
    assert gpu.shares([]) == []
    nvml.broken = "GPU is lost"
    assert gpu.shares([PID]) == [Unknown("NVML does not tell: GPU is lost")]


def test_a_gpu_that_is_lost_is_not_an_error_of_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = play(monkeypatch, Nvml(dict))
    gpu = Gpu(0)
    nvml.broken = "GPU is lost"
    assert gpu.used(PID) == Unknown("NVML does not tell: GPU is lost")
    with GpuWatch(gpu, PID) as watch:
        assert watch.read(0.0) == (gpu.used(PID), gpu.used(PID))


def test_a_watch_sees_what_was_there_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    size, looks = 900, []

    def processes() -> dict[int, int | None]:
        looks.append(size)
        return {PID: size}

    play(monkeypatch, Nvml(processes))
    began = time.monotonic()
    with GpuWatch(Gpu(0), PID) as watch:
        while looks.count(900) < 3:  # the first is the GPU's own, and the last may not be over
            time.sleep(0.001)
        size = 200
        later = time.monotonic()
        assert watch.read(began) == (200, 900)
        assert watch.read(later) == (200, 200)


def test_no_memory_limit_on_a_device() -> None:
    with pytest.raises(UsageError, match="CUDA does not start within one"):
        Scenario("m.onnx", device="cuda", memory_limit=2**30)  # type: ignore[arg-type]
