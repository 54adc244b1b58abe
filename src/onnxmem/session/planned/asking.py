"""Does a kernel give the same bits when its output lies where its input does? Asked of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmem._native import arena as native
from onnxmem.session.options import silent
from onnxmem.session.planned import bridge
from onnxmem.session.planned.pairs import Question
from onnxmem.session.planned.rules import PROMISED
from onnxmem.session.planned.tiny import tiny_model
from onnxmem.session.planned.trace import OUTLIVES, Trace

_DTYPES = {"float": "f4", "double": "f8", "float16": "f2", "bool": "?", "int8": "i1", "uint8": "u1", "int32": "i4",
           "int64": "i8"}  # fmt: skip
_CONTRIB = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "BiasGelu", "QuickGelu")
_OPSETS = {"RMSNormalization": 23, "Gelu": 20}
# Lengths: around vectors and the blocks that kernels work in; and enough for every thread to get its part.
_LENGTHS = (1, 2, 3, 7, 8, 15, 17, 33, 64, 1023, 4097, 160_001)
# Of two routines, the wrong one shall not be taken for the right one.
_MORE_LENGTHS = {"Gelu": range(1, 140), "QuickGelu": range(1, 140)}
_SIZES = ((1, 1, 1), (2, 3, 5), (3, 7, 33), (5, 16, 64), (13, 101, 127))
_RANK = 3


def ask(put: Question, threads: int) -> list[int]:
    """The inputs that the output may be written over."""
    whole = [k for k in PROMISED[put.op] if k < len(put.forms) and set(put.forms[k]) == {"1"}]
    if put.forms[0] in ("channels", "full"):
        whole = [k for k in PROMISED[put.op] if k < len(put.forms) and put.forms[k] != "row"]
    alone = [k for k in whole if _same(put, threads, [k])]
    # One tensor may be both inputs; then its place is that of both.
    return alone if len(alone) < 2 or _same(put, threads, alone) else []


def _shapes(put: Question) -> list[list[tuple[int, ...]]]:
    """Shapes of inputs that ask what was meant, for one run after the other."""
    if put.forms == ("channels",):
        vectors = 4 if put.op == "BatchNormalization" else 2
        return [[size, *[(size[1],)] * vectors] for size in _SIZES]
    if put.forms[0] in ("full", "row"):
        rows = [(3, length) for length in _LENGTHS if length < _LENGTHS[-1]] + [(151, 1061)]
        return [[size if form == "full" else size[-1:] for form in put.forms] for size in rows]
    axes = len(put.forms[0])
    if axes == 1:
        fulls: list[tuple[int, ...]] = [(length,) for length in (*_MORE_LENGTHS.get(put.op, ()), *_LENGTHS)]
    else:
        fulls = [size[_RANK - axes :] if axes <= _RANK else (*(2,) * (axes - _RANK), *size) for size in _SIZES]
        fulls += [(*(2,) * (axes - 2), 151, 531)]
    return [
        [tuple(dim if there == "1" else 1 for dim, there in zip(full, form, strict=True)) for form in put.forms]
        for full in fulls
    ]


def _same(put: Question, threads: int, dying: Sequence[int]) -> bool:
    """Whether runs with the output over these inputs, which are one tensor, are the same as those with it beside."""
    types = [put.dtype] * (len(_shapes(put)[0]))
    if put.op == "Where":
        types[0] = "bool"
    session = _session(put, types, dying, threads)
    pool = native.Pool(1, False, False)
    for run, shapes in enumerate(_shapes(put)):
        feeds = {f"x{k}": _numbers(shape, types[k], 7 * run + k) for k, shape in enumerate(shapes)
                 if k == dying[0] or k not in dying}  # fmt: skip
        native.begin_record(limited=False)
        apart = None
        try:
            apart = session.run(None, feeds)
        finally:
            recorded = native.end_run()
        tape = _shared(Trace.recorded(recorded)) if isinstance(recorded, native.Recorded) else None
        if tape is None:
            return False
        native.begin_replay(tape, pool)
        try:
            together = session.run(None, feeds)
        finally:
            replayed = native.end_run()
        if not isinstance(replayed, native.Replayed) or replayed.deviation is not None:
            return False
        if apart[0].tobytes() != together[0].tobytes():
            return False
    return True


def _session(put: Question, types: Sequence[str], dying: Sequence[int], threads: int) -> Any:
    import onnxruntime  # noqa: PLC0415

    attributes: dict[str, float] = {}
    if put.op == "Mod" and put.dtype in ("float", "float16", "double"):
        attributes = {"fmod": 1}
    if put.op == "QuickGelu":
        attributes = {"alpha": 1.0}
    opset = _OPSETS.get(put.op, 17)
    model = tiny_model(put.op, types, dying, attributes=attributes, contrib=put.op in _CONTRIB, opset=opset)
    options = silent(onnxruntime.SessionOptions())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.use_env_allocators", "1")
    with bridge.enlisted():
        return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def _shared(trace: Trace) -> native.Tape | None:
    """Everything at a place of its own, but what the node makes, which lies over what dies in it; None if it cannot."""
    sizes, lowers, uppers = trace.columns
    if len(trace) < 3 or uppers[0] == OUTLIVES:
        return None
    made = np.flatnonzero((sizes == sizes[0]) & (lowers > lowers[0]) & (lowers < uppers[0]) & (uppers > uppers[0]))
    if len(made) != 1:
        return None
    offsets, over = np.full(len(trace), -1, np.int64), np.full(len(trace), -1, np.int64)
    ends = np.cumsum(trace.padded())
    offsets[trace.inside] = (ends - trace.padded())[trace.inside]
    offsets[made[0]], over[made[0]] = offsets[0], 0
    return native.Tape(sizes, lowers, uppers, offsets, 0, False, over)


def _numbers(shape: tuple[int, ...], dtype: str, seed: int) -> npt.NDArray[Any]:
    """Numbers as good as random between 0.1 and 1.9, or 1 and 19; without the module for them, which takes a MiB."""
    count = int(np.prod(shape))
    mixed = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761 + 2 * seed)) >> np.uint64(7)
    parts = (mixed & np.uint64(0xFFFF)).astype(np.float32) / np.float32(65536)
    if dtype == "bool":
        return (parts < 0.5).reshape(shape)
    numbers = parts * 1.8 + 0.1 if _DTYPES[dtype].startswith("f") else parts * 18 + 1
    return numbers.astype(_DTYPES[dtype]).reshape(shape)
