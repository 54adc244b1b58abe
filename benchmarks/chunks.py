"""Batches of 16 within a budget: what do sessions that run them in parts take, and how long?

    python -m benchmarks.chunks                      four networks, as a table
    python -m benchmarks.chunks mobilenet --json

Each figure of memory comes from a fresh process: the peak of the resident set from the first run on, minus the resident
set after loading; the runs that record count. The budget is for the outputs, which somebody wants whole, and so much of
what a planned session without one grows by beside them; `/planned` is of that, too.
Latency is the median of runs in turn, in one process, over that of a planned session without a budget. Outputs are
compared bit by bit with those of a stock session, all rows at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.fresh_process import ask
from benchmarks.planned import digest, settle, status
from onnxmem import zoo
from onnxmem.units import format_bytes

ROWS, RUNS, SECONDS = 16, 4, 5.0
BUDGETS = (0.15, 0.30)
SIZES: dict[str, dict[str, int]] = {
    "resnet50": {"height": 224, "width": 224},
    "yolo": {"height": 416, "width": 416},
    "mobilenet": {"height": 224, "width": 224},
    "transformer": {"sequence": 128},
}


def feeds_for(name: str, session: Any) -> dict[str, Any]:
    """Inputs, the same in every process."""
    random, dims = np.random.default_rng(0), {"batch": ROWS, **SIZES[name]}
    made: dict[str, Any] = {}
    for value in session.get_inputs():
        shape = [dims[dim] if isinstance(dim, str) else dim for dim in value.shape]
        whole = "int" in value.type
        made[value.name] = random.integers(0, 2, shape) if whole else random.standard_normal(shape, np.float32)
    return made


def open_session(path: str, threads: int, budget: int) -> Any:
    """A session on so many threads: stock for a budget of -1, without one for 0."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if budget < 0:
        return ort.InferenceSession(path, options, ["CPUExecutionProvider"])
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    return InferenceSession(path, options, ["CPUExecutionProvider"], budget=budget or None)


def growth(name: str, path: str, threads: int, budget: int) -> dict[str, Any]:
    """One fresh process: load, run, look at the peak."""
    session = open_session(path, threads, budget)
    feeds = feeds_for(name, session)
    loaded = settle()
    for _ in range(RUNS):
        session.run(None, feeds)
    found: dict[str, Any] = {"growth_bytes": status("VmHWM") - loaded}
    outputs = session.run(None, feeds)
    found |= {"sha256": digest(outputs), "output_bytes": sum(output.nbytes for output in outputs)}
    if budget > 0:
        (batch,) = session.memory.batches
        found |= {"at_once": batch.rows_at_once, "needed_bytes": batch.needed}
    return found


def latency(name: str, path: str, threads: int, budget: int) -> dict[str, Any]:
    """Sessions with that budget and without in turn; the ratio of their medians."""
    sessions = [open_session(path, threads, each) for each in (0, budget)]
    feeds = feeds_for(name, sessions[0])
    seconds: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        for _ in range(2):
            session.run(None, feeds)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(seconds[0]) < 5:
        for session, found in zip(sessions, seconds, strict=True):
            started = time.perf_counter()
            session.run(None, feeds)
            found.append(time.perf_counter() - started)
    whole, parts = (statistics.median(found) for found in seconds)
    return {"seconds": whole, "ratio": parts / whole}


def child(what: str, name: str, path: Path, threads: int, *budgets: int) -> dict[str, Any]:
    """What a fresh process says."""
    return ask("chunks", what, name, str(path), str(threads), *map(str, budgets))


def compare(name: str, path: Path, threads: int, *, timed: bool) -> list[dict[str, Any]]:
    """All that is asked about one model: a row for each budget."""
    stock, whole = child("growth", name, path, threads, -1), child("growth", name, path, threads, 0)
    outputs = whole["output_bytes"]
    budgets = [outputs + int(part * (whole["growth_bytes"] - outputs)) for part in BUDGETS]
    rows = []
    for budget in budgets:
        row = {
            "model": name,
            "threads": threads,
            "stock_bytes": stock["growth_bytes"],
            "whole_bytes": whole["growth_bytes"],
            "output_bytes": outputs,
            "budget_bytes": budget,
        }
        try:
            found = child("growth", name, path, threads, budget)
            ratio = child("latency", name, path, threads, budget)["ratio"] if timed else None
        except RuntimeError as error:
            row["refused"] = str(error).rsplit("BudgetExceeded: ", maxsplit=1)[-1]
        else:
            identical = stock["sha256"] == found["sha256"]
            row |= {"growth_bytes": found["growth_bytes"], "at_once": found["at_once"]}
            row |= {"latency_ratio": ratio, "identical": identical}
        rows.append(row)
    return rows


HEADER = (
    f"{'model':<13}{'threads':>7}{'stock':>11}{'planned':>11}{'outputs':>11}{'budget':>11}{'growth':>11}"
    f"{'/planned':>9}{'at once':>8}{'time':>7}"
)


def line(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"{row['model']:<13}{row['threads']:>7}  refused: {row['refused']}"
    shown = ("stock", "whole", "output", "budget", "growth")
    sizes = "".join(f"{format_bytes(row[f'{name}_bytes']):>11}" for name in shown)
    beside = (row["growth_bytes"] - row["output_bytes"]) / (row["whole_bytes"] - row["output_bytes"])
    ratio = "" if row["latency_ratio"] is None else f"{row['latency_ratio']:.2f}"
    return (
        f"{row['model']:<13}{row['threads']:>7}{sizes}{beside:>9.2f}{row['at_once']:>8}{ratio:>7}"
        f"  {'same' if row['identical'] else 'DIFFERENT'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"some of: {', '.join(SIZES)}")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--untimed", action="store_true", help="memory only")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        what, name, path, *numbers = chosen.child
        answer: Callable[..., dict[str, Any]] = growth if what == "growth" else latency
        print(json.dumps(answer(name, path, *map(int, numbers))))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if not chosen.json:
            print(HEADER)
        for name in chosen.models or SIZES:
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(zoo.build(name).SerializeToString())
            for threads in chosen.threads:
                found = compare(name, path, threads, timed=not chosen.untimed)
                rows += found
                if not chosen.json:
                    print("\n".join(map(line, found)), flush=True)
    if chosen.json:
        print(json.dumps(rows))
    return 0 if all(row.get("identical", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
