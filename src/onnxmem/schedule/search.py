"""The order with the smallest peak: exact where it can be, and never worse than the orders it starts from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from onnxmem._native import ordering
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.schedule.workload import Workload, check_order, dependencies, peak

LARGEST = 2**63 - 1
WORK_PER_SECOND = 15_000_000
"""What an ordinary processor does in a second, in the units of `ordering.search`."""


@dataclass(frozen=True)
class OrderResult:
    """An order, its peak in bytes, and what is proven: no order's peak is below `proven_bound`."""

    order: list[int]
    peak: int
    optimal: bool
    proven_bound: int
    seconds: float
    interrupted: bool = False

    @property
    def gap(self) -> float:
        """How far above the proven bound, as a fraction: 0.0 is optimal."""
        return self.peak / self.proven_bound - 1 if self.proven_bound else 0.0


def best_order(
    workload: Workload,
    *,
    time_limit: float = 5.0,
    effort: float | None = None,
    seed: int = 0,
    start_orders: Sequence[Sequence[int]] = (),
) -> OrderResult:
    """Search for the order of nodes with the smallest peak of live bytes.

    The search ends when it has proven its order optimal, when it has done as much as an ordinary processor does in
    `effort` seconds (or else in `time_limit`), after `time_limit` seconds, or at Ctrl-C, with the best order so far.
    Unless the limit or Ctrl-C cut it short, the same seed and effort give the same order. Every order it considers runs
    glued nodes as soon as they are ready, those in `start_orders` after being settled that way.
    """
    if not time_limit >= 0:
        raise UsageError(f"a time limit must not be negative, but is {time_limit}")
    for start in start_orders:
        check_order(workload, start)
    started = time.perf_counter()
    graph = native_graph(workload)
    starts = [list(start) for start in start_orders]
    work = int(min(time_limit if effort is None else effort, 1e6) * WORK_PER_SECOND)
    order, native_peak, bound, interrupted = ordering.search(graph, starts, time_limit, seed % 2**64, work)
    seconds = time.perf_counter() - started

    # The same sum in Python, which shares no code with the search.
    check_order(workload, order)
    most = peak(workload, order)
    if most != from_wide(native_peak):
        raise OnnxmemError(f"the order search counted {from_wide(native_peak)} bytes where there are {most}")
    return OrderResult(order, most, most == from_wide(bound), from_wide(bound), seconds, interrupted)


def native_graph(workload: Workload) -> ordering.Graph:
    """The workload as the native search wants it."""
    for size in (*(storage.size for storage in workload.storages), *workload.scratch):
        if size > LARGEST:
            raise OnnxmemError(f"a tensor of {size} bytes does not fit into 63 bits")
    storages = workload.storages
    try:
        TopologicalSorter(dict(enumerate(dependencies(workload)))).prepare()
    except CycleError as error:
        raise OnnxmemError("some nodes wait for each other in a circle") from error
    return ordering.make_graph(
        before=[sorted(before) for before in dependencies(workload)],
        readers=[storage.consumers for storage in storages],
        sizes=[storage.size for storage in storages],
        writers=[storage.producer for storage in storages],
        stays=[storage.stays for storage in storages],
        takeable=[not storage.stays and storage.producer >= 0 for storage in storages],
        pairs=[[index for pair in pairs for index in pair] for pairs in workload.inplace],
        glued=[other >= 0 for other in workload.glued],
        scratch=list(workload.scratch),
    )


def from_wide(halves: tuple[int, int]) -> int:
    """A Python integer from its high and low 64 bits."""
    return (halves[0] << 64) + halves[1]


def to_wide(value: int) -> tuple[int, int]:
    """A Python integer's high and low 64 bits."""
    return value >> 64, value & (2**64 - 1)
