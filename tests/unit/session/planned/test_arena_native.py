"""The native allocator against a slow reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onnxmem._native import arena
from onnxmem.session.memory import DeviationKind

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
    result = arena.end_run()
    for address in left:
        arena.release(address)
    assert isinstance(result, arena.Recorded) and result.complete
    return result.sizes, result.lowers, result.uppers


def replayed() -> arena.Replayed:
    result = arena.end_run()
    assert isinstance(result, arena.Replayed)
    return result


@given(runs())
@hypothesis_settings(max_examples=150)
def test_a_recording_is_what_happened(calls: Calls) -> None:
    assert tuple(column.tolist() for column in record(calls)) == reference(calls)


@given(runs())
@hypothesis_settings(max_examples=150)
def test_a_replay_puts_every_buffer_where_the_tape_says(calls: Calls) -> None:
    sizes, lowers, uppers = record(calls)
    offsets = arena.place_in_sequence(sizes, lowers, uppers)
    tape, pool = arena.Tape(sizes, lowers, uppers, offsets), arena.Pool(1, True, False)
    assert arena.begin_replay(tape, pool)
    addresses, left = play(calls)
    assert replayed().deviation is None
    placed = [(address, offset) for address, offset in zip(addresses, offsets.tolist(), strict=True) if offset >= 0]
    assert len({address - offset for address, offset in placed}) <= 1
    assert len(left) == (uppers < 0).sum()
    for address in left:
        arena.release(address)


@given(runs(), runs(), st.booleans())
@hypothesis_settings(max_examples=200)
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
    deviation = replayed().deviation
    assert deviation is None or DeviationKind[deviation.kind.name].value
    for start, _ in live.values():
        arena.release(start)
    assert pool.stats().escaped == 0
    assert pool.stats().lent == 0


def test_a_cut_tape_may_be_followed_by_anything() -> None:
    sizes, lowers, uppers = (np.array(c, np.int64) for c in ([64, 128], [0, 1], [-1, -1]))
    tape = arena.Tape(sizes, lowers, uppers, np.array([0, 64], np.int64), cut=True)
    pool = arena.Pool(1, True, False)
    assert arena.begin_replay(tape, pool)
    addresses, _ = play([("alloc", 64), ("alloc", 128), ("alloc", 999), ("free", 1), ("free", 0), ("free", 2)])
    assert replayed().deviation is None
    assert addresses[1] - addresses[0] == 64


def test_a_wrong_tape_is_refused() -> None:
    sizes, lowers, uppers, offsets = (np.array(c, np.int64) for c in ([64, 64], [0, 1], [2, 3], [0, 0]))
    with pytest.raises(ValueError, match="overlap"):
        arena.Tape(sizes, lowers, uppers, offsets)
    for last, guard in ((2**63 - 64, 0), (2**63 - 64, 64), (2**63 - 128, 128), (0, 2**63 - 64)):
        with pytest.raises(ValueError, match="passes the end of memory"):
            arena.Tape(sizes, lowers, uppers, np.array([1024, last], np.int64), guard)


def test_a_long_loop_over_little_memory_is_not_recorded() -> None:
    arena.begin_record()
    for _ in range(10_000):
        arena.release(arena.allocate(64))
    result = arena.end_run()
    assert isinstance(result, arena.Recorded) and not result.complete


def test_a_deviation_says_what_was_expected_and_what_was_asked_for() -> None:
    sizes, lowers, uppers, offsets = (np.array(c, np.int64) for c in ([64, 128], [0, 1], [2, 3], [0, 64]))
    assert arena.begin_replay(arena.Tape(sizes, lowers, uppers, offsets), arena.Pool(1, True, False))
    play([("alloc", 64), ("alloc", 100), ("free", 0), ("free", 1)])
    deviation = replayed().deviation
    assert deviation is not None and deviation.kind is arena.DeviationKind.ALLOCATION_OF_ANOTHER_SIZE
    assert (deviation.step, deviation.expected_bytes, deviation.asked_bytes) == (1, 128, 100)


def test_every_kind_of_deviation_has_its_words() -> None:
    assert [kind.name for kind in arena.DeviationKind] == [kind.name for kind in DeviationKind]


def test_a_run_on_the_heap_has_no_result_and_ending_none_is_an_error() -> None:
    arena.begin_heap()
    assert arena.end_run() is None
    with pytest.raises(RuntimeError, match="no run has begun"):
        arena.end_run()


@st.composite
def shared_runs(draw: st.DrawFn) -> tuple[Calls, list[int]]:
    """Calls of a run in which buffers are written over others, which are freed right after; and over which."""
    calls: Calls = []
    alive: list[tuple[int, int]] = []
    over: list[int] = []
    for step in draw(st.lists(st.integers(0, 2**20), max_size=40)):
        if not alive or step % 3 == 0:
            alive.append((len(over), step % 5000 + 1))
            calls.append(("alloc", alive[-1][1]))
            over.append(-1)
            continue
        before, size = alive.pop(step % len(alive))
        if step % 3 == 1:
            calls.append(("alloc", size))
            alive.append((len(over), size))
            over.append(before)
        calls.append(("free", before))
    return calls + [("free", buffer) for buffer, _ in alive], over


@given(shared_runs(), st.integers(0, 60), st.sampled_from([0, 64]))
@hypothesis_settings(max_examples=150)
def test_a_place_passes_on_and_is_free_when_nobody_holds_it(
    shared: tuple[Calls, list[int]], until: int, guard: int
) -> None:
    """Against a slow reference: where each buffer is, who holds it, and what is in it."""
    calls, over = shared
    sizes, lowers, uppers = record(calls)
    # Every place for itself, one after the other: what shares one has the same.
    offsets = np.zeros(len(over), np.int64)
    end = 0
    for buffer, before in enumerate(over):
        offsets[buffer] = end if before < 0 else offsets[before]
        end += 0 if before >= 0 else -(-int(sizes[buffer]) // 64) * 64 + guard
    tape = arena.Tape(sizes, lowers, uppers, offsets, guard, False, np.array(over, np.int64))
    assert tape.over.tolist() == over
    pool = arena.Pool(1, True, False)
    arena.begin_replay(tape, pool)
    addresses: dict[int, int] = {}
    first: int | None = None
    for step, (kind, value) in enumerate(calls):
        if step == until:
            break
        if kind == "free":
            arena.release(addresses.pop(value))
            continue
        number = int((lowers < step).sum())
        addresses[number] = arena.allocate(value)
        if first is None:
            first = addresses[number] - int(offsets[number])
        assert addresses[number] == first + offsets[number]
        assert over[number] < 0 or addresses[number] == addresses[over[number]]
    rest = list(addresses.values())
    deviation = None
    if until >= len(calls):
        deviation = replayed().deviation
    else:
        # Whoever is left is freed in another order, and what is new lies beside them.
        new = arena.allocate(5001)
        assert all(new + 5001 <= low or low + 5000 <= new for low in rest) or new in rest
        for address in [new, *reversed(rest)]:
            arena.release(address)
        replayed()
    assert deviation is None
    assert (pool.stats().escaped, pool.stats().lent) == (0, 0)


@pytest.mark.parametrize(
    ("over", "problem"),
    [([-1, -1], "overlap"), ([-1, 5], "not there"), ([1, -1], "does not end in it"), ([-1], "different length")],
)
def test_a_wrong_pair_is_refused(over: list[int], problem: str) -> None:
    sizes, lowers, uppers, offsets = (np.array(c, np.int64) for c in ([64, 64], [0, 1], [2, 3], [0, 0]))
    arena.Tape(sizes, lowers, uppers, offsets, over=np.array([-1, 0], np.int64))
    with pytest.raises(ValueError, match=problem):
        arena.Tape(sizes, lowers, uppers, offsets, over=np.array(over, np.int64))
