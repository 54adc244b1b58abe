"""Graphs rewritten so that less is alive at once: how much less, for how much more work, and is it the same bits?

    python -m benchmarks.rewritten                          all models at their usual size, as a table
    python -m benchmarks.rewritten det zoo-unet --extra-work 2%
    python -m benchmarks.rewritten --random 10000           random networks, random regions in stripes

Each model is optimized by ONNX Runtime for its shapes, rewritten, and run as a package is: its graph as it stands, its
nodes in the order of the file. `bound` and `rewritten` are the bytes alive at once in recorded runs, kernels' scratch
included; `net` counts 6 KiB for each node added. Outputs are compared bit by bit on two inputs, with one thread and
with two. Seconds are of one core, for the search alone.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from benchmarks import sized_models
from benchmarks.random_images import Choose, random_network
from onnxmem.model.model import Model
from onnxmem.rewriting.axes import follow
from onnxmem.rewriting.emit import write
from onnxmem.rewriting.live import NODE_BYTES
from onnxmem.rewriting.order import ordered
from onnxmem.rewriting.rewriting import Rewriting, apply
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import StaticGraph, static_graph
from onnxmem.rewriting.stripes import Region, Span, members_of, plan
from onnxmem.session.planned.trace import record

Feeds = Mapping[str, Any]
MIB = 2**20
THREADS = (1, 2)


def as_packaged(threads: int = 1) -> ort.SessionOptions:
    """Options under which a graph runs as it stands, in the order of its file."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.enable_mem_reuse = False
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return options


def optimized(source: Path | bytes, folder: Path) -> Path:
    """The file that ONNX Runtime writes of a model, its weights beside it."""
    path = folder / "optimized.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    options.add_session_config_entry("session.disable_prepacking", "1")
    model = source if isinstance(source, bytes) else str(source)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    fed = {value.name for value in session.get_inputs()}
    proto = onnx.load_model(path, load_external_data=False)
    # Old models list their weights as inputs, too, and the list outlives the weights.
    kept = [value for value in proto.graph.input if value.name in fed]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    path.write_bytes(proto.SerializeToString())
    return path


def outputs(path: Path, feeds: Feeds, threads: int) -> list[Any]:
    """What a file answers."""
    session = ort.InferenceSession(str(path), as_packaged(threads), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(feeds))
    return found


def same(left: list[Any], right: list[Any]) -> bool:
    """Bit for bit."""
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(left, right, strict=True))


class Row(NamedTuple):
    """A model before and after."""

    bound: int
    rewritten: int
    net: int
    extra_work: float
    nodes: tuple[int, int]
    seconds: float
    identical: bool
    parts: str


def measure(key: str, extra_work: float, folder: Path) -> Row:
    """Rewrite one model, and run both."""
    sized = next(each for each in sized_models.sizes(key) if each.usual)
    source = sized_models.locate(key, folder)
    feeds = sized.feeds(source)
    path = optimized(_fixed(source, feeds), folder)
    graph = static_graph(Model.open(path), {name: value.shape for name, value in feeds.items()}, optimized=False)
    started = time.process_time()
    found = search(graph, extra_work=extra_work)
    seconds = time.process_time() - started
    rewritten = path.with_name("rewritten.onnx")
    proto = apply(onnx.load_model(path, load_external_data=False), found)
    rewritten.write_bytes(proto.SerializeToString())
    before, after = (record(str(file), feeds, as_packaged()).bound() for file in (path, rewritten))
    identical = all(
        same(outputs(path, each, threads), outputs(rewritten, each, threads))
        for threads in THREADS
        for each in (feeds, _other(feeds))
    )
    nodes = (found.nodes_before, len(found.graph.nodes))
    net = after + NODE_BYTES * (nodes[1] - nodes[0])
    parts = ", ".join(f"{len(part.nodes)} nodes in {part.pieces}" for part in found.parts)
    return Row(before, after, net, found.extra_work, nodes, seconds, identical, parts)


def _fixed(source: Path, feeds: Feeds) -> bytes:
    """The model with the shapes of these inputs."""
    proto = onnx.load_model(source)
    for value in proto.graph.input:
        if value.name in feeds:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for number in feeds[value.name].shape:
                shape.dim.add().dim_value = number
    return bytes(proto.SerializeToString())


def _other(feeds: Feeds) -> dict[str, Any]:
    """Other numbers, where any numbers will do."""
    return {name: value[::-1, ..., ::-1].copy() if value.ndim > 2 else value for name, value in feeds.items()}


