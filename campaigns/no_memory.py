"""No memory, at every call in turn that the allocator makes while a planned session is opened and used.

The process has a library preloaded in which the n-th of these calls fails (tests/native/failing_calls.cpp): mmap,
mremap, madvise, malloc and new, called by our library. Each n in a fork of its own. What may come of it is an exception
that Python programs can catch, or the right outputs; and afterwards the same session gives the right outputs again.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import parser

import onnxmem
from campaigns.processes import ask
from onnxmem._native import arena as _loaded  # noqa: F401  so that calls from it are known
from tests.native.build import build_library

Feeds = dict[str, npt.NDArray[np.generic]]
Outputs = list[npt.NDArray[np.generic]]

_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    parts (float[n, 256] x, bool[n] chosen) => (float[n, 256] y, float[m, 256] z) {
        a = Relu(x)
        b = Exp(a)
        c = Sub(b, x)
        d = Sigmoid(c)
        e = Mul(d, b)
        y = Add(e, a)
        f = Compress <axis = 0> (c, chosen)
        g = Neg(f)
        h = Exp(g)
        z = Add(h, f)
    }"""
_ROWS = (160, 160, 300, 160, 160, 90, 300, 160)
"""Some outputs are large enough to get pages of the region, and some sizes depend on what is in the inputs."""

_LIBRARY = "_native/arena"


def _feeds(turn: int) -> Feeds:
    numbers = np.random.default_rng(turn)
    rows = _ROWS[turn % len(_ROWS)]
    return {"x": numbers.standard_normal((rows, 256), np.float32), "chosen": numbers.random(rows) < 0.7}


def _expected(model: bytes) -> list[Outputs]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [session.run(None, _feeds(turn)) for turn in range(len(_ROWS))]


def _same(found: Outputs, wanted: Outputs) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


class _Failing:
    """The preloaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._library.failing_calls_count.restype = ctypes.c_long

    def arm(self, number: int, unmaps: bool) -> None:
        if not self._library.failing_calls_arm(_LIBRARY.encode(), ctypes.c_long(number), int(unmaps)):
            raise RuntimeError(f"{_LIBRARY} is not loaded")

    def disarm(self) -> int:
        self._library.failing_calls_disarm()
        return int(self._library.failing_calls_count())


def _use(model: bytes, failing: _Failing, number: int, unmaps: bool, planted: bool) -> tuple[int, str]:
    """Open a session and use it, with the call of that number failing; how many calls there were, and what came of it.

    Outputs are held on to for a while, so that some are freed while others run, and looked at again when they go.
    """
    wanted = _expected(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    held: list[tuple[int, Outputs]] = []
    outcome, session = "right", None
    failing.arm(number, unmaps)
    for turn in range(2 * len(_ROWS)):
        try:
            if session is None:
                session = onnxmem.InferenceSession(model, options, ["CPUExecutionProvider"], plan_seconds=0)
            held.append((turn, session.run(None, _feeds(turn % len(_ROWS)))))
            if turn % 5 == 4:
                session.trim()
        except Exception as error:
            assert str(error).strip() or isinstance(error, MemoryError), "an exception that says nothing"
            outcome = type(error).__name__
        while len(held) > 3:
            _look_at(*held.pop(turn % 2), wanted)
    calls = failing.disarm()
    assert session is not None, "the session could not be opened a second time"
    if planted and outcome != "right":
        turn, (first, *others) = held[0]
        held[0] = turn, [first + 1, *others]  # as if somebody else had been given its pages
    while held:
        _look_at(*held.pop(), wanted)
    gc.collect()
    for turn in range(len(_ROWS)):
        _look_at(turn, session.run(None, _feeds(turn)), wanted)
    return calls, outcome


def _look_at(turn: int, outputs: Outputs, wanted: list[Outputs]) -> None:
    assert _same(outputs, wanted[turn % len(wanted)]), f"run {turn} has the wrong outputs"


def _work(most: int, planted: bool) -> tuple[int, dict[str, int], list[str]]:
    """In the process with the library: how many calls failed, what came of them, and what should not have."""
    model, failing = parser.parse_model(_MODEL).SerializeToString(), _Failing()
    outcomes: Counter[str] = Counter()
    findings, done = [], 0
    for unmaps in (False, True):
        calls, _ = ask(partial(_use, model, failing, 0, unmaps, planted))
        for number in range(1, calls + 1, max(1, 2 * calls // most) if most else 1):
            done += 1
            try:
                _, outcome = ask(partial(_use, model, failing, number, unmaps, planted))
                outcomes[outcome] += 1
            except AssertionError as error:
                findings.append(f"call {number} of {calls}{', target unmapped' * unmaps}: {error}")
    return done, outcomes, findings


def run(most: int, planted: bool) -> tuple[int, list[str]]:
    """Let so many calls fail (0: all), in a process with the library preloaded: how many, and what was found."""
    library = build_library("failing_calls")
    command = [sys.executable, "-m", "campaigns.no_memory", str(most), *["planted"] * planted]
    done = subprocess.run(
        command, check=True, env=os.environ | {"LD_PRELOAD": str(library)}, stdout=subprocess.PIPE, text=True
    )
    faults, outcomes, findings = json.loads(done.stdout.splitlines()[-1])
    counts = ", ".join(f"{count} times {what}" for what, count in sorted(outcomes.items()))
    print(f"  {faults} calls failed, one at a time: {counts}", flush=True)
    return faults, findings


if __name__ == "__main__":
    print(json.dumps(_work(int(sys.argv[1]), "planted" in sys.argv)))
