"""Outputs in pages that their run has done with: nothing beside the arena, and nothing is copied or touched anew."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from onnxmem._native import arena as native

LARGE = 2 * 2**20
PAGE = 4096


def tape(*, outputs: int = 1) -> native.Tape:
    """Two buffers, one after the other in time; then outputs, while nothing else is alive any more."""
    sizes, lowers, uppers = [LARGE, LARGE], [0, 2], [1, 3]
    for number in range(outputs):
        sizes.append(LARGE // outputs)
        lowers.append(4 + number)
        uppers.append(-1)
    columns = [np.array(column, np.int64) for column in (sizes, lowers, uppers)]
    return native.Tape(columns[0], columns[1], columns[2], np.array([0, LARGE, *[-1] * outputs], np.int64))


def fill(address: int, size: int, value: int) -> int:
    ctypes.memset(address, value, size)
    return address


@contextmanager
def running(followed: native.Tape, pool: native.Pool) -> Iterator[None]:
    assert native.begin_replay(followed, pool)
    yield
    result = native.end_run()
    assert isinstance(result, native.Replayed)
    assert result.deviation is None


def run(followed: native.Tape, pool: native.Pool, *, outputs: int = 1, value: int = 7) -> list[int]:
    with running(followed, pool):
        for _ in range(2):
            native.release(fill(native.allocate(LARGE), LARGE, 1))
        return [fill(native.allocate(LARGE // outputs), LARGE // outputs, value) for _ in range(outputs)]


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_a_loop_of_runs_touches_no_page_anew() -> None:
    followed, pool = tape(), native.Pool(1, True, False)
    for _ in range(3):
        native.release(run(followed, pool)[0])
    before = faults()
    for _ in range(20):
        native.release(run(followed, pool)[0])
    assert faults() - before < LARGE // PAGE / 4
    held = run(followed, pool)[0]
    native.release(run(followed, pool)[0])
    before = faults()
    for turn in range(20):  # out = session.run(…)
        last, held = held, run(followed, pool, value=turn)[0]
        native.release(last)
        assert ctypes.string_at(held + LARGE // 2, 100) == bytes([turn]) * 100
    assert faults() - before < LARGE // PAGE / 4
    native.release(held)


def wide(size: int) -> native.Tape:
    """One buffer, and an output that is larger than all of its region."""
    columns = [np.array(column, np.int64) for column in ([LARGE, size], [0, 2], [1, -1], [0, -1])]
    return native.Tape(columns[0], columns[1], columns[2], columns[3])


def run_wide(followed: native.Tape, pool: native.Pool, size: int) -> int:
    with running(followed, pool):
        native.release(fill(native.allocate(LARGE), LARGE, 1))
        return fill(native.allocate(size), size, 7)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_what_an_output_has_beside_its_regions_pages_is_used_again() -> None:
    size, pool = 8 * LARGE, native.Pool(1, True, False)
    followed = wide(size)
    for _ in range(2):
        native.release(run_wide(followed, pool, size))
    before = faults()
    for _ in range(10):
        native.release(run_wide(followed, pool, size))
    assert faults() - before < size // PAGE / 4
    # Not beside outputs of other sizes: what is kept and what is held never come to more than was once held.
    held = resident()
    other = 7 * LARGE
    address = run_wide(wide(other), pool, other)
    assert resident() - held < LARGE
    assert ctypes.string_at(address, other) == b"\7" * other
    native.release(address)
    native.trim_heap()
    assert held - resident() > 6 * LARGE


def test_outputs_are_found_in_what_the_heap_says_it_holds() -> None:
    followed, pool, before = tape(outputs=4), native.Pool(1, True, False), native.heap_stats()
    held = [address for _ in range(5) for address in run(followed, pool, outputs=4)]
    now = native.heap_stats()
    assert now.live_blocks - before.live_blocks == len(held) == 20
    assert now.live_bytes - before.live_bytes == 5 * LARGE
    assert pool.stats().escaped == 0
    for address in held:
        assert ctypes.string_at(address, LARGE // 4) == b"\7" * (LARGE // 4)
        native.release(address)
    assert native.heap_stats().live_bytes == before.live_bytes


def test_outputs_outlive_trims_and_their_pool() -> None:
    followed, pool = tape(), native.Pool(1, True, False)
    first, second = run(followed, pool, value=1)[0], run(followed, pool, value=2)[0]
    pool.trim()
    pool.shrink(PAGE)
    third = run(followed, pool, value=3)[0]
    del pool
    native.trim_heap()
    for value, address in enumerate((first, second, third), start=1):
        assert ctypes.string_at(address, LARGE) == bytes([value]) * LARGE
        native.release(address)


def test_outputs_by_the_thousand_leave_mappings_to_others() -> None:
    pool, size = native.Pool(1, False, False), native.HANDED_FROM
    sizes, lowers, uppers, offsets = (np.array(each) for each in ([1 << 20, size], [0, 2], [1, -1], [0, -1]))
    tape, outputs = native.Tape(sizes, lowers, uppers, offsets), []
    before = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(6000):
        native.begin_replay(tape, pool)
        native.release(native.allocate(1 << 20))
        outputs.append(native.allocate(size))
        ended = native.end_run()
        assert isinstance(ended, native.Replayed) and ended.deviation is None
    assert all(outputs)
    assert len(Path("/proc/self/maps").read_text().splitlines()) - before < 4000
    for output in outputs:
        native.release(output)
