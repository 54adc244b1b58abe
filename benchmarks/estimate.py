"""How long does an estimate take?

    python -m benchmarks.estimate

One Markdown table: real models and networks of the zoo, end to end after imports, dimensions bound. Three runs each,
the median with the spread; every run opens the file again.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.real_models import FetchError, feeds, fetch, find
from onnxmem import zoo
from onnxmem.estimation.estimate import estimate
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies import solve

REAL = ("det", "rec", "nsfw", "light_densenet121", "light_inception_v2", "tiny_pron")
ZOO = {"resnet50": "image=1x3x224x224", "densenet121": "image=1x3x224x224", "unet": "image=1x3x512x512"}
REPEATS = 3


def timed(work: Callable[[], object]) -> tuple[float, float, float]:
    """Median, fastest and slowest of a few runs."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), min(seconds), max(seconds)


def row(what: str, size: str, spread: tuple[float, float, float], asked: str) -> None:
    print(f"| {what} | {size} | {spread[0]:.2f} s | {spread[1]:.2f}–{spread[2]:.2f} | {asked} |", flush=True)


def estimated(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    estimate(path, shapes=shapes)


def main() -> None:
    print("| what | size | median | spread | asked |\n|---|---|---|---|---|")
    for key in REAL:
        try:
            path = fetch(key)
        except FetchError as error:
            print(f"| {key} | – | not measured: {error} | | |")
            continue
        shapes = {name: array.shape for name, array in feeds(find(key)).items()}
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
        asked = "10 s" if nodes > 1000 else "2 s"
        row(f"estimate {key}", f"{nodes} nodes", timed(partial(estimated, path, shapes)), asked)
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in ZOO.items():
            path = Path(folder, f"{name}.onnx")
            model = zoo.build(name)
            onnx.save(model, path)
            given = {shape.partition("=")[0]: tuple(map(int, shape.partition("=")[2].split("x")))}
            size = f"{len(model.graph.node)} nodes"
            row(f"estimate {name}", size, timed(partial(estimated, path, given)), "2 s")
    random = np.random.default_rng(0)
    lowers = random.integers(0, 10_000, 10_000)
    columns = (lowers, lowers + random.integers(1, 300, 10_000), random.integers(1, 2**20, 10_000))
    problem = Problem(tuple(map(str, range(10_000))), *columns)
    row("greedy_by_size", "10,000 buffers", timed(lambda: solve(problem, "greedy_by_size")), "1 s")
    help_text = [sys.executable, "-m", "onnxmem", "--help"]
    row("onnxmem --help", "", timed(lambda: subprocess.run(help_text, capture_output=True, check=True)), "0.3 s")


if __name__ == "__main__":
    main()
