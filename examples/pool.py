"""Python's own worker processes, with one copy of the weights: python examples/pool.py model.pack [fork|spawn]

The model is one that takes 512 numbers: onnxmem.zoo.build("matmul", width=512).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from threading import Barrier

import numpy as np
import numpy.typing as npt

import onnxmem

_session: onnxmem.InferenceSession | None = None
_together: Barrier | None = None


def load(package: str, together: Barrier) -> None:
    """Called once in each worker: sessions are made where they run, never before a fork."""
    global _session, _together  # one per process is what is wanted
    _session, _together = onnxmem.InferenceSession(package), together


def run(x: npt.NDArray[np.float32]) -> tuple[int, float]:
    """Called for each task."""
    assert _session is not None and _together is not None
    _together.wait(600)  # for the other worker, so that both of them are seen at work
    name = _session.get_inputs()[0].name
    return os.getpid(), float(_session.run(None, {name: x})[0].sum())


def main(package: str, method: str = "spawn") -> set[tuple[int, float]]:
    """Eight tasks for two workers: who did them, and with which result."""
    context = multiprocessing.get_context(method)
    with context.Pool(2, load, (package, context.Barrier(2))) as pool:
        return set(pool.map(run, [np.ones((1, 512), np.float32)] * 8, chunksize=1))


if __name__ == "__main__":
    for pid, total in sorted(main(sys.argv[1], *sys.argv[2:3])):
        print(f"process {pid}: {total}")
