"""Python's own worker processes, with one copy of the weights: python examples/pool.py model.pack [fork|spawn]

The model is one that takes 512 numbers: onnxmem.zoo.build("matmul", width=512).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import numpy as np
import numpy.typing as npt

import onnxmem

_session: onnxmem.InferenceSession | None = None


def load(package: str) -> None:
    """Called once in each worker: sessions are made where they run, never before a fork."""
    global _session  # noqa: PLW0603  one per process is what is wanted
    _session = onnxmem.InferenceSession(package)


def run(x: npt.NDArray[np.float32]) -> tuple[int, float]:
    """Called for each task."""
    assert _session is not None
    time.sleep(0.05)  # so that the other workers get something to do, too
    name = _session.get_inputs()[0].name
    return os.getpid(), float(_session.run(None, {name: x})[0].sum())


def main(package: str, method: str = "spawn") -> set[tuple[int, float]]:
    """Eight tasks for two workers: who did them, and with which result."""
    with multiprocessing.get_context(method).Pool(2, load, (package,)) as pool:
        return set(pool.map(run, [np.ones((1, 512), np.float32)] * 8, chunksize=1))


if __name__ == "__main__":
    for pid, total in sorted(main(sys.argv[1], *sys.argv[2:3])):
        print(f"process {pid}: {total}")
