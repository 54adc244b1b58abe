"""Orders with the smallest peak: the native search against every order there is, and on shapes of real networks."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import (
    as_operators,
    cells,
    chain,
    nas_cells,
    random_dag,
    randwire,
    series_parallel,
    unet,
    workload_of,
)
from onnxmem._native import ordering
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.schedule.search import best_order, from_wide, native_graph, to_wide
from onnxmem.schedule.workload import Storage, Workload, check_order, dependencies, obeys_glue, peak, settle
from tests.patience import patience

from .generators import all_orders, workloads


def least_peak(workload: Workload) -> int:
    """The slow reference: all sets of executed nodes, in Python."""
    before = dependencies(workload)
    count = len(workload)

    def live(done: frozenset[int]) -> int:
        return sum(
            s.size
            for s in workload.storages
            if (s.producer < 0 or s.producer in done) and (s.stays or not done.issuperset(s.consumers))
        )

    def during(done: frozenset[int], node: int) -> int:
        used: set[int] = set()
        saved = 0
        for source, target in workload.inplace[node]:
            old, new = workload.storages[source], workload.storages[target]
            last = done.issuperset(set(old.consumers) - {node}) and not old.pinned and old.producer >= 0
            if last and old.size == new.size and source not in used and ~target not in used:
                used |= {source, ~target}
                saved += old.size
        written = sum(s.size for s in workload.storages if s.producer == node)
        return live(done) + written + workload.scratch[node] - saved

    @cache
    def finish(done: frozenset[int]) -> int:
        ready = [v for v in range(count) if v not in done and before[v] <= done]
        ready = [v for v in ready if workload.glued[v] >= 0] or ready
        return min((max(during(done, v), finish(done | {v})) for v in ready), default=live(done))

    return max(finish(frozenset()), live(frozenset()))


@settings(max_examples=200)
@given(workloads(most=7))
def test_the_reference_agrees_with_all_orders(workload: Workload) -> None:
    peaks = [peak(workload, order) for order in islice(all_orders(workload), 6000)]
    if len(peaks) < 6000:
        assert least_peak(workload) == min(peaks)


@settings(max_examples=300)
@given(workloads(most=10))
def test_the_search_is_exact_on_small_graphs(workload: Workload) -> None:
    result = best_order(workload)
    assert result.optimal
    assert result.peak == result.proven_bound == least_peak(workload)
    check_order(workload, result.order)
    assert obeys_glue(workload, result.order)


@settings(max_examples=300)
@given(workloads(most=9), st.integers(0, 40), st.integers(0, 3), st.booleans())
def test_a_cap_is_met_or_proven_impossible(workload: Workload, cap: int, seed: int, backward: bool) -> None:
    if backward:
        workload = replace(workload, glued=())
    order, verdict, next_cap = ordering.within(native_graph(workload), to_wide(cap), 1 << 20, seed, backward)
    least = least_peak(workload)
    if verdict == "found":
        assert peak(workload, order) <= cap
    else:
        assert verdict == "impossible"
        assert cap < from_wide(next_cap) <= least


@settings(max_examples=300)
@given(workloads(most=9))
def test_native_counts_agree_with_python(workload: Workload) -> None:
    graph = native_graph(workload)
    assert from_wide(ordering.node_bound(graph)) <= least_peak(workload)
    for order in islice(all_orders(replace(workload, glued=())), 10):
        settled = settle(workload, order)
        assert ordering.settle(graph, order) == settled
        assert from_wide(ordering.peak(graph, order)) == peak(workload, settled)


# Nothing proves this one in minutes, so it is there to be cut short.
HARD = random_dag(1000, seed=1, reach=60)

SHAPES = {
    "chain": chain(60),
    "unet": unet(6),
    "cells": cells(6, 5, 4),
    "nas cells": nas_cells(4),
    "randwire": as_operators(randwire(32, 1)),
    "series-parallel": series_parallel(6, seed=1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_real_networks_are_solved_to_the_proof(name: str) -> None:
    result = best_order(SHAPES[name], time_limit=20)
    assert result.optimal
    assert result.peak <= peak(SHAPES[name], range(len(SHAPES[name])))


def test_never_worse_than_a_start_order_however_short_the_time() -> None:
    workload = random_dag(400, seed=5, reach=60)
    good = best_order(workload, time_limit=1).order
    again = best_order(workload, time_limit=0, start_orders=[good, range(400)])
    assert again.peak <= peak(workload, good)
    assert again.proven_bound <= again.peak


def test_a_finished_search_gives_the_same_order_again() -> None:
    workload = cells(4, 4, 3, seed=2)
    assert best_order(workload, seed=7).order == best_order(workload, seed=7).order


def test_a_search_that_proves_nothing_ends_in_the_same_place() -> None:
    """Its end is by work and not by time: a busy machine takes longer, and finds the same."""
    results = [best_order(HARD, seed=7, effort=0.3, time_limit=600) for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        results += pool.map(lambda _: best_order(HARD, seed=7, effort=0.3, time_limit=600), range(3))
    assert not results[0].optimal
    assert len({tuple(result.order) for result in results}) == 1
    assert len({result.proven_bound for result in results}) == 1


def test_the_time_limit_holds() -> None:
    started = time.perf_counter()
    result = best_order(HARD, time_limit=0.3)
    assert not result.optimal
    assert time.perf_counter() - started < 0.3 + patience(2)


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_what_another_signal_handler_raises_is_not_swallowed() -> None:
    def refuse(number: int, frame: object) -> None:
        raise TimeoutError("alarm")

    previous = signal.signal(signal.SIGALRM, refuse)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeoutError):
            best_order(HARD, time_limit=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_other_threads_run_during_a_search() -> None:
    ticks = 0
    searching = threading.Thread(target=best_order, args=[HARD], kwargs={"time_limit": 1})
    searching.start()
    while searching.is_alive():
        ticks += 1
        time.sleep(0.01)
    assert ticks > 20


def test_sizes_near_the_end_of_64_bits_do_not_overflow() -> None:
    huge = 2**63 - 1
    workload = workload_of([(), (0,), (0,), (1, 2), (3,)], [huge] * 5)
    result = best_order(workload)
    assert result.optimal
    assert result.peak == 3 * huge
    with pytest.raises(OnnxmemError, match="63 bits"):
        best_order(workload_of([()], [2**63]))


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(UsageError):
        best_order(chain(3), time_limit=-1)
    with pytest.raises(OnnxmemError):
        best_order(chain(3), start_orders=[[2, 1, 0]])
    with pytest.raises(OnnxmemError, match="circle"):
        best_order(Workload(((1,), (0,)), ()))


def test_nothing_to_order_is_an_order() -> None:
    assert best_order(Workload((), ())).order == []
    assert best_order(Workload((), (Storage("x", 3, -1, ()),))).peak == 3
