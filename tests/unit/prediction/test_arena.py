"""ONNX Runtime's arena on paper keeps its rules, and never gives the same bytes twice."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmem.prediction.arena import PAGE, Arena

MIB = 1 << 20


def test_regions_grow_by_powers_of_two() -> None:
    tables: list[int] = []

    def take(size: int, table: int) -> tuple[int, bool]:
        tables.append(table)
        return (1 << 40) - sum(tables) * 64, False

    arena = Arena(take)
    for size in (1000, 3 * MIB, 3 * MIB, 9 * MIB):
        arena.allocate(size)
    # 1 MiB for the first; 4 for the second, since 2 is too small; then 4 again, and the next is twice that.
    assert [size // MIB for _, size, _ in arena.regions] == [1, 4, 4, 16]
    assert sum(tables) == arena.held // 32


def test_what_is_written_is_counted_however_much_it_is() -> None:
    arena = Arena()
    for _ in range(4):
        arena.allocate(1 << 45)
    assert arena.written == arena.resident == 1 << 47


def test_a_chunk_is_split_only_if_half_of_it_is_left() -> None:
    whole, halved = Arena(), Arena()
    for arena, size in ((whole, MIB // 2 + 256), (halved, MIB // 2)):
        arena.allocate(size)
        arena.allocate(MIB // 4)
    assert len(whole.regions) == 2
    assert len(halved.regions) == 1


def test_what_is_freed_joins_its_neighbours_and_is_used_again() -> None:
    arena = Arena()
    blocks = [arena.allocate(MIB // 4) for _ in range(4)]
    for block in (blocks[1], blocks[3], blocks[2], blocks[0]):
        arena.free(block)
    assert arena.allocate(MIB) == min(block for block in blocks if block is not None)
    assert arena.held == MIB


def test_only_pages_that_are_written_to_are_resident() -> None:
    arena = Arena()
    arena.allocate(10 * PAGE)
    assert arena.resident == 10 * PAGE
    assert arena.held == MIB
    resident_before = Arena(lambda size, table: (1 << 30, True))
    resident_before.allocate(10 * PAGE)
    assert resident_before.resident == 0


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_live_buffers_never_overlap(seed: int) -> None:
    chance, arena = random.Random(seed), Arena()
    live: dict[int, int] = {}
    for _ in range(200):
        if live and chance.random() < 0.5:
            address = chance.choice(list(live))
            del live[address]
            arena.free(address)
        else:
            size = chance.choice((1, 255, 256, 257, 5000, 70_000, MIB, 3 * MIB))
            found = arena.allocate(size)
            assert found is not None
            live[found] = size
        ends = sorted((address, address + size) for address, size in live.items())
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))
    assert arena.resident <= arena.held + PAGE * len(arena.regions)
