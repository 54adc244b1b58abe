"""Does a planned session on a GPU stay right and stay small? Many runs in many threads; a device without memory.

    python -m benchmarks.cuda_soak                  10,000 runs in each of 4 threads, or 120 seconds of them
    python -m benchmarks.cuda_soak --runs 100 --seconds 20

Two sessions share an arena, and each thread runs both in turn; every output is compared with stock's. Then the device's
memory is taken away: a run must fail with ONNX Runtime's own error, and the session must work as before when the memory
is back. Exits 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import onnxmem
from benchmarks.cuda_worker import Gpu, providers
from onnxmem import zoo

MIB = 2**20
# One for each session, so that its runs are inside one plan.
SHAPES = [(2, 128), (4, 160)]


class Soak:
    """Two models, what stock answers for each of some inputs, and planned sessions of both in one arena."""

    def __init__(self, folder: Path) -> None:
        self.arena = onnxmem.Arena(limit=4)
        self.sessions: list[Any] = []
        self.wanted: list[list[Any]] = []
        rng = np.random.default_rng(0)
        self.inputs = [rng.standard_normal((batch, 3, size, size)).astype("f4") for batch, size in SHAPES]
        for name, image in zip(("squeezenet", "mobilenet"), self.inputs, strict=True):
            path = folder / f"{name}.onnx"
            path.write_bytes(zoo.build(name).SerializeToString())
            stock = ort.InferenceSession(str(path), providers=providers("stock", {}))
            self.wanted.append(stock.run(None, {"image": image}))
            self.sessions.append(onnxmem.InferenceSession(path, providers=providers("planned", {}), arena=self.arena))
        self.wrong: list[str] = []

    def one(self, number: int) -> None:
        """One run; what is wrong about it is noted."""
        which = number % 2
        got = self.sessions[which].run(None, {"image": self.inputs[which]})
        if not all(np.array_equal(a, b) for a, b in zip(got, self.wanted[which], strict=True)):
            self.wrong.append(f"run {number}: session {which}")

    def thread(self, first: int, runs: int, until: float, done: list[int]) -> None:
        try:
            for number in range(runs):
                if time.monotonic() > until or self.wrong:
                    break
                self.one(first + number)
                done[first] += 1
        except Exception as error:
            self.wrong.append(repr(error))


def soak(runs: int, threads: int, seconds: float, folder: Path) -> bool:
    """Run for a while; True if all is well."""
    gpu, it = Gpu(), Soak(folder)
    for number in range(8):
        it.one(number)
    done = [0] * threads

    def together(times: int, until: float) -> None:
        workers = [threading.Thread(target=it.thread, args=(k, times, until, done)) for k in range(threads)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()

    together(50, time.monotonic() + seconds)  # so many regions as threads
    before, start = gpu.used(), time.monotonic()
    together(runs, start + seconds)
    after = gpu.used()
    took = time.monotonic() - start
    print(f"{sum(done)} runs in {threads} threads, {took:.0f} s; growth {(after - before) / MIB:.1f} MiB")
    for session in it.sessions:
        memory = session.memory
        counts = {k: v for k, v in vars(memory).items() if k.startswith("runs_") or k == "waits"}
        print(f"  {memory.reason or memory.device}: arena {it.arena.device_bytes / MIB:.1f} MiB, {counts}")
    for line in it.wrong[:5]:
        print(f"  wrong: {line}")
    for session in it.sessions:
        session.trim()
    print(f"  after trim: {(gpu.used() - after) / MIB:.1f} MiB, arena {it.arena.device_bytes / MIB:.1f} MiB")
    it.one(0)
    return not it.wrong and after - before < 8 * MIB


def without_memory(folder: Path) -> bool:
    """Take the device's memory away, run, give it back, run; True if all is well."""
    path = folder / "unet.onnx"
    path.write_bytes(zoo.build("unet").SerializeToString())
    session = onnxmem.InferenceSession(path, providers=providers("planned", {}))
    small, large = (np.ones((batch, 3, 256, 256), "f4") for batch in (1, 32))
    wanted = session.run(None, {"image": small})
    session.run(None, {"image": small})
    driver, taken = ctypes.CDLL("libcuda.so.1"), []
    for size in (2**34, 2**30, 2**28, 2**26):
        block = ctypes.c_uint64()
        while driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)) == 0:
            taken.append(block.value)
    error = ""
    try:
        session.run(None, {"image": large})
    except Exception as raised:
        error = str(raised).splitlines()[0]
    print(f"without memory: {error or 'nothing was raised'}")
    still = session.run(None, {"image": small})
    for address in taken:
        driver.cuMemFree_v2(ctypes.c_uint64(address))
    again = session.run(None, {"image": small})
    afterwards = [session.run(None, {"image": large})[0] for _ in range(3)]
    right = all(np.array_equal(wanted[0], other[0]) for other in (still, again))
    same = all(np.array_equal(afterwards[0], other) for other in afterwards)
    print(f"  small runs meanwhile and afterwards equal: {right}; large ones afterwards equal: {same}")
    return "Failed to allocate memory" in error and right and same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, if there is no GPU")
    options = parser.parse_args()
    there = "CUDAExecutionProvider" in ort.get_available_providers()
    if not there and not options.rehearse:
        sys.exit("this ONNX Runtime has no CUDA provider: nothing to run (pip install onnxruntime-gpu)")
    with tempfile.TemporaryDirectory() as folder:
        well = soak(options.runs, options.threads, options.seconds, Path(folder))
        well = (not there or without_memory(Path(folder))) and well
    print("all is well" if well else "NOT all is well", flush=True)
    os._exit(0 if well else 1)


if __name__ == "__main__":
    main()
