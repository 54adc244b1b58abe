"""Attention in blocks: what is alive at once in a transformer with 12 heads, before and after, and how long it takes.

    python -m benchmarks.blocks                  sequences of 512, 1024 and 2048 tokens, as a table
    python -m benchmarks.blocks 512 --json

Bytes are those of recorded runs, kernels' scratch included: the most that any plan has to hold at once. `net` adds what
the added nodes take in a loaded session. Latency is the median of runs in turn, on one thread, over that of the graph
as ONNX Runtime optimizes it. Outputs are compared bit by bit on one thread and on two.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnxmem import zoo
from onnxmem.model.model import Model
from onnxmem.rewriting.live import NODE_BYTES
from onnxmem.rewriting.rewriting import apply
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import static_graph
from onnxmem.session.planned.trace import record
from onnxmem.units import format_bytes

SEQUENCES = (512, 1024, 2048)
HEADS, WIDTH, VOCABULARY = 12, 384, 1000
SECONDS = 10.0


def options(threads: int, optimized: Path | None = None) -> Any:
    """For a graph that is taken as it stands; or for writing one as ONNX Runtime optimizes it."""
    made = ort.SessionOptions()
    made.log_severity_level = 3
    made.intra_op_num_threads = threads
    made.enable_mem_pattern = made.enable_mem_reuse = False
    if optimized is not None:
        made.optimized_model_filepath = str(optimized)
    else:
        made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        made.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    return made


def transformer(sequence: int, layers: int) -> onnx.ModelProto:
    """A network for so many tokens."""
    proto = zoo.build(
        "transformer", positions=sequence, layers=layers, vocabulary=VOCABULARY, width=WIDTH, heads=HEADS
    )  # fmt: skip
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_value = {"batch": 1, "sequence": sequence}[dim.dim_param]
    return proto


def latency(models: dict[str, bytes], feeds: dict[str, Any]) -> float:
    """Of the second model over the first, in turn."""
    sessions = [ort.InferenceSession(model, options(1)) for model in models.values()]
    seconds: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(seconds[0]) < 5:
        for session, found in zip(sessions, seconds, strict=True):
            started = time.perf_counter()
            session.run(None, feeds)
            found.append(time.perf_counter() - started)
    before, after = (statistics.median(found[1:]) for found in seconds)
    return after / before


def compare(sequence: int, layers: int, folder: Path) -> dict[str, Any]:
    """All that is asked about one length."""
    path = folder / f"{sequence}.onnx"
    proto = transformer(sequence, layers)
    ort.InferenceSession(proto.SerializeToString(), options(1, path))
    shapes = dict.fromkeys(("tokens", "mask"), (1, sequence))
    graph = static_graph(Model.open(path), shapes, optimized=False)
    started = time.perf_counter()
    found = search(graph)
    seconds = time.perf_counter() - started
    written = onnx.load(path)
    models = {"whole": written.SerializeToString(), "blocks": apply(written, found).SerializeToString()}
    random = np.random.default_rng(0)
    feeds = {
        "tokens": random.integers(0, VOCABULARY, (1, sequence)),
        "mask": (np.arange(sequence)[None] < sequence - 5).astype(np.int64),
    }
    same = True
    for threads in (1, 2):
        whole, blocks = (ort.InferenceSession(m, options(threads)).run(None, feeds) for m in models.values())
        same = same and all(a.tobytes() == b.tobytes() for a, b in zip(whole, blocks, strict=True))
    before, after = (record(model, feeds, options(1)).bound() for model in models.values())
    return {
        "sequence": sequence,
        "before_bytes": before,
        "after_bytes": after,
        "net_bytes": after + NODE_BYTES * found.added_nodes,
        "nodes_before": found.nodes_before,
        "nodes_after": len(found.graph.nodes),
        "search_seconds": seconds,
        "latency_ratio": latency(models, feeds),
        "identical": same,
    }


HEADER = f"{'tokens':>7}{'bound':>12}{'blocks':>12}{'ratio':>7}{'net':>12}{'nodes':>14}{'search':>9}{'time':>7}"


def line(row: dict[str, Any]) -> str:
    before, after, net = (format_bytes(row[f"{name}_bytes"]) for name in ("before", "after", "net"))
    return (
        f"{row['sequence']:>7}{before:>12}{after:>12}{row['after_bytes'] / row['before_bytes']:>7.2f}{net:>12}"
        f"{row['nodes_before']:>7} → {row['nodes_after']:<4}{row['search_seconds']:>7.1f} s{row['latency_ratio']:>7.2f}"
        f"  {'same' if row['identical'] else 'DIFFERENT'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sequences", nargs="*", type=int, default=SEQUENCES)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if not chosen.json:
            print(HEADER)
        for sequence in chosen.sequences:
            rows.append(compare(sequence, chosen.layers, Path(folder)))
            if not chosen.json:
                print(line(rows[-1]), flush=True)
    if chosen.json:
        print(json.dumps(rows))
    return 0 if all(row["identical"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
