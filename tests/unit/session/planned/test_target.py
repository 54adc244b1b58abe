"""Where a session is planned, and why it is not: decided before anything of CUDA is loaded."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from onnxmem import InferenceSession
from onnxmem._native import arena as native
from onnxmem.errors import RuntimeUnsupported
from onnxmem.session.modes import CPU, CUDA
from onnxmem.session.planned import target
from onnxmem.session.planned.target import Target, target_of


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As with the wheel for GPUs; which devices were opened."""
    numbers: list[int] = []
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["TensorrtExecutionProvider", CUDA, CPU])
    monkeypatch.setattr(native, "open_device", lambda number, driver: numbers.append(number))
    return numbers


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"enable_cuda_graph": "1"}, "CUDA graphs"),
        ({"enable_cuda_graph": True}, "CUDA graphs"),
        ({"gpu_external_alloc": "140000000"}, "an allocator already"),
        ({"gpu_mem_limit": str(2**31)}, "gpu_mem_limit"),
        ({"gpu_mem_limit": 2**31}, "gpu_mem_limit"),
    ],
)
def test_what_speaks_against_it(options: dict[str, Any], reason: str, opened: list[int]) -> None:
    plain = onnxruntime.SessionOptions()
    for providers, beside in (([(CUDA, options), CPU], None), ([CUDA, CPU], [options, {}])):
        with pytest.raises(RuntimeUnsupported, match=reason):
            target_of(plain, providers, beside)
    assert not opened


def test_other_providers_and_several_streams(opened: list[int]) -> None:
    plain, streams = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    streams.add_session_config_entry("session.node_partition_config_file", "streams.json")
    for providers in (None, ["TensorrtExecutionProvider", CUDA]):  # None: all that there are
        with pytest.raises(RuntimeUnsupported, match="Tensorrt"):
            target_of(plain, providers)
    with pytest.raises(RuntimeUnsupported, match="several streams"):
        target_of(streams, [CUDA])
    assert target_of(streams, [CPU]) == Target()
    assert not opened


@pytest.mark.parametrize(
    ("options", "number", "synchronizes"),
    [
        ({}, 0, True),
        ({"device_id": 1, "gpu_mem_limit": str(2**64 - 1), "enable_cuda_graph": "0"}, 1, True),
        ({"device_id": "3", "user_compute_stream": "94000000"}, 3, False),
        ({"user_compute_stream": "0"}, 0, True),
    ],
)
def test_the_device_that_was_asked_for(
    options: dict[str, Any], number: int, synchronizes: bool, opened: list[int]
) -> None:
    found = target_of(onnxruntime.SessionOptions(), [(CUDA, options)])
    assert (opened, found.synchronizes) == ([number], synchronizes)


def test_without_a_driver_the_reason_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, chain: Path) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(target, "_DRIVER", "libno-such-driver.so")
    with pytest.raises(RuntimeUnsupported, match=r"no CUDA driver here \(libno-such-driver"):
        target_of(onnxruntime.SessionOptions(), [CUDA])
    session = InferenceSession(chain, providers=[CPU])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        session.set_providers([CUDA, CPU])
    assert session.loaded_mode == "stock"
    assert "no CUDA driver here" in session.memory.reason
    assert any("no CUDA driver here" in str(each.message) for each in said)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that can be opened, and is not there."""

    class Nowhere:
        number = 0

        def settle(self) -> None: ...

        def trim(self) -> None: ...

    monkeypatch.setattr(target, "_on_cuda", lambda *_: Target(Nowhere()))  # type: ignore[arg-type]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(native, "Pool", lambda *_: None)
    monkeypatch.setattr(native, "enlist_device", lambda _: "")
    monkeypatch.setattr(native, "withdraw_device", lambda _: "")


@pytest.mark.usefixtures("nowhere")
def test_a_device_that_onnx_runtime_left_out_is_not_planned_for(chain: Path) -> None:
    """It falls back to the CPU, where a plan for the device would wait for calls that never come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = InferenceSession(chain, providers=[CPU])
        session.set_providers([CUDA, CPU])
    assert session.loaded_mode == "stock"
    assert "could not load CUDAExecutionProvider" in session.memory.reason


@pytest.mark.usefixtures("nowhere")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_budget_is_refused_on_a_device(monkeypatch: pytest.MonkeyPatch, chain: Path) -> None:
    session = InferenceSession(chain, providers=[CPU], budget="64MiB")
    monkeypatch.setattr(InferenceSession, "get_providers", lambda _: [CUDA, CPU])
    with pytest.raises(RuntimeUnsupported, match=r"a budget cannot be kept: .* rounded otherwise"):
        session.set_providers([CUDA, CPU])


def test_tiles_are_refused_before_they_are_searched(chain: Path) -> None:
    with pytest.raises(RuntimeUnsupported, match=f"tile=True is for {CPU}, not for {CUDA}"):
        InferenceSession(chain, providers=[CUDA], tile=True)
