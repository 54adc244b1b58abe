"""Does all of the memory come back? `python -m benchmarks.release`

Two tables. The ladder on 448 MiB of weights, loaded in several ways, and in an isolated session: asked are 98 % of the
anonymous growth in the process, 100 % with isolation. Then 200 times load, run and release of 48 MiB in one process:
asked is a resident size within 2 % of that after the first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.load_modes import LOAD_MODES, LoadMode, model_files
from onnxmem import demonstrate_actual_onnx_memory_release, release, zoo
from onnxmem.releasing.ladder import Ladder, release_ladder
from onnxmem.releasing.rungs import CLOSE, TRIM
from onnxmem.unknown import Bytes, Unknown

MIB = 2**20


def ladder_of(mode: LoadMode, folder: Path, batch: int = 64) -> Ladder:
    """Release the model, loaded in this way."""
    return release_ladder(folder / mode.file, dims={"batch": batch}, runs=2, config=mode.config, options=mode.options)


def cycles(path: Path, count: int) -> list[int]:
    """Resident bytes after each of so many rounds of load, run and release, in a fresh process."""
    here, there = get_context("spawn").Pipe()
    worker = get_context("spawn").Process(target=_cycle, args=(there, str(path), count))
    worker.start()
    there.close()
    sizes: list[int] = here.recv()
    worker.join()
    return sizes


def _cycle(pipe: Connection, path: str, count: int) -> None:
    feeds = {"x": np.ones((8, 2048), np.float32)}
    sizes: list[Bytes] = []
    for _ in range(count):
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        session.run(None, feeds)
        sizes.append(release(session).after.rss)
    pipe.send(sizes)


def _mib(value: Bytes) -> str:
    return "?" if isinstance(value, Unknown) else f"{value / MIB:.1f}"


def _percent(value: float | Unknown) -> str:
    return "?" if isinstance(value, Unknown) else f"{value:.1%}"


def show_ladders(folder: Path) -> bool:
    """Print what came back for each way to load; whether all is as asked."""
    print("MiB                 grown by the model        freed by         left         returned of")
    print(
        f"{'':26} {'anon':>7} {'mapped':>7} {'close':>7} {'trim':>7} {'anon':>6} {'mapped':>6} {'model':>7} {'anon':>7}"
    )
    good = True
    for mode in LOAD_MODES:
        ladder = ladder_of(mode, folder)
        freed = {step.name: step.freed for step in ladder.steps}
        numbers = (ladder.growth_anon, ladder.full.model_mapped, freed[CLOSE], freed[TRIM])
        left = (ladder.left_anon, ladder.last.model_mapped)
        returned = (ladder.released_fraction, ladder.released_fraction_anon)
        print(
            f"{mode.name:26}",
            *(f"{_mib(number):>7}" for number in numbers),
            *(f"{_mib(number):>6}" for number in left),
            *(f"{_percent(fraction):>7}" for fraction in returned),
            flush=True,
        )
        good = good and isinstance(ladder.released_fraction, float) and ladder.released_fraction >= 0.98
    shown = demonstrate_actual_onnx_memory_release(folder / "inline.onnx", dims={"batch": 64})
    isolation = shown.isolation
    print(f"\nisolated session: {_mib(isolation.child.anon)} MiB anonymous in the child, returned on close: ", end="")
    print(f"{_percent(isolation.returned_fraction)}; kept here ", end="")
    kept = isolation.here_after.anon, isolation.here_before.anon
    print(f"{_mib(kept[0])} − {_mib(kept[1])} MiB\n", flush=True)
    return good and isinstance(isolation.returned_fraction, float) and isolation.returned_fraction >= 0.999


def show_cycles(folder: Path, count: int) -> bool:
    """Print how the resident size goes over many rounds; whether it stays."""
    path = folder / "small.onnx"
    onnx.save(zoo.build("matmul", layers=3, width=2048), path)
    began = time.monotonic()
    sizes = cycles(path, count)
    drift = sizes[-1] / sizes[0] - 1
    seconds = time.monotonic() - began
    print(f"{count} rounds of load, run, release (48 MiB of weights) in one process, {seconds:.0f} s")
    spread = f"{_mib(min(sizes))} to {_mib(max(sizes))}, median {statistics.median(sizes) / MIB:.1f}"
    print(f"RSS after the first {_mib(sizes[0])} MiB, after the last {_mib(sizes[-1])} ({drift:+.2%}); {spread}")
    return abs(drift) <= 0.02


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 1 if something asked for is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.release", description=main.__doc__)
    parser.add_argument("--layers", type=int, default=28, help="16 MiB of weights each (default: 28, 448 MiB)")
    parser.add_argument("--cycles", type=int, default=200, help="rounds of load, run and release (default: 200)")
    asked = parser.parse_args(arguments)
    with model_files(asked.layers) as folder:
        good = show_ladders(folder)
        good = show_cycles(folder, asked.cycles) and good
    print("\nall as asked" if good else "\nNOT as asked")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
