"""Peaks of live bytes in simple orders and in the best one found, with what is proven about it.

    python benchmarks/orders.py                     all shapes
    python benchmarks/orders.py randwire --limit 30

Every row is one synthetic network with a fixed seed. `listed` is the order it was made in; the other columns are
relative to `best`. `gap` is how far `best` may at most be from the optimum: 0 means proven optimal.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterator

from onnxmem.schedule.search import best_order
from onnxmem.schedule.synthetic import as_operators, cells, chain, nas_cells, random_dag, randwire, series_parallel, unet
from onnxmem.schedule.workload import Workload, dependencies, peak, settle

SHAPES: dict[str, Callable[[], Workload]] = {
    "chain of 6000": lambda: chain(6000),
    "u-net, 12 levels": lambda: unet(12),
    "inception, 20 cells": lambda: cells(20, 6, 6),
    "inception, 300 cells": lambda: cells(300, 5, 7),
    "nas, 10 cells": lambda: nas_cells(10),
    "nas, 6 cells, operators": lambda: as_operators(nas_cells(6)),
    "randwire 32 x 3": lambda: randwire(32, 3),
    **{f"randwire 32 x 3, operators, #{s}": lambda s=s: as_operators(randwire(32, 3, s)) for s in range(4)},  # type: ignore[misc]
    "randwire 64 x 2": lambda: randwire(64, 2),
    "randwire 64 x 2, operators": lambda: as_operators(randwire(64, 2)),
    "randwire 128 x 2": lambda: randwire(128, 2),
    "series-parallel 130": lambda: series_parallel(6, 1),
    "series-parallel 322": lambda: series_parallel(7, 2),
    "random, narrow, 100": lambda: random_dag(100, 1, 30),
    "random, narrow, 500": lambda: random_dag(500, 1, 12),
    "random, wide, 500": lambda: random_dag(500, 1, 60),
    "random, narrow, 6000": lambda: random_dag(6000, 1, 12),
    "random, wide, 6000": lambda: random_dag(6000, 1, 200),
}


def breadth_first(workload: Workload) -> list[int]:
    """Nodes in the order in which they become ready."""
    waiting = [set(before) for before in dependencies(workload)]
    queue = deque(node for node, before in enumerate(waiting) if not before)
    order = []
    while queue:
        node = queue.popleft()
        order.append(node)
        for other, before in enumerate(waiting):
            if node in before:
                before.discard(node)
                if not before:
                    queue.append(other)
    return settle(workload, order)


def depth_first(workload: Workload) -> list[int]:
    """Each node right after those it needs, from the last one backwards."""
    before = dependencies(workload)
    order: list[int] = []
    seen: set[int] = set()
    for last in range(len(workload)):
        stack = [(last, False)]
        while stack:
            node, complete = stack.pop()
            if complete:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((other, False) for other in sorted(before[node], reverse=True))
    return settle(workload, order)


def rows(wanted: str, limit: float) -> Iterator[tuple[str, ...]]:
    """One line of text per shape."""
    for name, make in SHAPES.items():
        if wanted not in name:
            continue
        workload = make()
        found = best_order(workload, time_limit=limit)
        simple = [
            peak(workload, order)
            for order in (range(len(workload)), breadth_first(workload), depth_first(workload))
        ]  # fmt: skip
        yield (
            name,
            str(len(workload)),
            *(f"{most / found.peak - 1:+.0%}" for most in simple),
            str(found.peak),
            f"{found.gap:.1%}",
            f"{found.seconds:.2f}",
        )


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wanted", nargs="?", default="", help="only shapes whose name contains this")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds per search")
    arguments = parser.parse_args()
    line = "{:34} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}"
    print(line.format("shape", "nodes", "listed", "breadth", "depth", "best", "gap", "seconds"))
    for row in rows(arguments.wanted, arguments.limit):
        print(line.format(*row), flush=True)


if __name__ == "__main__":
    main()
