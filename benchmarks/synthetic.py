"""Synthetic workloads with the shapes that networks have, for studying and testing order searches.

Sizes are small numbers, not bytes of real tensors; the same arguments always give the same workload.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from onnxmem.schedule.workload import Storage, Workload

Edges = Sequence[tuple[int, ...]]


def workload_of(predecessors: Edges, sizes: Sequence[int], inputs: int = 0) -> Workload:
    """One output per node, read by its direct successors; nodes nobody reads are graph outputs."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for node, before in enumerate(predecessors):
        for predecessor in before:
            readers[predecessor].append(node)
    storages = [
        Storage(f"t{node}", sizes[node], node, tuple(consumers), not consumers)
        for node, consumers in enumerate(readers)
    ]
    if inputs:
        sources = tuple(node for node, before in enumerate(predecessors) if not before)
        storages.append(Storage("input", inputs, -1, sources, False))
    return Workload(tuple(tuple(before) for before in predecessors), tuple(storages))


def chain(length: int, seed: int = 0) -> Workload:
    """One node after another."""
    rng = random.Random(seed)
    return workload_of([(v - 1,) if v else () for v in range(length)], [rng.randint(1, 99) for _ in range(length)])


def unet(depth: int, seed: int = 0) -> Workload:
    """Down and up again, each level's tensor kept for the way back; the sizes halve."""
    rng = random.Random(seed)
    edges: list[tuple[int, ...]] = []
    sizes: list[int] = []

    def add(size: int, *before: int) -> int:
        edges.append(before)
        sizes.append(size)
        return len(edges) - 1

    skips, last = [], add(2**depth)
    for level in range(depth):
        skip = add(2 ** (depth - level) * 2, last)
        side = add(rng.randint(1, 2 ** (depth - level)), skip)
        skips.append((skip, side, level))
        last = add(2 ** (depth - level - 1), skip)
    for skip, side, level in reversed(skips):
        last = add(2 ** (depth - level), add(2 ** (depth - level), last), skip, side)
    return workload_of(edges, sizes)


def cells(count: int, branches: int, length: int, seed: int = 0) -> Workload:
    """Inception-like cells in a row: branches that are chains, joined again."""
    rng = random.Random(seed)
    edges: list[tuple[int, ...]] = [()]
    for _ in range(count):
        start, ends = len(edges) - 1, []
        for _ in range(branches):
            last = start
            for _ in range(rng.randint(1, length)):
                edges.append((last,))
                last = len(edges) - 1
            ends.append(last)
        edges.append(tuple(ends))
    return workload_of(edges, [rng.randint(1, 64) for _ in edges])


def nas_cells(count: int, seed: int = 0) -> Workload:
    """DARTS-like cells: each of four inner nodes adds two operations on earlier ones; a cell reads the last two."""
    rng = random.Random(seed)
    edges: list[tuple[int, ...]] = [(), (0,)]
    sizes = [16, 16]
    before, last = 0, 1
    for _ in range(count):
        states = [before, last]
        for _ in range(4):
            chosen = rng.sample(states, 2)
            operations = []
            for state in chosen:
                edges.extend([(state,), (len(edges),)])
                sizes.extend([rng.choice([16, 32]), 16])
                operations.append(len(edges) - 1)
            edges.append(tuple(operations))
            sizes.append(16)
            states.append(len(edges) - 1)
        edges.append(tuple(states[2:]))
        sizes.append(64)
        edges.append((len(edges) - 1,))
        sizes.append(16)
        before, last = last, len(edges) - 1
    return workload_of(edges, sizes)


def randwire(nodes: int, stages: int, seed: int = 0, neighbours: int = 4, rewire: float = 0.75) -> Workload:
    """RandWire-like: in each stage a Watts–Strogatz ring whose edges point from low to high; the sizes halve."""
    rng = random.Random(seed)
    edges: list[tuple[int, ...]] = [()]
    sizes = [2**stages * 8]
    for stage in range(stages):
        source, first = len(edges) - 1, len(edges)
        links: list[set[int]] = [set() for _ in range(nodes)]
        for v in range(nodes):
            for k in range(1, neighbours // 2 + 1):
                other = (v + k) % nodes
                if rng.random() < rewire:
                    other = rng.choice([w for w in range(nodes) if w != v])
                links[max(v, other)].add(min(v, other))
        read = {p for before in links for p in before}
        for v in range(nodes):
            edges.append(tuple(sorted(first + p for p in links[v])) or (source,))
            sizes.append(2 ** (stages - stage) * 4)
        edges.append(tuple(first + v for v in range(nodes) if v not in read))
        sizes.append(2 ** (stages - stage) * 4)
    return workload_of(edges, sizes)


def series_parallel(depth: int, seed: int = 0) -> Workload:
    """Random nesting of one-after-another and side-by-side."""
    rng = random.Random(seed)
    edges: list[tuple[int, ...]] = [()]

    def grow(start: int, level: int) -> int:
        if level == 0:
            edges.append((start,))
            return len(edges) - 1
        if rng.random() < 0.5:
            return grow(grow(start, level - 1), level - 1)
        ends = tuple(grow(start, level - 1) for _ in range(rng.randint(2, 3)))
        edges.append(ends)
        return len(edges) - 1

    grow(0, depth)
    return workload_of(edges, [rng.randint(1, 64) for _ in edges])


def random_dag(nodes: int, seed: int = 0, reach: int = 12, degree: int = 2) -> Workload:
    """Each node reads a few of the ones shortly before it; what is about to fall out of reach unread is read first."""
    rng = random.Random(seed)
    edges: list[tuple[int, ...]] = [()]
    unread = {0}
    for v in range(1, nodes):
        first = max(0, v - reach)
        reads = {u for u in unread if u <= first or v == nodes - 1}
        while len(reads) < min(degree, v):
            reads.add(rng.randint(first, v - 1))
        unread = (unread - reads) | {v}
        edges.append(tuple(sorted(reads)))
    return workload_of(edges, [rng.randint(1, 64) for _ in edges])


def as_operators(workload: Workload) -> Workload:
    """The same network in finer steps: each node becomes a sum of its inputs, an activation and two convolutions.

    Sums and activations may work in place.
    """
    edges: list[tuple[int, ...]] = []
    sizes: list[int] = []
    inplace: list[tuple[tuple[int, int], ...]] = []

    def add(size: int, *before: int, shares: bool = False) -> int:
        edges.append(before)
        sizes.append(size)
        inplace.append(tuple((source, len(edges) - 1) for source in before) if shares else ())
        return len(edges) - 1

    result: list[int] = []
    for node, before in enumerate(workload.predecessors):
        size = workload.storages[node].size
        if not before:
            result.append(add(size))
            continue
        last = result[before[0]]
        for other in before[1:]:
            last = add(sizes[last], last, result[other], shares=True)
        last = add(sizes[last], last, shares=True)
        result.append(add(size, add(size, last)))
    plain = workload_of(edges, sizes)
    return Workload(plain.predecessors, plain.storages, tuple(inplace))
