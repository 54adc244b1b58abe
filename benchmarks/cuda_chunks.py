"""What does a batch take on a GPU in half and in a quarter of the memory, and by how much do its numbers change?

    python -m benchmarks.cuda_chunks [MODEL …] [--folder FOLDER]

Each model of `benchmarks.cuda` whose rows do not mix, all rows at once and then with `budget=…, exact=False`; and in
tiles, with `tile=True, exact=False`: device memory of the arena, latency in turns, and the largest difference of an
output beside the largest output.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxmem
from benchmarks import cuda_models
from benchmarks.cuda_worker import providers

MIB = 2**20
PARTS = (2, 4)
TURNS = 7


def seconds(session: Any, feeds: dict[str, Any]) -> float:
    began = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - began


def fixed(path: Path, shapes: dict[str, tuple[int, ...]]) -> Path:
    """The model for these shapes alone."""
    model = onnx.load(path)
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    target = path.with_name(f"fixed-{path.name}")
    target.write_bytes(model.SerializeToString())
    return target


def compare(case: cuda_models.Case, path: Path) -> None:
    where = providers("planned", {})
    whole = onnxmem.InferenceSession(path, providers=where)
    feeds = next(cuda_models.feeds(whole, case))
    expected = whole.run(None, feeds)
    plan = int(str(whole.memory.plan_bytes))
    asked: dict[str, tuple[Path, dict[str, Any]]] = {
        f"budget {plan / part / MIB:.0f}": (path, {"budget": plan // part}) for part in PARTS
    }
    asked["tiles"] = (fixed(path, case.shapes[0]), {"tile": True})
    for what, (file, keywords) in asked.items():
        cells = [case.name, f"{plan / MIB:.0f}", what]
        try:
            session = onnxmem.InferenceSession(file, providers=where, exact=False, **keywords)
            for _ in range(3):
                got = session.run(None, feeds)
        except onnxmem.OnnxmemError as error:
            print(f"| {' | '.join([*cells, str(error)])} | | | |", flush=True)
            continue
        rows = [f"{batch.parts} × {batch.rows_at_once}" for batch in session.memory.batches]
        ratios = [seconds(session, feeds) / seconds(whole, feeds) for _ in range(TURNS)]
        pairs = list(zip(got, expected, strict=True))
        off = max(float(np.abs(a.astype("f8") - b.astype("f8")).max()) for a, b in pairs)
        largest = max(float(np.abs(b).max()) for _, b in pairs)
        same = "equal" if all(np.array_equal(a, b) for a, b in pairs) else f"{off:.2g} of {largest:.2g}"
        arena = int(str(session.memory.arena_bytes)) / MIB
        cells += [f"{arena:.0f}", "".join(rows), f"{statistics.median(ratios):.2f}", same]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of benchmarks.cuda's models; all with one shape by default")
    parser.add_argument("--folder", type=Path, help="where models are kept")
    options = parser.parse_args()
    print("| model | plan | how | arena | parts × rows | time | largest difference |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        for case in cuda_models.CASES:
            if len(case.shapes) == 1 and (not options.models or case.name in options.models):
                compare(case, cuda_models.locate(case, options.folder or Path(made)))


if __name__ == "__main__":
    main()