def table(keys: list[str], extra_work: float) -> None:
    """Print a line for each model, and the mean of all."""
    print("| model | bound | rewritten | net of nodes | extra work | nodes | seconds | identical | in stripes |")
    print("|---|---:|---:|---:|---:|---:|---:|---|---|")
    ratios = []
    for key in keys:
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = measure(key, extra_work, Path(folder))
            except Exception as error:  # what cannot be run at fixed shapes is not the question here
                print(f"| {key} | – | | | | | | {str(error).splitlines()[0][:60]} | |", flush=True)
                continue
        ratios.append((row.rewritten / row.bound, row.net / row.bound))
        print(
            f"| {key} | {row.bound / MIB:.2f} | {row.rewritten / MIB:.2f} ({ratios[-1][0]:.2f}) | {ratios[-1][1]:.2f} "
            f"| {row.extra_work:.1%} | {row.nodes[0]} → {row.nodes[1]} | {row.seconds:.1f} "
            f"| {'yes' if row.identical else 'NO'} | {row.parts} |",
            flush=True,
        )
    if ratios:
        means = [math.exp(sum(map(math.log, column)) / len(ratios)) for column in zip(*ratios, strict=True)]
        print(f"\nGeometric mean of {len(ratios)}: {means[0]:.3f}, net of nodes {means[1]:.3f}")


def random_regions(graph: StaticGraph, choose: Choose) -> list[Region]:
    """Some regions, one after another, each in some stripes; those that can be."""
    axes, place, found = follow(graph, 2 + choose(2)), 0, []
    while place < len(graph.nodes):
        last = min(len(graph.nodes) - 1, place + choose(len(graph.nodes)))
        if choose(3):
            span = Span(place, last, (2, 3, 4, 7)[choose(4)], choose(3) == 0, axes.seed)
            members = members_of(graph, axes, span.first, span.last, sunk=span.sunk)
            region = plan(graph, axes, span, members) if members is not None and members.inside else None
            if region is not None:
                found.append(region)
            place = last
        place += 1
    return found


class DoesNotRun(Exception):
    """The network itself, before anything is rewritten: a shape that came out empty, or the like."""


class Trial(NamedTuple):
    """A random network with random regions."""

    regions: list[Region]
    graph: StaticGraph
    identical: bool


def try_regions(proto: ModelProto, choose: Choose, folder: Path, times: int = 3) -> Iterator[Trial]:
    """Rewrite a network in several ways, and run it."""
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {proto.graph.input[0].name: np.random.default_rng(choose(99)).standard_normal(shape, np.float32)}
    try:
        path = optimized(proto.SerializeToString(), folder)
        wanted = {threads: outputs(path, feeds, threads) for threads in THREADS}
    except (Fail, InvalidArgument, RuntimeException) as error:
        raise DoesNotRun from error
    graph = static_graph(Model.open(path), {}, optimized=False)
    loaded = onnx.load_model(path, load_external_data=False)
    for _ in range(times):
        regions = random_regions(graph, choose)
        if not regions:
            continue
        written = write(graph, regions)
        written = written if choose(2) else ordered(written, 0.01)
        rewriting = Rewriting(parts=(), graph=written, nodes_before=len(graph.nodes), before=0, after=0, extra_work=0.0)
        target = folder / "rewritten.onnx"
        target.write_bytes(apply(loaded, rewriting).SerializeToString())
        try:
            identical = all(same(wanted[threads], outputs(target, feeds, threads)) for threads in THREADS)
        except (Fail, InvalidArgument, RuntimeException) as error:
            print(f"rewritten, it does not run: {error}", flush=True)
            identical = False
        yield Trial(regions, graph, identical)


def campaign(count: int, seed: int) -> bool:
    """Random networks; whether all of them came out the same."""
    done, refused, different, operators = 0, 0, [], Counter[str]()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + count):
            choose = random.Random(number).randrange
            try:
                trials = list(try_regions(random_network(choose), choose, Path(folder)))
            except DoesNotRun:
                refused += 1
                continue
            for trial in trials:
                done += 1
                places = [place for region in trial.regions for place in region.members.inside]
                operators.update(trial.graph.nodes[place].op_type for place in places)
                if not trial.identical:
                    different.append(number)
                    print(f"seed {number}: different", flush=True)
            if (number - seed + 1) % 1000 == 0:
                print(f"{number - seed + 1} networks, {time.perf_counter() - started:.0f} s", flush=True)
    print(f"{count} networks ({refused} do not run), {done} rewritings, {len(different)} different")
    print("nodes in stripes: " + ", ".join(f"{name} {times}" for name, times in operators.most_common()))
    return not different


def main() -> None:
    """Rewrite what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help="only these; as in benchmarks.sized_models")
    parser.add_argument("--extra-work", default="10%", help="multiplications more, at most")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="so many random networks instead")
    parser.add_argument("--seed", type=int, default=0, help="where random networks begin")
    arguments = parser.parse_args()
    if arguments.random:
        sys.exit(0 if campaign(arguments.random, arguments.seed) else 1)
    table(arguments.models or sized_models.keys(), float(arguments.extra_work.rstrip("%")) / 100)


if __name__ == "__main__":
    main()
