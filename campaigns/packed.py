"""Packages of random graphs against stock sessions, bit for bit: what `campaigns.plans packages` does with one graph.

Making a package starts about five processes, each of which loads for a second. Here they are forks of this one, which
has everything loaded: ten thousand packages take an hour instead of a day. What they do is the same.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as raised

from benchmarks import shared_places
from campaigns.processes import ask
from onnxmem import InferenceSession, pack
from onnxmem.errors import OnnxmemError
from onnxmem.measurement import smaps

SAME, DIFFERENT, FAILED, REFUSED, NOT_RUN = "the same", "different", "failed", "refused", "not run by ONNX Runtime"
_MOST_FILES = 1024
_REFUSED_BY_STOCK = (
    raised.Fail, raised.InvalidArgument, raised.InvalidGraph, raised.NotImplemented, raised.RuntimeException,
)  # fmt: skip


class _Fork(subprocess.Popen[bytes]):
    """A process for a program in Python that begins as a fork. The one that starts it must have no threads."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        environment, handles = rest[5], rest[9:15]  # of both ends of stdin, stdout and stderr
        self.pid = os.fork()
        if not self.pid:
            _become(args[-1], environment, (handles[0], handles[3], handles[5]))
        self._child_created = True
        self._close_pipe_fds(*handles)  # type: ignore[attr-defined]


def _become(program: str, environment: dict[str, str] | None, streams: tuple[int, int, int]) -> None:
    """Run it as a fresh interpreter would, and end."""
    code = 1
    try:
        gc.freeze()  # objects of the other process must not close files of this one
        os.setpgid(0, 0)
        for number, handle in enumerate(streams):
            if handle >= 0:
                os.dup2(handle, number)
        os.closerange(3, _MOST_FILES)
        os.environ.update(environment or {})
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        exec(program, {"__name__": "__main__"})
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def outcome(seed: int) -> str:
    """What becomes of the graph of that number, in a fork."""
    try:
        return str(ask(lambda: _outcome(seed), 300.0))
    except AssertionError as error:
        return f"{FAILED}: {error}"


def _outcome(seed: int) -> str:
    subprocess.Popen = _Fork  # type: ignore[misc,assignment]
    smaps.classify = lambda *_: ()  # a fifth of the time; only the answers of trials are looked at here
    choose = random.Random(seed).randrange
    graph = shared_places.build(choose)
    shapes = [{name: array.shape for name, array in feeds.items()} for feeds in graph.feeds]
    with tempfile.TemporaryDirectory() as temporary:
        model, package = Path(temporary) / "model.onnx", Path(temporary) / "package"
        model.write_bytes(graph.model)
        order, plans = (None, None, "best")[choose(3)], shapes if choose(2) and all(map(_some, shapes)) else ()
        try:
            pack(model, package, order=order, plans=plans, shapes=shapes[0], seed=seed)
            refused = None
        except OnnxmemError as error:
            refused = error
        # Packages have all optimizations. No session before this: sessions have threads, which forks do not.
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = graph.threads, 4
        try:
            stock = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            wanted = [[array.tobytes() for array in stock.run(None, feeds)] for feeds in graph.feeds]
        except _REFUSED_BY_STOCK:
            return NOT_RUN
        if refused is not None:
            return f"{REFUSED}: {refused}"
        packed = InferenceSession(package, options, ["CPUExecutionProvider"], debug=bool(seed % 2))
        same = True
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for feeds, bits in zip(graph.feeds, wanted, strict=True):
                for _ in range(2):
                    same &= [array.tobytes() for array in packed.run(None, feeds)] == bits
        return SAME if same and not packed.memory.overruns else DIFFERENT


def _some(shapes: dict[str, tuple[int, ...]]) -> bool:
    return all(all(shape) for shape in shapes.values())
