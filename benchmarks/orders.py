"""Peaks of live bytes in each order, and in the best one found, with what is proven about it.

    python -m benchmarks.orders                     real models, the zoo, and synthetic networks
    python -m benchmarks.orders randwire --limit 30

Peaks of models are in MiB, as ONNX Runtime would hold them (extended optimization, views and in-place rules on); those
of synthetic networks are in units of their own. `gap` is how far `best` may at most be from the optimum: 0 % means
proven optimal.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import onnx

from benchmarks.real_models import FetchError, feeds, fetch, real_models
from benchmarks.synthetic import (
    as_operators,
    cells,
    chain,
    nas_cells,
    random_dag,
    randwire,
    series_parallel,
    unet,
)
from onnxmem import zoo
from onnxmem.model.graph import Graph, Node
from onnxmem.model.model import Model
from onnxmem.schedule.orders import SIMPLE_ORDERS, find_order
from onnxmem.schedule.scheduled import Question, schedule
from onnxmem.schedule.storages import Rules, memory_of
from onnxmem.schedule.workload import Workload

ZOO = ("alexnet", "resnet50", "densenet121", "inception", "googlenet", "squeezenet", "shufflenet", "mobilenet", "unet",
       "yolo", "transformer", "lstm", "randwire", "nas")  # fmt: skip


def synthetic() -> Iterator[tuple[str, Workload]]:
    """Networks by their shape alone, each with a fixed seed."""
    yield "chain of 6000", chain(6000)
    yield "u-net, 12 levels", unet(12)
    yield "inception, 300 cells", cells(300, 5, 7)
    yield "nas, 10 cells", nas_cells(10)
    yield "nas, 6 cells, operators", as_operators(nas_cells(6))
    for seed in range(4):
        yield f"randwire 32 x 3, operators, #{seed}", as_operators(randwire(32, 3, seed))
    yield "randwire 64 x 2", randwire(64, 2)
    yield "randwire 64 x 2, operators", as_operators(randwire(64, 2))
    yield "randwire 128 x 2", randwire(128, 2)
    yield "series-parallel 322", series_parallel(7, 2)
    yield "random, narrow, 500", random_dag(500, 1, 12)
    yield "random, wide, 500", random_dag(500, 1, 60)
    yield "random, narrow, 6000", random_dag(6000, 1, 12)
    yield "random, wide, 6000", random_dag(6000, 1, 200)


def bare(workload: Workload) -> Graph:
    """A graph with just the dependencies of a synthetic workload, for the orders that look at nothing else."""
    nodes = tuple(
        Node(position, str(position), "", "", tuple(f"t{p}" for p in before), (f"t{position}",))
        for position, before in enumerate(workload.predecessors)
    )
    return Graph("synthetic", nodes, (), (), {}, ())


def models(wanted: str) -> Iterator[tuple[str, Graph, Workload]]:
    """Real models and networks of the zoo at their usual sizes."""
    for real in real_models():
        if wanted in real.key and not real.member.endswith(".ort"):
            try:
                model = Model.open(fetch(real.key))
            except FetchError as error:
                print(f"| {real.key} | not measured: {error} |")
                continue
            yield real.key, *laid_out(model, {name: array.shape for name, array in feeds(real).items()})
    for name in ZOO:
        if wanted in name:
            yield f"zoo {name}", *laid_out(Model.of(zoo.build(name), name), {})


def laid_out(model: Model, shapes: dict[str, tuple[int, ...]]) -> tuple[Graph, Workload]:
    question = Question(shapes=shapes, level="extended", order="ort-priority")
    scheduled = schedule(model, question)
    memory = memory_of(scheduled.graph, Rules(), number=lambda size: size if isinstance(size, int) else 0)
    return scheduled.graph, memory.workload


def row(name: str, graph: Graph, workload: Workload, limit: float, unit: int) -> None:
    peaks = [find_order(order, graph, workload, time_limit=limit).peak for order in SIMPLE_ORDERS]
    best = find_order("best", graph, workload, time_limit=limit)
    digits = 2 if unit > 1 else 0
    numbers = " | ".join(f"{peak / unit:.{digits}f}" for peak in (*peaks, best.peak))
    print(f"| {name} | {len(workload)} | {numbers} | {best.gap:.1%} | {best.seconds:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wanted", nargs="?", default="", help="only those whose name contains this")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds per search")
    arguments = parser.parse_args()
    print(f"onnx {onnx.__version__}, {arguments.limit:g} s per search\n")
    print(f"| graph | nodes | {' | '.join(SIMPLE_ORDERS)} | best | gap | seconds |")
    print("|---|" + "---:|" * (len(SIMPLE_ORDERS) + 4))
    for name, graph, workload in models(arguments.wanted):
        row(name, graph, workload, arguments.limit, 2**20)
    for name, workload in synthetic():
        if arguments.wanted in name:
            row(name, bare(workload), workload, arguments.limit, 1)


if __name__ == "__main__":
    main()
