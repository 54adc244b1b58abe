"""What executing a graph's nodes needs, in any order: dependencies, the memory they read and write, and its rules.

A workload knows nothing of ONNX. Searches work on it, and for a given order it answers how long each buffer lives
and how much is live at once. Steps are positions in the order; lifetimes are half-open intervals of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from onnxmem.errors import OnnxmemError
from onnxmem.placement.problem import Buffer, Problem


@dataclass(frozen=True)
class Storage:
    """The memory of one tensor, or of several that alias each other.

    `producer` is a node's index, or -1: alive from the start. `consumers` are the distinct nodes that read it, readers
    of its aliases included. A `pinned` storage lives to the end.
    """

    name: str
    size: int
    producer: int
    consumers: tuple[int, ...]
    pinned: bool = False

    @property
    def stays(self) -> bool:
        """Does it live to the end? An input nobody reads does too: there is no reader after which it could go."""
        return self.pinned or (self.producer < 0 and not self.consumers)


@dataclass(frozen=True)
class Workload:
    """Nodes 0 … n-1 and what running them takes.

    `inplace[v]` lists (input storage, output storage) pairs in preference order: the output may take over the input's
    memory if their sizes are equal, v is the input's last remaining reader, and the input is neither pinned nor there
    from the start. `glued[v]` is -1, or the node that v must directly follow as soon as it is ready; v itself means
    "as soon as it is ready" for a node that waits for nobody. `scratch[v]` is taken only while v runs. The last three
    may be left empty, for "none".
    """

    predecessors: tuple[tuple[int, ...], ...]
    storages: tuple[Storage, ...]
    inplace: tuple[tuple[tuple[int, int], ...], ...] = ()
    glued: tuple[int, ...] = ()
    scratch: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.predecessors)
        object.__setattr__(self, "inplace", self.inplace or ((),) * count)
        object.__setattr__(self, "glued", self.glued or (-1,) * count)
        object.__setattr__(self, "scratch", self.scratch or (0,) * count)
        for name in ("inplace", "glued", "scratch"):
            if len(getattr(self, name)) != count:
                raise OnnxmemError(f"a workload of {count} nodes has {len(getattr(self, name))} entries in '{name}'")
        for complaint in self._complaints():
            raise OnnxmemError(f"a workload cannot have {complaint}")

    def __len__(self) -> int:
        return len(self.predecessors)

    def _complaints(self) -> Iterator[str]:
        nodes, storages = range(len(self)), range(len(self.storages))
        for node, before in enumerate(self.predecessors):
            if any(p not in nodes or p == node for p in before):
                yield f"node {node} wait for {before}"
            if self.glued[node] != -1 and self.glued[node] not in nodes:
                yield f"node {node} glued to node {self.glued[node]}"
            if self.scratch[node] < 0:
                yield f"negative scratch for node {node}"
        for storage in self.storages:
            if storage.size < 0:
                yield f"a negative size ('{storage.name}')"
            if storage.producer != -1 and storage.producer not in nodes:
                yield f"'{storage.name}' produced by node {storage.producer}"
            readers = set(storage.consumers)
            strange = any(reader not in nodes for reader in readers)
            if strange or len(readers) != len(storage.consumers) or storage.producer in readers:
                yield f"'{storage.name}' read by nodes {storage.consumers}"
        for node, pairs in enumerate(self.inplace):
            for source, target in pairs:
                known = source in storages and target in storages
                if not known or node not in self.storages[source].consumers or self.storages[target].producer != node:
                    yield f"node {node} put storage {target} into {source}: it must read the one and write the other"


class Lifetime(NamedTuple):
    """A buffer alive from step `lower` up to, not including, `upper`, and the storages it holds one after another."""

    lower: int
    upper: int
    size: int
    storages: tuple[int, ...]


def check_order(workload: Workload, order: Sequence[int]) -> None:
    """Raise OnnxmemError unless `order` has every node once, after all it waits for and all whose memory it reads."""
    count = len(workload)
    if sorted(order) != list(range(count)):
        raise OnnxmemError(f"an order of {len(order)} entries is not a permutation of the {count} nodes")
    step = {node: k for k, node in enumerate(order)}
    for node, before in enumerate(dependencies(workload)):
        late = next((p for p in before if step[p] > step[node]), None)
        if late is not None:
            raise OnnxmemError(f"node {node} runs before node {late}, which it waits for")


def obeys_glue(workload: Workload, order: Sequence[int]) -> bool:
    """Does every glued node run as soon as it is ready, before any other node that is not glued itself?"""
    return list(order) == settle(workload, order)


def settle(workload: Workload, order: Sequence[int]) -> list[int]:
    """The order in which the nodes really run when they are listed in `order`: glued ones as soon as they are ready.

    Among glued nodes that are ready, those listed first go first; nothing else moves.
    """
    waiting = [set(before) for before in dependencies(workload)]
    followers: list[list[int]] = [[] for _ in waiting]
    for node, before in enumerate(waiting):
        for predecessor in before:
            followers[predecessor].append(node)
    place = {node: k for k, node in enumerate(order)}
    urgent = [place[v] for v in order if workload.glued[v] >= 0 and not waiting[v]]
    settled: list[int] = []

    def run(node: int) -> None:
        settled.append(node)
        for follower in followers[node]:
            waiting[follower].discard(node)
            if not waiting[follower] and workload.glued[follower] >= 0:
                heappush(urgent, place[follower])

    for node in order:
        while urgent:
            run(order[heappop(urgent)])
        if workload.glued[node] < 0:
            run(node)
    while urgent:
        run(order[heappop(urgent)])
    return settled


def dependencies(workload: Workload) -> list[set[int]]:
    """The nodes that each node runs after: those it waits for, and those whose memory it reads."""
    before = [set(predecessors) for predecessors in workload.predecessors]
    for storage in workload.storages:
        if storage.producer >= 0:
            for consumer in storage.consumers:
                before[consumer].add(storage.producer)
    return before


def lifetimes(workload: Workload, order: Sequence[int]) -> list[Lifetime]:
    """How long does each buffer live in this order? By storage; those taken over in place are part of another's row."""
    check_order(workload, order)
    step = {node: k for k, node in enumerate(order)}
    into = _taken(workload, order)
    taken = set(into.values())
    rows = []
    for first, storage in enumerate(workload.storages):
        if first in taken:
            continue
        chain = [first]
        while chain[-1] in into:
            chain.append(into[chain[-1]])
        last = workload.storages[chain[-1]]
        lower = step[storage.producer] if storage.producer >= 0 else 0
        # Only a chain's last storage decides when it ends: all readers of the ones before it have run by then.
        final = max((step[c] for c in last.consumers), default=step.get(last.producer, 0))
        upper = max(len(order), 1) if last.stays else final + 1
        rows.append(Lifetime(lower, upper, storage.size, tuple(chain)))
    return rows


