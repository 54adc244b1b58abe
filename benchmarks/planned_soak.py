"""Many runs, alternating shapes, eight threads: is every output that of a stock session, and does memory stay?

    python -m benchmarks.planned_soak                100,000 runs
    python -m benchmarks.planned_soak --runs 5000

Every output of every run is compared bit by bit. Resident memory is looked at after the first 1 % of the runs and
then all along: it must not grow.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from onnxmem import Arena, zoo
from onnxmem.session.session import InferenceSession
from onnxmem.units import format_bytes

THREADS = 8
SHAPES = ((1, 3, 32, 32), (2, 3, 32, 64), (1, 3, 96, 64), (3, 3, 64, 32))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Soak:
    """The sessions, what they must answer, and what was found."""

    def __init__(self, runs: int) -> None:
        model = zoo.build("unet", channels=4).SerializeToString()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.planned = InferenceSession(model, options, ["CPUExecutionProvider"], mode="planned", arena=Arena(4))
        stock = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
        random = np.random.default_rng(0)
        self.feeds = [{"image": random.standard_normal(shape, np.float32)} for shape in SHAPES]
        self.expected = [stock.run(None, feeds) for feeds in self.feeds]
        self.runs = runs
        self.done = 0
        self.wrong = 0
        self.lock = threading.Lock()
        self.memory: list[tuple[int, int]] = []

    def work(self, number: int) -> None:
        for turn in range(self.runs // THREADS):
            k = (turn + number) % len(SHAPES)
            outputs = self.planned.run(None, self.feeds[k])
            good = all(np.array_equal(a, b) for a, b in zip(outputs, self.expected[k], strict=True))
            with self.lock:
                self.wrong += not good
                self.done += 1

    def watch(self, threads: list[threading.Thread]) -> None:
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            self.memory.append((self.done, resident()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planned_soak", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100_000)
    soak = Soak(parser.parse_args().runs)
    threads = [threading.Thread(target=soak.work, args=(number,)) for number in range(THREADS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    soak.watch(threads)
    settled = [rss for done, rss in soak.memory if done >= soak.runs / 100] or [resident()]
    memory: Any = soak.planned.memory
    print(f"{soak.done} runs in {time.perf_counter() - started:.0f} s, {soak.wrong} wrong")
    print(f"recorded {memory.runs_recorded}, replayed {memory.runs_replayed}, deviated {memory.runs_deviated}, "
          f"heap {memory.runs_from_heap}, waits {memory.waits}, regions {memory.regions}")  # fmt: skip
    growth = max(settled) - settled[0]
    print(f"resident after 1 %: {format_bytes(settled[0])}, at most {format_bytes(max(settled))} (+{growth} bytes), "
          f"at the end {format_bytes(settled[-1])}")  # fmt: skip
    return 1 if soak.wrong or memory.runs_deviated else 0


if __name__ == "__main__":
    sys.exit(main())
