"""The native allocator under sanitizers, and against a slow reference."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onnxmem._native import arena

ROOT = Path(__file__).parents[4]
SOURCES = [ROOT / "src/onnxmem/_native" / f"arena_{part}.cpp" for part in ("heap", "region", "run", "tape")]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_allocators_own_tests_pass_under_sanitizers(sanitizer: str, tmp_path: Path) -> None:
    program = tmp_path / "arena_test"
    command = ["c++", "-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    command += [f"-I{SOURCES[0].parent}", str(ROOT / "tests/native/arena_test.cpp"), *map(str, SOURCES)]
    try:
        built = subprocess.run([*command, "-o", str(program), "-pthread"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no C++ compiler")
    if "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    assert built.returncode == 0, built.stderr
    arguments = ["no-fork"] if sanitizer == "thread" else []
    # Requests that no machine can meet are part of the tests: like any malloc, the sanitizer's shall return null.
    settings = dict.fromkeys(("ASAN_OPTIONS", "TSAN_OPTIONS"), "allocator_may_return_null=1")
    run = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, check=False, timeout=120, env=os.environ | settings
    )
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is not one ThreadSanitizer knows")
    assert (run.returncode, run.stdout) == (0, "ok\n"), run.stderr


Calls = list[tuple[str, int]]


@st.composite
def runs(draw: st.DrawFn) -> Calls:
    """Calls of a run: ("alloc", size) and ("free", number of the allocation)."""
    calls: Calls = []
    alive: list[int] = []
    made = 0
    for step in draw(st.lists(st.integers(0, 2**20), max_size=40)):
        if alive and step % 3 == 0:
            calls.append(("free", alive.pop(step % len(alive))))
        else:
            calls.append(("alloc", step % 5000 + 1))
            alive.append(made)
            made += 1
    return calls


def play(calls: Calls) -> tuple[list[int], list[int]]:
    """Make the calls; the address of every allocation, and those that are left."""
    addresses: list[int] = []
    left: dict[int, int] = {}
    for kind, value in calls:
        if kind == "alloc":
            left[len(addresses)] = arena.allocate(value)
            addresses.append(left[len(addresses)])
        else:
            arena.release(left.pop(value))
    return addresses, list(left.values())


def reference(calls: Calls) -> tuple[list[int], list[int], list[int]]:
    """What a recording must say, written down the slow way."""
    sizes = [value for kind, value in calls if kind == "alloc"]
    lowers = [step for step, (kind, _) in enumerate(calls) if kind == "alloc"]
    frees = {value: step for step, (kind, value) in enumerate(calls) if kind == "free"}
    return sizes, lowers, [frees.get(number, -1) for number in range(len(sizes))]


def record(calls: Calls) -> tuple[Any, Any, Any]:
    arena.begin_record(limited=False)
    _, left = play(calls)
    said = arena.finish()
    for address in left:
        arena.release(address)
    assert said is not None and len(said) == 3
    return said


@given(runs())
@hypothesis_settings(max_examples=150, deadline=None)
def test_a_recording_is_what_happened(calls: Calls) -> None:
    assert tuple(column.tolist() for column in record(calls)) == reference(calls)


@given(runs())
@hypothesis_settings(max_examples=150, deadline=None)
def test_a_replay_puts_every_buffer_where_the_tape_says(calls: Calls) -> None:
    sizes, lowers, uppers = record(calls)
    offsets = arena.place_in_sequence(sizes, lowers, uppers)
    tape, pool = arena.Tape(sizes, lowers, uppers, offsets), arena.Pool(1, True, False)
    assert arena.begin_replay(tape, pool)
    addresses, left = play(calls)
    assert arena.finish() is None
    placed = [(address, offset) for address, offset in zip(addresses, offsets.tolist(), strict=True) if offset >= 0]
    assert len({address - offset for address, offset in placed}) <= 1
    assert len(left) == (uppers < 0).sum()
    for address in left:
        arena.release(address)


@given(runs(), runs(), st.booleans())
@hypothesis_settings(max_examples=200, deadline=None)
def test_whatever_a_run_does_no_two_live_buffers_share_a_byte(recorded: Calls, other: Calls, prefix: bool) -> None:
    """Replay something else than was recorded, from the start or from the middle on."""
    sizes, lowers, uppers = record(recorded)
    tape = arena.Tape(sizes, lowers, uppers, arena.place_in_sequence(sizes, lowers, uppers))
    pool = arena.Pool(1, True, False)
    calls = recorded[: len(recorded) // 2] if prefix else other
    arena.begin_replay(tape, pool)
    live: dict[int, tuple[int, int]] = {}
    made = 0
    for kind, value in calls:
        if kind == "alloc":
            start = arena.allocate(value)
            assert start % 64 == 0
            assert all(start + value <= low or high <= start for low, high in live.values())
            live[made] = (start, start + value)
            made += 1
        else:
            arena.release(live.pop(value)[0])
    said = arena.finish()
    assert said is None or (len(said) == 5 and said[0])
    for start, _ in live.values():
        arena.release(start)
    assert pool.stats()["escaped"] == 0
    assert pool.stats()["lent"] == 0


def test_a_cut_tape_may_be_followed_by_anything() -> None:
    sizes, lowers, uppers = (np.array(c, np.int64) for c in ([64, 128], [0, 1], [-1, -1]))
    tape = arena.Tape(sizes, lowers, uppers, np.array([0, 64], np.int64), cut=True)
    pool = arena.Pool(1, True, False)
    assert arena.begin_replay(tape, pool)
    addresses, _ = play([("alloc", 64), ("alloc", 128), ("alloc", 999), ("free", 1), ("free", 0), ("free", 2)])
    assert arena.finish() is None
    assert addresses[1] - addresses[0] == 64


def test_a_wrong_tape_is_refused() -> None:
    sizes, lowers, uppers, offsets = (np.array(c, np.int64) for c in ([64, 64], [0, 1], [2, 3], [0, 0]))
    with pytest.raises(ValueError, match="overlap"):
        arena.Tape(sizes, lowers, uppers, offsets)


def test_a_long_loop_over_little_memory_is_not_recorded() -> None:
    arena.begin_record()
    for _ in range(10_000):
        arena.release(arena.allocate(64))
    assert arena.finish() is None


def test_finish_without_begin_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no run has begun"):
        arena.finish()
