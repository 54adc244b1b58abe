"""ONNX Runtime as installed is asked what its kernels take: a release that changes one of them is noticed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxmem.model.model import Model
from onnxmem.scratch.kernel import Scratch
from onnxmem.scratch.kernels import scratch_of
from onnxmem.session.planned.trace import OUTLIVES, Trace, record
from tests.helpers import model_of, session_options, start

CONTRIB = "com.microsoft"
BLOCK = 8  # the cases are the same for blocks of 16


@dataclass(frozen=True)
class Case:
    """A node, what it reads, and which of that are weights."""

    op: str
    inputs: Sequence[Any]
    weights: Sequence[int] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    domain: str = ""
    opset: int = 17

    @property
    def model(self) -> ModelProto:
        names = [f"x{place}" if value is not None else "" for place, value in enumerate(self.inputs)]
        node = helper.make_node(self.op, names, list(self.outputs), "node", domain=self.domain, **self.attributes)
        fed = {
            name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in self.feeds.items()
        }
        constants = {names[place]: self.inputs[place] for place in self.weights}
        return model_of([node], fed, [name for name in self.outputs if name], constants, opset=self.opset)

    @property
    def feeds(self) -> dict[str, Any]:
        return {
            f"x{place}": value
            for place, value in enumerate(self.inputs)
            if value is not None and place not in self.weights
        }


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


def bytes_of(*shape: int, dtype: Any = np.uint8) -> Any:
    return np.ones(shape, dtype)


def conv(data: Sequence[int], weights: Sequence[int], op: str = "Conv", **attributes: Any) -> Case:
    return Case(op, [floats(*data), floats(*weights)], [1], attributes)


def recurrent(op: str, gates: int, direction: str = "forward", outputs: Sequence[str] = ("y",), **more: Any) -> Case:
    ways = 2 if direction == "bidirectional" else 1
    weights = [floats(ways, gates * 32, 24), floats(ways, gates * 32, 32), floats(ways, 2 * gates * 32)]
    attributes = {"hidden_size": 32, "direction": direction, **more}
    return Case(op, [floats(7, 3, 24), *weights], [1, 2, 3], attributes, outputs)


def quantized_conv(data: Sequence[int], weights: Sequence[int], dtype: Any = np.uint8, **attributes: Any) -> Case:
    scale, zero = np.float32(0.1), np.uint8(3)
    inputs = [bytes_of(*data), scale, zero, bytes_of(*weights, dtype=dtype), scale, dtype(0), scale, zero]
    domain = CONTRIB if "channels_last" in attributes else ""
    return Case("QLinearConv", [np.asarray(value) for value in inputs], range(1, 8), attributes, domain=domain)


def heads(steps: int, seen: int, *more: Any, outputs: Sequence[str] = ("y",), **attributes: Any) -> Case:
    inputs = [floats(2, steps, 32), floats(2, seen, 32), floats(2, seen, 32), *more]
    return Case("MultiHeadAttention", inputs, [], {"num_heads": 4, **attributes}, outputs, CONTRIB)


def grouped(steps: int, past: int, **attributes: Any) -> Case:
    state = floats(1, 2, past, 16)
    lengths = [np.asarray([steps + past - 1], np.int32), np.asarray(steps + past, np.int32)]
    inputs = [floats(1, steps, 128), floats(1, steps, 32), floats(1, steps, 32), state, state, *lengths]
    how = {"num_heads": 8, "kv_num_heads": 2, **attributes}
    return Case("GroupQueryAttention", inputs, [], how, ("y", "key", "value"), CONTRIB)


def resized(mode: str, shape: Sequence[int], scales: Sequence[float], **attributes: Any) -> Case:
    inputs = [floats(*shape), None, np.asarray(scales, np.float32)]
    return Case("Resize", inputs, [2], {"mode": mode, **attributes}, opset=18)


def einsum(equation: str, *shapes: Sequence[int]) -> Case:
    return Case("Einsum", [floats(*shape) for shape in shapes], [], {"equation": equation})


CASES = {
    "conv": conv((1, 3, 32, 32), (16, 3, 3, 3)),
    "conv, one pixel": conv((1, 16, 32, 32), (16, 16, 1, 1)),
    "conv, one pixel, strides": conv((1, 16, 32, 32), (16, 16, 1, 1), strides=[2, 2]),
    "conv, many filters": conv((1, 256, 8, 8), (64, 256, 3, 3)),
    "conv, groups": conv((4, 16, 32, 32), (16, 4, 3, 3), group=4),
    "conv, whole width": conv((1, 1, 64, 64), (16, 1, 3, 64)),
    "conv, sound": conv((1, 16, 640), (16, 1, 31), group=16, pads=[15, 15]),
    "conv, volume": conv((1, 16, 10, 10, 10), (16, 16, 3, 3, 3)),
    "conv, four dimensions": conv((1, 16, 3, 8, 8, 4), (4, 16, 2, 2, 2, 2)),
    "transposed conv": conv((2, 16, 8, 8), (16, 2, 4, 4), "ConvTranspose", group=4, strides=[2, 2]),
    "lstm": recurrent("LSTM", 4),
    "lstm, both ways": recurrent("LSTM", 4, "bidirectional", ("y", "h", "c")),
    "gru, both ways": recurrent("GRU", 3, "bidirectional", ("y", "h")),
    "gru, late reset": recurrent("GRU", 3, linear_before_reset=1),
    "rnn, last only": recurrent("RNN", 1, "bidirectional", ("", "h")),
    "quantized conv": quantized_conv((1, 16, 32, 32), (24, 16, 3, 3)),
    "quantized conv, symmetric": quantized_conv((1, 16, 32, 32), (24, 16, 3, 3), np.int8),
    "quantized conv, depthwise": quantized_conv((2, 16, 32, 32), (16, 1, 3, 3), group=16),
    "quantized conv, channels last": quantized_conv((3, 16, 16, 16), (32, 16, 3, 3), np.int8, channels_last=1),
    "pool of bytes": Case("NhwcMaxPool", [bytes_of(1, 40, 40, 8)], [], {"kernel_shape": [2, 2]}, domain=CONTRIB),
    "integer conv": Case("ConvInteger", [bytes_of(1, 16, 32, 32), bytes_of(24, 8, 3, 3)], [1], {"group": 2}),
    "dynamic product": Case(
        "DynamicQuantizeMatMul",
        [floats(4, 64), bytes_of(64, 32), np.asarray(0.1, np.float32)],
        [1, 2],
        domain=CONTRIB,
    ),
    "dft, power of two": Case("DFT", [floats(1, 256, 1)], [], {"axis": 1}),
    "dft": Case("DFT", [floats(2, 250, 1)], [], {"axis": 1}),
    "stft": Case("STFT", [floats(1, 4000, 1), np.asarray(160), floats(400)], [1, 2]),
    "lrn": Case("LRN", [floats(2, 64, 8, 8)], [], {"size": 3}),
    "softmax": Case("Softmax", [floats(2, 30, 40)], [], {"axis": -1}),
    "softmax, inner axis": Case("Softmax", [floats(2, 30, 40)], [], {"axis": 1}),
    "softmax, old": Case("Softmax", [floats(2, 30, 40)], [], {"axis": 1}, opset=11),
    "where": Case("Where", [floats(3, 1) > 0, floats(1), floats(3, 10)]),
    "max of four": Case("Max", [floats(8, 1), floats(64), floats(1), floats(8, 64)]),
    "gelu with bias": Case("BiasGelu", [floats(8, 64), floats(64)], [1], domain=CONTRIB),
    "heads": heads(16, 24),
    "heads, bias": heads(16, 16, floats(96)),
    "heads, mask": heads(16, 16, None, np.ones((2, 16), np.int32)),
    "heads, one way": heads(16, 16, unidirectional=1),
    "heads, past": heads(1, 1, None, None, None, *[floats(2, 4, 15, 8)] * 2, outputs=("y", "key", "value")),
    "grouped, prompt": grouped(16, 0),
    "grouped, next word": grouped(1, 15),
    "grouped, capped": grouped(16, 0, softcap=5.0),
    "attention": Case("Attention", [floats(2, 4, 16, 8), floats(2, 4, 20, 8), floats(2, 4, 20, 8)], opset=23),
    "attention, causal": Case("Attention", [floats(2, 4, 9, 8)] * 3, [], {"is_causal": 1}, opset=23),
    "packed attention": Case(
        "Attention",
        [floats(2, 16, 32), floats(32, 96), floats(96), np.ones((2, 16), np.int32)],
        [1, 2],
        {"num_heads": 4},
        domain=CONTRIB,
    ),
    "resize, nearest": resized("nearest", (1, 3, 16, 20), (1, 1, 2, 2)),
    "resize, linear": resized("linear", (2, 3, 16, 20), (1, 1, 1.5, 2.5)),
    "resize, volume": resized("linear", (1, 1, 3, 16, 20), (1, 1, 2, 2, 2)),
    "resize, filtered": resized("cubic", (2, 3, 16, 20), (1, 1, 0.5, 0.5), antialias=1),
    "einsum": einsum("bhwc,hkc->bhwk", (2, 5, 6, 8), (5, 9, 8)),
    "einsum, ellipsis": einsum("...ij,...jk->...ik", (2, 3, 4, 5), (2, 3, 5, 6)),
    "einsum of three": einsum("ij,jk,kl->il", (4, 5), (5, 6), (6, 7)),
    "einsum, sum": einsum("bij->b", (2, 3, 4)),
    "product": Case("MatMul", [floats(2, 8, 64), floats(64, 32)], [1]),
    "mean": Case("ReduceMean", [floats(4, 5, 6, 7)], [], {"axes": [0, 2]}),
    "normalization": Case("InstanceNormalization", [floats(2, 8, 16, 16), floats(8), floats(8)], [1, 2]),
}


def recorded(case: Case, threads: int) -> tuple[Trace, dict[str, tuple[int, ...]]]:
    """What was asked for, and the shapes of the outputs."""
    options = session_options()
    options.intra_op_num_threads = threads
    model = case.model
    results = start(model, session_options()).run(None, case.feeds)
    shapes = {value.name: result.shape for value, result in zip(model.graph.output, results, strict=True)}
    return record(model.SerializeToString(), case.feeds, options), shapes


def predicted(case: Case, shapes: dict[str, tuple[int, ...]], threads: int) -> Scratch:
    graph = Model.of(case.model).graph({}, view="raw")
    known = {name: value.shape for name, value in case.feeds.items()} | shapes
    known |= {weight.name: tuple(weight.shape) for weight in graph.weights}
    dtypes = {name: tensor.dtype for name, tensor in graph.tensors.items()}
    dtypes |= {weight.name: weight.dtype for weight in graph.weights}
    weights = {weight.name for weight in graph.weights}
    (node,) = graph.nodes
    found = scratch_of(node, known.get, dtypes.get, weights.__contains__, threads, BLOCK, case.opset)
    assert isinstance(found, Scratch), found
    return found


def steps_of(trace: Trace) -> tuple[list[int], int]:
    """Bytes taken, and -n where the n-th buffer goes back, without outputs; and how many steps come before those."""
    events = []
    number = 0
    first_output = min(trace.lowers[trace.uppers == OUTLIVES])
    for size, lower, upper in zip(trace.sizes, trace.lowers, trace.uppers, strict=True):
        if upper != OUTLIVES:
            number += 1
            events += [(lower, int(size)), (upper, -number)]
    events.sort()
    return [step for _, step in events], sum(when < first_output for when, _ in events)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_kernel_takes_what_is_predicted(case: Case, threads: int) -> None:
    trace, shapes = recorded(case, threads)
    scratch = predicted(case, shapes, threads)
    steps, before = steps_of(trace)
    real = Scratch(tuple(steps), before)
    assert real.peak == scratch.peak
    # What is repeated is there once.
    assert set(real.buffers) == set(scratch.buffers)
    assert real.buffers[: len(scratch.buffers)] == scratch.buffers
    assert before == scratch.before


def test_an_output_that_nobody_reads_stays_until_the_end() -> None:
    """Nothing frees it before the run ends, however early its node ran."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], axis=0),
        helper.make_node("MatMul", ["a", "w"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["e"]),
        helper.make_node("ReduceSum", ["e"], ["y"]),
    ]
    model = model_of(nodes, {"x": [192, 64]}, ["y"], {"w": floats(64, 64)}, opset=13, dtype=TensorProto.FLOAT)
    trace = record(model.SerializeToString(), {"x": floats(192, 64)}, session_options())
    a, b, c, d = trace.uppers[:4]
    assert a < d < min(b, c)
