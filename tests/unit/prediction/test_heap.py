"""The C library's heap on paper: what stays resident after a free, and what does not."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmem.prediction.heap import Heap

MIB = 1 << 20
KIB = 1 << 10


def test_large_blocks_are_mapped_and_go_back_when_freed() -> None:
    heap = Heap()
    block = heap.allocate(8 * MIB)
    assert heap.resident >= 8 * MIB
    heap.free(block)
    assert heap.resident < MIB
    assert heap.peak >= 8 * MIB
    # From then on blocks of that size come from the heap.
    assert heap.threshold >= 8 * MIB
    assert heap.allocate(4 * MIB) >= 0


def test_freed_memory_below_something_used_stays_resident_until_it_is_trimmed() -> None:
    heap = Heap()
    below, above = heap.allocate(300 * KIB), heap.allocate(300 * KIB)
    heap.free(below)
    assert heap.resident >= 600 * KIB
    assert heap.reserve(200 * KIB)[1], "a hole is resident already"
    heap = Heap()
    below, above = heap.allocate(300 * KIB), heap.allocate(300 * KIB)
    heap.free(below)
    heap.trim()
    assert 300 * KIB <= heap.resident < 350 * KIB
    assert not heap.reserve(200 * KIB)[1]
    assert above > below


def test_what_is_only_reserved_is_not_resident() -> None:
    heap = Heap()
    before = heap.resident
    for size in (200 * KIB, 16 * MIB):
        _, resident = heap.reserve(size)
        assert not resident
    assert heap.resident == before


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_live_blocks_never_overlap(seed: int) -> None:
    chance, heap = random.Random(seed), Heap()
    live: dict[int, int] = {}
    for _ in range(150):
        if live and chance.random() < 0.45:
            address = chance.choice(list(live))
            del live[address]
            heap.free(address)
        else:
            size = chance.choice((24, 4000, 100 * KIB, 400 * KIB, MIB, 5 * MIB))
            live[heap.allocate(size, aligned=chance.random() < 0.5)] = size
        ends = sorted((address, address + size) for address, size in live.items())
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))
        assert heap.resident <= heap.peak


def test_a_block_that_is_taken_again_after_trimming_is_resident_once() -> None:
    heap = Heap()
    hole, above = heap.allocate(300 * KIB), heap.allocate(300 * KIB)
    heap.free(hole)
    heap.trim()
    trimmed = heap.resident
    for _ in range(3):
        heap.free(heap.allocate(200 * KIB))
        assert trimmed + 200 * KIB <= heap.resident < trimmed + 201 * KIB
    assert above > hole


def test_where_an_aligned_block_lay_another_does_not_fit_while_fragments_are_kept() -> None:
    def grown(fragments: int) -> int:
        heap = Heap()
        heap.allocate(100 * KIB)
        heap.fragments, before = fragments, heap.resident
        for _ in range(20):
            heap.free(heap.allocate(200 * KIB, aligned=True))
        return heap.peak - before

    assert grown(0) < 300 * KIB
    assert 4 * 200 * KIB <= grown(3) < 5 * 200 * KIB * 1.1


def test_what_is_spare_is_free_and_resident() -> None:
    heap = Heap()
    below, above = heap.allocate(300 * KIB), heap.allocate(300 * KIB)
    assert heap.spare == 0
    heap.free(below)
    assert 300 * KIB <= heap.spare < 301 * KIB
    heap.trim()
    assert heap.spare == 0
    assert above > below
