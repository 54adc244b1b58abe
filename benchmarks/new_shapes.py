"""Inputs whose shape is new in nearly every run: what does a planned session cost then, and what does it save?

    python -m benchmarks.new_shapes
    python -m benchmarks.new_shapes det --json

Every run of a new shape is recorded and its plan solved, for nothing if the shape never comes again. Each session has
a process of its own, and both get the same 200 shapes; sessions take turns three times. Processor time, not the
clock: other processes do not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import planned

RUNS, TURNS = 200, 3
MODELS = ("det", "rec", "zoo:transformer")


def feeds(key: str, random: np.random.Generator) -> dict[str, Any]:
    """Inputs of a random size, as people's images and sentences have."""
    side, other = (32 * int(random.integers(4, 12)) for _ in range(2))
    if key == "rec":
        return {"x": random.standard_normal((1, 3, 48, int(random.integers(100, 600))), np.float32)}
    if key == "zoo:transformer":
        tokens = random.integers(0, 100, (1, int(random.integers(8, 256))))
        return {"tokens": tokens, "mask": np.ones_like(tokens)}
    return {"x": random.standard_normal((1, 3, side, other), np.float32)}


def run(key: str, path: Path, mode: str) -> dict[str, Any]:
    """One process."""
    session, random = planned.open_session(path, mode), np.random.default_rng(1)
    loaded, spent = planned.settle(), 0.0
    for _ in range(RUNS):
        inputs = feeds(key, random)
        began = time.process_time()
        session.run(None, inputs)
        spent += time.process_time() - began
    found = {"seconds": spent / RUNS, "growth_bytes": planned.status("VmHWM") - loaded}
    return found | ({"recorded": session.memory.runs_recorded} if mode == "planned" else {})


def compare(key: str, folder: Path) -> dict[str, Any]:
    """Stock and planned in turn."""
    path = str(planned.locate(key, folder))
    turns: dict[str, list[dict[str, Any]]] = {"stock": [], "planned": []}
    for _ in range(TURNS):
        for mode, found in turns.items():
            command = [sys.executable, "-m", "benchmarks.new_shapes", "--child", key, path, mode]
            found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    ratios = [p["seconds"] / s["seconds"] for s, p in zip(turns["stock"], turns["planned"], strict=True)]
    growth = {mode: statistics.median(turn["growth_bytes"] for turn in found) for mode, found in turns.items()}
    return {
        "model": key,
        "runs": RUNS,
        "recorded": turns["planned"][0]["recorded"],
        "stock_growth_bytes": growth["stock"],
        "planned_growth_bytes": growth["planned"],
        "time_ratio": statistics.median(ratios),
        "time_ratios": ratios,
    }


def line(row: dict[str, Any]) -> str:
    stock, plan = (row[f"{mode}_growth_bytes"] / 2**20 for mode in ("stock", "planned"))
    spread = f"{min(row['time_ratios']):.2f} to {max(row['time_ratios']):.2f}"
    counts = f"{row['runs']:>5}{row['recorded']:>5}"
    return f"{row['model']:<18}{counts}{stock:>9.1f}{plan:>9.1f}{row['time_ratio']:>7.2f}  {spread}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_shapes", description=__doc__.splitlines()[0])
    parser.add_argument("keys", nargs="*", metavar="MODEL", help=f"only these: {', '.join(MODELS)}")
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        key, path, mode = arguments.keys
        print(json.dumps(run(key, Path(path), mode)))
        return 0
    rows = []
    if not arguments.json:
        print(f"{'model':<18}{'runs':>5}{'new':>5}{'stock':>9}{'planned':>9}{'time':>7}  spread")
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as folder:
        for key in arguments.keys or MODELS:
            row = compare(key, Path(folder))
            rows.append(row)
            if not arguments.json:
                print(line(row), flush=True)
    if arguments.json:
        print(json.dumps({"schema": "onnxmem.benchmark.new_shapes/1", "rows": rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