def _taken(workload: Workload, order: Sequence[int]) -> dict[int, int]:
    """Which storage's memory does which one continue, in this order?"""
    remaining = [len(storage.consumers) for storage in workload.storages]
    reads: list[list[int]] = [[] for _ in workload.predecessors]
    for index, storage in enumerate(workload.storages):
        for consumer in storage.consumers:
            reads[consumer].append(index)
    into: dict[int, int] = {}
    for node in order:
        outputs: set[int] = set()
        for source, target in workload.inplace[node]:
            old, new = workload.storages[source], workload.storages[target]
            free = remaining[source] == 1 and not old.pinned and old.producer >= 0
            if free and old.size == new.size and source not in into and target not in outputs:
                into[source] = target
                outputs.add(target)
        for index in reads[node]:
            remaining[index] -= 1
    return into


def peak(workload: Workload, order: Sequence[int]) -> int:
    """The most bytes live at once: while a node runs, its inputs, its outputs and its scratch are all there."""
    changes = [0] * (len(order) + 2)
    for row in lifetimes(workload, order):
        changes[row.lower] += row.size
        changes[row.upper] -= row.size
    live, most = 0, 0
    for step, change in enumerate(changes):
        live += change
        most = max(most, live + (workload.scratch[order[step]] if step < len(order) else 0))
    return most


def to_problem(workload: Workload, order: Sequence[int], alignment: int = 1) -> Problem:
    """The placement problem of this order: its buffers, and the scratch of its nodes as buffers of one step."""
    names = [storage.name for storage in workload.storages]
    buffers = [Buffer(names[row.storages[0]], row.lower, row.upper, row.size) for row in lifetimes(workload, order)]
    scratch = [
        Buffer(f"scratch of node {node}", step, step + 1, workload.scratch[node])
        for step, node in enumerate(order)
        if workload.scratch[node]
    ]
    return Problem.of([*buffers, *scratch], alignment=alignment)
