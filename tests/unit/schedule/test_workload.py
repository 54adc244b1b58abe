"""What an order costs: lifetimes, in-place chains, peaks, and how glued nodes settle."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given

from benchmarks.synthetic import chain
from onnxmem.errors import OnnxmemError
from onnxmem.schedule.workload import (
    Storage,
    Workload,
    check_order,
    lifetimes,
    obeys_glue,
    peak,
    settle,
    to_problem,
)

from .generators import all_orders, workloads

CHAIN = Workload(
    predecessors=((), (0,), (1,)),
    storages=(
        Storage("x", 8, -1, (0,)),
        Storage("a", 4, 0, (1,)),
        Storage("b", 4, 1, (2,)),
        Storage("y", 2, 2, (), pinned=True),
    ),
)


def test_a_storage_lives_from_its_producer_to_the_step_after_its_last_reader() -> None:
    assert lifetimes(CHAIN, [0, 1, 2]) == [(0, 1, 8, (0,)), (0, 2, 4, (1,)), (1, 3, 4, (2,)), (2, 3, 2, (3,))]
    assert peak(CHAIN, [0, 1, 2]) == 12


def test_an_output_nobody_reads_lives_for_one_step_and_an_unread_input_to_the_end() -> None:
    workload = Workload(((), ()), (Storage("dead", 5, 0, ()), Storage("unread", 3, -1, ())))
    assert lifetimes(workload, [0, 1]) == [(0, 1, 5, (0,)), (0, 2, 3, (1,))]
    assert peak(workload, [1, 0]) == 8


def test_in_place_extends_the_buffer_of_the_last_reader() -> None:
    workload = replace(CHAIN, inplace=(((0, 1),), ((1, 2),), ()))
    # Node 0 may not take over an input that is there from the start, and its size differs anyway.
    assert lifetimes(workload, [0, 1, 2])[1] == (0, 3, 4, (1, 2))
    assert peak(workload, [0, 1, 2]) == 12
    small = replace(workload, storages=(replace(CHAIN.storages[0], size=0), *CHAIN.storages[1:]))
    assert peak(small, [0, 1, 2]) == 6
    assert peak(replace(small, inplace=()), [0, 1, 2]) == 8


def test_only_the_last_reader_may_take_over() -> None:
    storages = (
        Storage("a", 4, 0, (1, 2)),
        Storage("b", 4, 1, (), pinned=True),
        Storage("c", 4, 2, (), pinned=True),
    )
    workload = Workload(((), (0,), (0,)), storages, ((), ((0, 1),), ((0, 2),)))
    assert [row.storages for row in lifetimes(workload, [0, 1, 2])] == [(0, 2), (1,)]
    assert [row.storages for row in lifetimes(workload, [0, 2, 1])] == [(0, 1), (2,)]


def test_the_first_pair_wins_and_each_buffer_is_taken_once() -> None:
    storages = (
        Storage("a", 4, 0, (1,)),
        Storage("b", 4, 0, (1,)),
        Storage("c", 4, 1, ()),
        Storage("d", 4, 1, ()),
    )
    workload = Workload(((), (0,)), storages, ((), ((1, 2), (0, 2), (1, 3))))
    assert [row.storages for row in lifetimes(workload, [0, 1])] == [(0,), (1, 2), (3,)]
    assert peak(workload, [0, 1]) == 12


def test_scratch_counts_while_its_node_runs_and_becomes_a_buffer_of_one_step() -> None:
    workload = replace(CHAIN, scratch=(0, 7, 0))
    assert peak(workload, [0, 1, 2]) == 15
    problem = to_problem(workload, [0, 1, 2], alignment=1)
    assert problem.lower_bound == 15
    assert list(problem)[-1] == ("scratch of node 1", 1, 2, 7)


def test_glued_nodes_run_as_soon_as_they_are_ready() -> None:
    workload = Workload(((), (), (0,), (2, 1)), (), glued=(-1, -1, 0, 2))
    assert settle(workload, [0, 1, 2, 3]) == [0, 2, 1, 3]
    assert settle(workload, [1, 0, 2, 3]) == [1, 0, 2, 3]
    assert obeys_glue(workload, [0, 2, 1, 3])
    assert not obeys_glue(workload, [0, 1, 2, 3])
    first = Workload(((), ()), (), glued=(-1, 1))
    assert settle(first, [0, 1]) == [1, 0]


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 1], [0, 1, 3], [1, 0, 2]])
def test_an_order_that_cannot_be_run_is_refused(order: list[int]) -> None:
    with pytest.raises(OnnxmemError):
        check_order(CHAIN, order)


def test_reading_before_writing_is_refused_even_without_an_edge() -> None:
    with pytest.raises(OnnxmemError, match="waits for"):
        check_order(Workload(((), ()), (Storage("a", 1, 0, (1,)),)), [1, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"predecessors": ((), (1,), (1,))},
        {"predecessors": ((), (7,), (1,))},
        {"storages": (Storage("a", -1, 0, ()),)},
        {"storages": (Storage("a", 1, 3, ()),)},
        {"storages": (Storage("a", 1, 0, (1, 1)),)},
        {"storages": (Storage("a", 1, 0, (0,)),)},
        {"inplace": ((), (), ((1, 3),))},
        {"inplace": ((),)},
        {"glued": (-1, 5, -1)},
        {"scratch": (0, -1, 0)},
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OnnxmemError):
        replace(CHAIN, **wrong)  # type: ignore[arg-type]


@given(workloads(most=7))
def test_peak_agrees_with_a_step_by_step_simulation(workload: Workload) -> None:
    for order in islice(all_orders(workload), 20):
        assert peak(workload, order) == _simulated(workload, order)
        # The placement problem's bound counts the same bytes.
        assert to_problem(workload, order).lower_bound == peak(workload, order)


def _simulated(workload: Workload, order: list[int]) -> int:
    """Allocate, run, free: as a runtime would, one node at a time, with explicit buffers."""
    left = [set(storage.consumers) for storage in workload.storages]
    buffer_of: dict[int, list[int]] = {i: [i] for i, s in enumerate(workload.storages) if s.producer < 0}
    most = sum(workload.storages[i].size for i in buffer_of)
    for node in order:
        taken: set[int] = set()
        for source, target in workload.inplace[node]:
            old, new = workload.storages[source], workload.storages[target]
            may = left[source] == {node} and not old.pinned and old.producer >= 0 and old.size == new.size
            if may and id(buffer_of[source]) not in taken and target not in buffer_of:
                taken.add(id(buffer_of[source]))
                buffer_of[target] = buffer_of[source]
                buffer_of[target].append(target)
        for index, storage in enumerate(workload.storages):
            if storage.producer == node and index not in buffer_of:
                buffer_of[index] = [index]
        distinct = {id(held): workload.storages[held[0]].size for held in buffer_of.values()}
        most = max(most, sum(distinct.values()) + workload.scratch[node])
        for readers in left:
            readers.discard(node)
        buffer_of = {
            index: held
            for index, held in buffer_of.items()
            if workload.storages[index].stays or left[index]
        }  # fmt: skip
    return most


def test_thousands_of_nodes_take_no_time() -> None:
    workload = chain(6000)
    assert peak(workload, range(6000)) > 0
