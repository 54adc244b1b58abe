"""What does a call through a process boundary cost? `python -m benchmarks.isolated`

A model that only negates its input, so that almost all of a call is the way there and back. Asked: less than 1 ms plus
twice the time of a memcpy on top of an ordinary session, for a tensor of 4 MiB.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from onnxmem import IsolatedSession

MIB = 2**20
SIZES = (0.001, 0.0625, 1, 4, 16, 64)


def negate(path: Path) -> None:
    """Write the model."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negate", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def options() -> Any:
    """One thread: the differences are to be those of the way, not of two pools that wait for each other."""
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = 1
    return chosen


def pickling(pipe: Connection, path: str) -> None:
    """The usual way: a worker that gets and gives pickled arrays."""
    session = ort.InferenceSession(path, options())
    while True:
        feeds = pipe.recv()
        if feeds is None:
            return
        pipe.send(session.run(None, feeds))


def timed(call: Callable[[], object], repeats: int, limit: float = 4.0) -> list[float]:
    """Seconds of each call, after some to warm up; at least ten calls, then no more when the limit is reached."""
    seconds: list[float] = []
    while len(seconds) < 15 or (len(seconds) < repeats + 5 and sum(seconds) < limit):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds[5:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if the target is missed at 4 MiB."""
    repeats = int((arguments or ["200"])[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "negate.onnx")
        negate(path)
        here, there = get_context("spawn").Pipe()
        worker = get_context("spawn").Process(target=pickling, args=(there, str(path)), daemon=True)
        worker.start()
        direct = ort.InferenceSession(str(path), options())
        print(f"median of up to {repeats} calls in ms; added = isolated − in process; allowed = 1 + 2 × memcpy\n")
        print(
            f"{'tensor':>9} {'memcpy':>8} {'in process':>11} {'isolated':>9} {'pickled':>9} {'added':>7} {'allowed':>8}"
        )
        with IsolatedSession(path, {"intra_op_num_threads": 1}) as isolated:
            verdicts = [row(size, repeats, direct, isolated, here) for size in SIZES]
        here.send(None)
        worker.join()
    return 0 if verdicts[SIZES.index(4)] else 1


def row(size: float, repeats: int, direct: Any, isolated: IsolatedSession, pipe: Connection) -> bool:
    """Measure one size and print it; whether it is within the allowance."""
    x = np.random.default_rng(0).standard_normal(int(size * MIB / 4), dtype=np.float32)
    target = np.empty_like(x)

    def pickled() -> Any:
        pipe.send({"x": x})
        return pipe.recv()

    assert np.array_equal(isolated.run(None, {"x": x})[0], -x)
    calls: tuple[Callable[[], object], ...] = (
        lambda: np.copyto(target, x),
        lambda: direct.run(None, {"x": x}),
        lambda: isolated.run(None, {"x": x}),
        pickled,
    )
    copy, inside, outside, slow = (statistics.median(timed(call, repeats)) * 1000 for call in calls)
    added, allowed = outside - inside, 1 + 2 * copy
    name = f"{size:g} MiB" if size >= 1 else f"{size * 1024:g} KiB"
    verdict = "" if added <= allowed else "  too slow"
    numbers = f"{copy:8.3f} {inside:11.3f} {outside:9.3f} {slow:9.3f} {added:7.3f} {allowed:8.3f}"
    print(f"{name:>9} {numbers}{verdict}", flush=True)
    return added <= allowed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
