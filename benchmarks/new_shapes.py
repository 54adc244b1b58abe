"""Inputs whose shape is always new: what does a planned session cost then, and what does it save?

    python -m benchmarks.new_shapes
    python -m benchmarks.new_shapes det --json

150 shapes, none of them twice, in one thread and in four that share a session. A planned session records the first few
and plans the others before they run. Each session has a process of its own, and all get the same shapes; they take
turns three times, and ratios are of one turn. Processor time, not the clock: other processes do not count. `allowed` is
what the plans need: as much as all regions of the arena, and one output for each thread, and a tenth more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import planned

RUNS, TURNS = 150, 3
THREADS = (1, 4)
MODELS = ("det", "rec", "zoo:transformer")


def shapes(key: str) -> list[tuple[int, ...]]:
    """Random sizes, as people's images and sentences have; none of them twice."""
    random = np.random.default_rng(1)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < RUNS:
        side, other = (32 * int(random.integers(4, 21)) for _ in range(2))
        width, length = int(random.integers(32, 800)), int(random.integers(8, 256))
        shape = {"rec": (1, 3, 48, width), "zoo:transformer": (1, length)}.get(key, (1, 3, side, other))
        found[shape] = None
    return list(found)


def feeds(key: str, shape: tuple[int, ...], values: Any) -> dict[str, Any]:
    """Inputs made of the same values, so that they are not among what the runs take."""
    given = values[: math.prod(shape)].reshape(shape)
    if key == "zoo:transformer":
        tokens = (given * 10).astype(np.int64) % 100
        return {"tokens": tokens, "mask": np.ones_like(tokens)}
    return {"x": given}


def run(key: str, path: Path, mode: str, threads: int) -> dict[str, Any]:
    """One process."""
    session, lock = planned.open_session(path, mode), threading.Lock()
    waiting: Iterator[tuple[int, ...]] = iter(shapes(key))
    values = np.random.default_rng(1).standard_normal(max(map(math.prod, shapes(key))), np.float32)
    largest = 0
    loaded = planned.settle()

    def work() -> None:
        nonlocal largest
        while True:
            with lock:
                if (shape := next(waiting, None)) is None:
                    return
            inputs = feeds(key, shape, values)
            # Not kept: outputs would count twice while the next run makes its own.
            taken = sum(output.nbytes for output in session.run(None, inputs))
            with lock:
                largest = max(largest, taken)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = {"seconds": (time.process_time() - began) / RUNS, "growth_bytes": planned.status("VmHWM") - loaded}
    if mode != "planned":
        return found
    memory = session.memory
    allowed = 1.1 * (memory.arena_bytes + threads * largest)
    return found | {"recorded": memory.runs_recorded, "deviated": memory.runs_deviated, "allowed_bytes": allowed}


def compare(key: str, folder: Path, threads: int) -> dict[str, Any]:
    """All modes in turn."""
    path = str(planned.locate(key, folder))
    turns: dict[str, list[dict[str, Any]]] = {"stock": [], "tuned": [], "planned": []}
    for _ in range(TURNS):
        for mode, found in turns.items():
            command = [sys.executable, "-m", "benchmarks.new_shapes", "--child", key, path, mode, str(threads)]
            found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    ratios = [p["seconds"] / s["seconds"] for s, p in zip(turns["stock"], turns["planned"], strict=True)]
    growth = {mode: statistics.median(turn["growth_bytes"] for turn in found) for mode, found in turns.items()}
    return {
        "model": key,
        "threads": threads,
        "runs": RUNS,
        **{name: max(turn[name] for turn in turns["planned"]) for name in ("recorded", "deviated", "allowed_bytes")},
        **{f"{mode}_growth_bytes": value for mode, value in growth.items()},
        "time_ratio": statistics.median(ratios),
        "time_ratios": ratios,
    }


_COLUMNS = ("stock", "tuned", "planned", "allowed")
HEADER = f"{'model':<18}{'threads':>8}{'recorded':>9}{'dev.':>5}{''.join(f'{c:>9}' for c in _COLUMNS)}{'time':>7}"


def line(row: dict[str, Any]) -> str:
    names = ("stock_growth_bytes", "tuned_growth_bytes", "planned_growth_bytes", "allowed_bytes")
    sizes = "".join(f"{row[name] / 2**20:>9.1f}" for name in names)
    spread = f"{min(row['time_ratios']):.2f} to {max(row['time_ratios']):.2f}"
    counts = f"{row['threads']:>8}{row['recorded']:>9}{row['deviated']:>5}"
    return f"{row['model']:<18}{counts}{sizes}{row['time_ratio']:>7.2f}  {spread}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_shapes", description=__doc__.splitlines()[0])
    parser.add_argument("keys", nargs="*", metavar="MODEL", help=f"only these: {', '.join(MODELS)}")
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        key, path, mode, threads = arguments.keys
        print(json.dumps(run(key, Path(path), mode, int(threads))))
        return 0
    rows = []
    if not arguments.json:
        print(f"{HEADER}  spread")
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as folder:
        for key, threads in itertools.product(arguments.keys or MODELS, THREADS):
            row = compare(key, Path(folder), threads)
            rows.append(row)
            if not arguments.json:
                print(line(row), flush=True)
    if arguments.json:
        print(json.dumps({"schema": "onnxmem.benchmark.new_shapes/2", "rows": rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
