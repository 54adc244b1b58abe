"""Planned sessions on a real GPU. Without one, everything is skipped: the stand-in of tests/native is for there."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from onnxmem import Arena, InferenceSession, compare, estimate, measure, trace, zoo
from onnxmem._native import arena as native
from onnxmem.errors import RuntimeUnsupported
from onnxmem.prediction.on_device import OnDevice
from onnxmem.session.modes import CUDA
from onnxmem.session.planned.trace import Trace

MIB = 2**20
MODES = ("stock", "planned")
SEARCH = {"cudnn_conv_algo_search": "HEURISTIC"}
IMAGES = [np.random.default_rng(k).standard_normal((1 + k, 3, 96, 96)).astype("f4") for k in range(3)]


def _missing() -> str:
    if CUDA not in onnxruntime.get_available_providers():
        return "this ONNX Runtime has no CUDA provider"
    try:
        native.open_device(0, "libcuda.so.1")
    except RuntimeError as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(_missing()), reason=_missing())]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cuda") / "mobilenet.onnx"
    path.write_bytes(zoo.build("mobilenet").SerializeToString())
    return path


@pytest.fixture(scope="module")
def wanted(model: Path) -> list[Any]:
    session = onnxruntime.InferenceSession(model, providers=[(CUDA, SEARCH)])
    assert CUDA in session.get_providers()
    return [session.run(None, {"image": image})[0] for image in IMAGES]


@pytest.fixture
def device() -> Iterator[native.Device]:
    device = native.open_device(0, "libcuda.so.1")
    yield device
    device.settle()
    device.trim()


def session_of(model: Path, provider: dict[str, Any] | None = None, **more: Any) -> InferenceSession:
    return InferenceSession(model, providers=[(CUDA, {**SEARCH, **(provider or {})})], **more)


def test_a_session_is_planned_and_answers_as_stock_does(model: Path, wanted: list[Any]) -> None:
    session = session_of(model)
    for _ in range(4):
        for image, right in zip(IMAGES, wanted, strict=True):
            np.testing.assert_array_equal(session.run(None, {"image": image})[0], right)
    memory = session.memory
    assert (session.loaded_mode, memory.reason, memory.device) == ("planned", "", "CUDA device 0")
    assert memory.runs_replayed >= 6
    assert memory.runs_from_heap == 0
    assert isinstance(memory.plan_bytes, int)
    assert isinstance(memory.bound_bytes, int)
    assert memory.plan_bytes <= 1.01 * memory.bound_bytes
    assert isinstance(memory.arena_bytes, int)
    assert memory.plan_bytes <= memory.arena_bytes < memory.plan_bytes + 2 * MIB


def test_trim_gives_the_arena_back(model: Path, wanted: list[Any], device: native.Device) -> None:
    session = session_of(model)
    for _ in range(3):
        session.run(None, {"image": IMAGES[2]})
    before, arena = device.memory()[0], session.memory.arena_bytes
    session.trim()
    assert isinstance(arena, int)
    assert session.memory.arena_bytes == 0
    assert device.memory()[0] - before >= arena
    np.testing.assert_array_equal(session.run(None, {"image": IMAGES[2]})[0], wanted[2])


def test_bound_outputs_stay_what_they_are(model: Path, wanted: list[Any]) -> None:
    session = session_of(model)
    name, kept = session.get_outputs()[0].name, []
    for _ in range(4):
        for image in IMAGES:
            binding = session.io_binding()
            binding.bind_ortvalue_input("image", onnxruntime.OrtValue.ortvalue_from_numpy(image, "cuda", 0))
            binding.bind_output(name, "cuda", 0)
            session.run_with_iobinding(binding)
            kept.append(binding.get_outputs()[0])
    for k, value in enumerate(kept):
        assert value.device_name() == "cuda"
        np.testing.assert_array_equal(value.numpy(), wanted[k % 3])
    assert session.memory.runs_replayed >= 6


def test_threads_and_two_sessions_in_one_arena(model: Path, wanted: list[Any]) -> None:
    shared = Arena(limit=3)
    wrong: list[Any] = []
    sessions = [session_of(model, arena=shared) for _ in range(2)]

    def work(first: int) -> None:
        try:
            for k in range(first, first + 60):
                # A shape for each session, so that its runs are inside one plan.
                got = sessions[k % 2].run(None, {"image": IMAGES[k % 2]})[0]
                if not np.array_equal(got, wanted[k % 2]):
                    wrong.append(k)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert sessions[0].memory.regions <= 3


def test_an_exhaustive_search_is_planned_once_it_is_over(model: Path) -> None:
    session = session_of(model, {"cudnn_conv_algo_search": "EXHAUSTIVE"})
    outputs = [session.run(None, {"image": IMAGES[1]})[0] for _ in range(6)]
    for other in outputs[1:]:
        np.testing.assert_array_equal(other, outputs[0])
    assert session.memory.runs_replayed >= 2


def test_runs_that_are_not_waited_for(model: Path, wanted: list[Any]) -> None:
    session, options = session_of(model), onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    name, kept = session.get_outputs()[0].name, []
    for k in range(9):
        binding = session.io_binding()
        binding.bind_ortvalue_input("image", onnxruntime.OrtValue.ortvalue_from_numpy(IMAGES[k % 3], "cuda", 0))
        binding.bind_output(name, "cuda", 0)
        session.run_with_iobinding(binding, options)
        kept.append((binding, binding.get_outputs()[0]))
    native.open_device(0, "libcuda.so.1").synchronize()
    for k, (_, value) in enumerate(kept):
        np.testing.assert_array_equal(value.numpy(), wanted[k % 3])


def test_cuda_graphs_are_left_to_stock(model: Path) -> None:
    with pytest.warns(RuntimeWarning, match="CUDA graphs"):
        session = session_of(model, {"enable_cuda_graph": "1"})
    assert session.loaded_mode == "stock"


def test_no_memory_is_onnx_runtimes_error_and_the_session_goes_on(
    model: Path, wanted: list[Any], device: native.Device
) -> None:
    session = session_of(model)
    for _ in range(2):
        session.run(None, {"image": IMAGES[0]})
    taken = [device.allocate(device.memory()[0] // 2) for _ in range(3)]
    while address := device.allocate(64 * MIB):
        taken.append(address)
    try:
        with pytest.raises(Exception, match="Failed to allocate memory"):
            session.run(None, {"image": np.ones((64, 3, 224, 224), "f4")})
    finally:
        for address in taken:
            device.release(address)
    np.testing.assert_array_equal(session.run(None, {"image": IMAGES[0]})[0], wanted[0])


def test_the_heap_holds_what_is_written_to_it(device: native.Device) -> None:
    """Through the driver: blocks of all sizes, freed in between, each with bytes of its own."""
    driver, random = ctypes.CDLL("libcuda.so.1"), np.random.default_rng(0)
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    blocks: dict[int, tuple[int, int]] = {}
    for turn in range(400):
        if blocks and random.random() < 0.45:
            address, (size, value) = blocks.popitem()
            host = np.empty(size, "u1")
            assert driver.cuMemcpyDtoH_v2(host.ctypes, ctypes.c_uint64(address), ctypes.c_size_t(size)) == 0
            assert (host == value).all()
            device.release(address)
        else:
            size = int(random.integers(1, 3 * MIB))
            address = device.allocate(size)
            assert address % 256 == 0
            blocks[address] = size, turn % 256
            assert (
                driver.cuMemsetD8_v2(ctypes.c_uint64(address), ctypes.c_ubyte(turn % 256), ctypes.c_size_t(size)) == 0
            )
        if turn % 50 == 49:
            device.trim()
    for address in blocks:
        device.release(address)


def test_a_measurement_on_the_device(model: Path) -> None:
    pytest.importorskip("pynvml")
    shapes = {"image": (8, 3, 224, 224)}
    found = {mode: measure(model, shapes=shapes, device="cuda", mode=mode, runs=3) for mode in MODES}
    for result in found.values():
        assert result.verdict.ok
        assert result.device is not None
        assert result.device.load_growth > 10 * MIB  # type: ignore[operator]
        assert result.device.run_growth > 10 * MIB  # type: ignore[operator]
    # At the end, when what the first run took to try out algorithms is gone again.
    stock, planned = (found[mode].trial.phase("steady runs").device for mode in MODES)  # type: ignore[union-attr]
    assert planned < stock  # type: ignore[operator]
    assert found["planned"].planned.runs_replayed > 0  # type: ignore[union-attr]


def test_a_trace_on_the_device_is_what_a_plan_is_of(model: Path) -> None:
    session = session_of(model)
    for _ in range(3):
        session.run(None, {"image": IMAGES[2]})
    traced = trace(model, shapes={"image": IMAGES[2].shape}, device="cuda")
    assert isinstance(traced.trace, Trace)
    assert traced.trace.alignment == 256
    # The search may choose other algorithms than the one that sessions of these tests are told to use.
    assert 0.2 < traced.lower_bound_bytes / session.memory.bound_bytes < 5  # type: ignore[operator]


def test_pytorch_is_compared_on_the_device(tmp_path: Path) -> None:
    for module in ("pynvml", "torch"):
        pytest.importorskip(module)
    code = tmp_path / "net.py"
    code.write_text("import torch\n\ndef make():\n    return torch.nn.Conv2d(3, 64, 3)\n")
    result = compare([f"{code}:make"] * 2, shapes={"x": (8, 3, 512, 512)}, device="cuda", repeat=1, repeat_limit=1)
    assert result.ok
    (row,) = (row for row in result.rows if row.metric == "device memory of inference")
    assert all(value > 8 * 64 * 510 * 510 * 4 for value in row.values.values())  # type: ignore[operator]


def test_an_estimate_is_what_the_device_then_gives(model: Path) -> None:
    """What is alive at once is known to the byte; the process, to the pieces that the driver hands out."""
    shapes = {"image": (4, 3, 96, 96)}
    found = estimate(model, shapes=shapes, device="cuda", time_limit=120).device
    assert isinstance(found, OnDevice)
    assert not found.not_asked
    recorded = trace(model, shapes=shapes, device="cuda").trace
    assert isinstance(recorded, Trace)
    assert found.bound == recorded.bound()
    planned = next(each for each in found.modes if each.mode == "planned")
    measured = measure(model, mode="planned", shapes=shapes, device="cuda", runs=3).device
    assert measured is not None
    assert measured.peak == pytest.approx(planned.steady, rel=0.05)


def test_a_batch_is_run_in_parts_if_they_may_be_rounded_otherwise(model: Path, wanted: list[Any]) -> None:
    where = [(CUDA, SEARCH)]
    with pytest.raises(RuntimeUnsupported, match="rounded otherwise"):
        InferenceSession(model, providers=where, budget="8MiB")
    image = np.concatenate([IMAGES[2]] * 4)
    whole = InferenceSession(model, providers=where)
    expected = whole.run(None, {"image": image})[0]
    budget = int(str(whole.memory.plan_bytes)) // 2
    session = InferenceSession(model, providers=where, budget=budget, exact=False)
    for _ in range(3):
        got = session.run(None, {"image": image})[0]
        assert np.abs(got - expected).max() <= 0.01 * np.abs(expected).max()  # convolutions are done in TF32 there
    (batch,) = session.memory.batches
    assert batch.parts > 1
    assert batch.needed <= budget
    assert int(str(session.memory.arena_bytes)) <= budget + 2 * MIB
