"""Planned runs on a device, without a GPU: the planner is real, and so is the allocator; ONNX Runtime's part is played.

The driver that stands in for CUDA's has streams that lag (see arena_stand_in.cpp): a place that is used again too early
is a fault.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest

from onnxmem._native import arena as native
from onnxmem.session.planned import bridge
from onnxmem.session.planned.arena import Arena
from onnxmem.session.planned.planner import Planner
from onnxmem.session.planned.target import Target
from onnxmem.session.planning import PlanningOptions
from tests.native.build import CannotBuild, build_driver

PIECE = 64 << 10  # what memory comes in


class Gpu:
    """The device that stands in, and the streams on it."""

    def __init__(self) -> None:
        path = str(build_driver())
        self.library = ctypes.CDLL(path)
        self.library.stand_in_faults.restype = ctypes.c_ulonglong
        self.library.stand_in_used.restype = ctypes.c_size_t
        self.device = native.open_device(0, path)

    def queue(self, stream: int, address: int, size: int, value: int, *, writes: bool) -> None:
        where, count = ctypes.c_size_t(address), ctypes.c_size_t(size)
        self.library.stand_in_queue(ctypes.c_int(stream), where, count, ctypes.c_int(value % 251), ctypes.c_int(writes))

    def wait(self, stream: int = -1) -> None:
        self.library.stand_in_wait(ctypes.c_int(stream))

    @property
    def used(self) -> int:
        return int(self.library.stand_in_used())

    def faults(self) -> int:
        self.wait()
        return int(self.library.stand_in_faults())


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    try:
        gpu = Gpu()
    except CannotBuild as error:
        pytest.skip(str(error))
    before = gpu.used
    yield gpu
    assert gpu.faults() == 0
    gpu.device.settle()
    gpu.device.trim()
    assert gpu.used == before
    assert gpu.device.stats().live_blocks == 0


class Model:
    """Plays ONNX Runtime: a chain of layers on a stream of the thread's own; each reads what the last one wrote."""

    def __init__(self, gpu: Gpu, layers: int = 6) -> None:
        self.gpu, self.layers, self.runs = gpu, layers, 0
        self.first_asks = 0
        self.waits = True
        self.fails = False
        self.keeps = False
        self.kept: list[int] = []
        self._streams: dict[int, int] = {}

    def run(self, _: Any, feeds: dict[str, Any], __: Any = None) -> int:
        stream = self._streams.setdefault(threading.get_ident(), id(self) % 1000 * 10 + len(self._streams))
        device, size = self.gpu.device, int(feeds["x"].shape[0]) * 1000
        self.runs += 1
        mark = self.runs * 17
        if self.first_asks and self.runs == 1:
            device.release(device.allocate(self.first_asks))
        before = device.allocate(size)
        self.gpu.queue(stream, before, size, mark, writes=True)
        for layer in range(1, self.layers):
            after = device.allocate(size * (1 + layer % 3))
            scratch = device.allocate(size // 2)
            self.gpu.queue(stream, scratch, size // 2, mark, writes=True)
            self.gpu.queue(stream, before, size, mark + layer - 1, writes=False)
            self.gpu.queue(stream, after, size, mark + layer, writes=True)
            device.release(scratch)
            device.release(before)
            before = after
            if self.fails and layer == 3:
                device.release(before)
                raise RuntimeError("as if a kernel had failed")
        self.gpu.queue(stream, before, size, mark + self.layers - 1, writes=False)
        if self.waits:
            self.gpu.wait(stream)
        if self.keeps:
            self.kept.append(before)
        else:
            device.release(before)
        return stream


def feeds(rows: int) -> dict[str, Any]:
    return {"x": np.empty((rows, 1), "f4")}


def planner(gpu: Gpu, *, synchronizes: bool = True, **options: Any) -> Planner:
    return Planner(PlanningOptions(plan_seconds=0, **options), target=Target(gpu.device, synchronizes=synchronizes))


def whole(size: int) -> int:
    return -(-size // PIECE) * PIECE


def test_later_runs_are_where_the_plan_says_and_take_no_more(gpu: Gpu) -> None:
    planned, model, before = planner(gpu), Model(gpu), gpu.used
    for _ in range(4):
        planned.run(model.run, None, feeds(500), None)
    memory = planned.memory
    assert (memory.runs_recorded, memory.runs_replayed, memory.runs_deviated) == (1, 3, 0)
    assert memory.plan_bytes == memory.bound_bytes
    assert isinstance(memory.plan_bytes, int)
    assert memory.plan_bytes % 256 == 0
    assert memory.device == "CUDA device 0"
    assert gpu.used - before == memory.arena_bytes == memory.device_bytes == whole(memory.plan_bytes)
    planned.arena.trim()
    assert gpu.used == before
    planned.run(model.run, None, feeds(500), None)
    assert planned.memory.runs_replayed == 4


def test_a_first_run_that_asks_for_more_is_recorded_again_and_what_it_took_goes(gpu: Gpu) -> None:
    planned, model, before = planner(gpu), Model(gpu), gpu.used
    model.first_asks = 8 << 20  # as where kernels try out algorithms
    for turn in range(5):
        planned.run(model.run, None, feeds(300), None)
        if turn == 1:  # which has deviated: nothing is kept but the arena
            assert gpu.used - before == planned.memory.arena_bytes == planned.memory.device_bytes
    memory = planned.memory
    assert (memory.runs_recorded, memory.runs_replayed, memory.runs_deviated) == (2, 2, 1)
    assert gpu.used - before == memory.arena_bytes
    assert gpu.used - before < 2 << 20


def test_outputs_are_outside_and_keep_no_region_from_being_used(gpu: Gpu) -> None:
    planned, model = planner(gpu, arena=Arena(1)), Model(gpu)
    model.keeps = True
    for _ in range(4):
        planned.run(model.run, None, feeds(200), None)
    assert (planned.memory.runs_recorded, planned.memory.runs_replayed, planned.memory.runs_from_heap) == (1, 3, 0)
    assert len(set(model.kept)) == 4
    for address in model.kept:
        gpu.device.release(address)


@pytest.mark.parametrize("limit", [1, 4])
def test_threads_and_sessions_that_share_an_arena(gpu: Gpu, limit: int) -> None:
    shared, before = Arena(limit), gpu.used
    pairs = [(planner(gpu, arena=shared), Model(gpu, layers)) for layers in (4, 7)]
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(12):
                planned, model = pairs[(turn + number) % 2]
                planned.run(model.run, None, feeds(50 + 40 * (turn % 3)), None)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    most = max(planned.memory.plan_bytes for planned, _ in pairs)  # type: ignore[type-var]
    assert isinstance(most, int)
    assert pairs[0][0].memory.regions <= min(limit, 3)
    assert gpu.used - before == shared.device_bytes <= limit * whole(most)
    assert sum(planned.memory.runs_replayed for planned, _ in pairs) > 0
    shared.trim()


@pytest.mark.parametrize("how", ["of the provider", "of the run"])
def test_runs_that_are_not_waited_for(gpu: Gpu, how: str) -> None:
    options = onnxruntime.RunOptions()
    if how == "of the run":
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    planned, models = planner(gpu, synchronizes=how != "of the provider", arena=Arena(1)), [Model(gpu), Model(gpu)]
    for model in models:
        model.waits = False
    for turn in range(8):
        planned.run(models[turn % 2].run, None, feeds(100), options)  # each model has its own stream
    assert planned.memory.runs_replayed == 7


def test_runs_that_are_taken_for_waited_for_would_be_noticed(gpu: Gpu) -> None:
    """What the test above would look like if nobody looked at the options: the stand-in sees it."""
    planned, models = planner(gpu, arena=Arena(1)), [Model(gpu), Model(gpu)]
    for turn in range(10):
        planned.run(models[turn % 2].run, None, feeds(100), None)
        models[turn % 2].waits = False  # from the second on: the arena stays, so that nothing is worse than wrong
    assert gpu.faults() > 0


def test_a_run_that_fails_leaves_everything_as_it_was(gpu: Gpu) -> None:
    planned, model = planner(gpu, arena=Arena(1)), Model(gpu)
    planned.run(model.run, None, feeds(100), None)
    model.fails = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="kernel"):
            planned.run(model.run, None, feeds(100), None)
    model.fails = False
    other = Model(gpu)
    for _ in range(3):
        planned.run(other.run, None, feeds(100), None)
    assert planned.memory.runs_replayed == 3
    planned.arena.trim()  # what was raised holds the planner


def test_plans_of_another_session_are_followed_if_they_are_for_a_device(gpu: Gpu) -> None:
    first, model = planner(gpu), Model(gpu)
    first.run(model.run, None, feeds(100), None)
    documents = first.book.documents()
    second = planner(gpu, plans=documents)
    second.run(model.run, None, feeds(100), None)
    assert (second.memory.runs_recorded, second.memory.runs_replayed) == (0, 1)
    third = planner(gpu, plans=[{**each, "alignment": 64} for each in documents])  # as if recorded on the host
    third.run(model.run, None, feeds(100), None)
    assert (third.memory.runs_recorded, third.memory.runs_replayed) == (1, 0)


def test_onnx_runtime_takes_the_allocator_of_a_device(gpu: Gpu) -> None:
    """As far as that can be seen without a GPU: its table has what is called, and knows the memory by that name."""
    with bridge.enlisted(gpu.device), bridge.enlisted(gpu.device), bridge.enlisted():
        pass
    assert native.withdraw_device(gpu.device) == ""


def test_few_plans_are_remembered_and_the_arena_is_as_large_as_they_need(gpu: Gpu) -> None:
    planned, model, before = planner(gpu, max_plans=2), Model(gpu), gpu.used
    for rows in (900, 100, 120, 140):
        for _ in range(2):
            planned.run(model.run, None, feeds(rows), None)
    memory = planned.memory
    assert len(memory.shapes) == 2
    assert isinstance(memory.plan_bytes, int)
    assert gpu.used - before <= whole(memory.plan_bytes)


def test_an_idle_arena_goes_back(gpu: Gpu) -> None:
    planned, model, before = planner(gpu, trim_after=0.05), Model(gpu), gpu.used
    for _ in range(2):
        planned.run(model.run, None, feeds(500), None)
    assert gpu.used > before
    assert _soon(lambda: gpu.used == before)


def _soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
