"""Small models that between them have everything a reader has to know."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from onnx import ModelProto, numpy_helper, parser

KEPT = "ONNXMEM_CAMPAIGN_FOLDER"
"""Names the folder for good files that take long to make: the workers of a campaign have one together."""

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
_TEXTS = (
    """convolutions (float[batch, 3, height, width] x) => (float[batch, 4, h, w] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w0)
        b = Relu(a)
        c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
        d = Conv <pads = [1, 1, 1, 1], group = 4> (c, w1)
        e = BatchNormalization(d, v4, v4, v4, u4)
        y = Add(e, c)
    }""",
    """attention (int64[batch, length] tokens, float[batch, 1, 1, length] mask) => (float[batch, length, 8] y) {
        x = Gather(table, tokens)
        q = MatMul(x, m0)
        k = MatMul(x, m1)
        t = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul(q, t)
        axis = Constant <value_ints = [1]> ()
        four = Unsqueeze(s, axis)
        n = Add(four, mask)
        p = Softmax <axis = -1> (n)
        three = Squeeze(p, axis)
        y = MatMul(three, x)
    }""",
    """shapes (float[n, 4] x) => (float[m, k] y, int64[2] z) {
        z = Shape(x)
        zero = Constant <value_int = 0> ()
        rows = Gather(z, zero)
        two = Constant <value_ints = [2, -1]> ()
        r = Reshape(x, two)
        starts = Constant <value_ints = [0]> ()
        ends = Constant <value_ints = [9223372036854775807]> ()
        s = Slice(r, starts, ends)
        a, b = Split <axis = 1> (s)
        y = Concat <axis = 0> (a, b)
    }""",
    """branches (float[n, 4] x, bool c) => (float[n, 4] y) {
        y = If (c) <then_branch = yes () => (float[n, 4] t) { t = Relu(x) },
                    else_branch = no () => (float[n, 4] e) { e = Neg(x) }>
    }""",
    """loops (float[4] x, int64 count) => (float[4] y) {
        go = Constant <value = bool {1}> ()
        y = Loop (count, go, x) <body = step (int64 i, bool c, float[4] s) => (bool on, float[4] next) {
            on = Identity(c)
            next = Add(s, s)
        }>
    }""",
    """recurrent (float[length, batch, 4] x) => (float[length, 1, batch, 3] y) {
        y, h, c = LSTM <hidden_size = 3> (x, lw, lr)
    }""",
)
_FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    functions (float[n, 4] x) => (float[n, 4] y) { y = local.twice(x) }
    <domain: "local", opset_import: ["" : 17]>
    twice (a) => (b) { c = Add(a, a)
        b = Relu(c) }"""
_WEIGHTS = {
    "w0": (4, 3, 3, 3), "w1": (4, 1, 3, 3), "v4": (4,), "u4": (4,), "table": (16, 8), "m0": (8, 8), "m1": (8, 8),
    "lw": (1, 12, 4), "lr": (1, 12, 3),
}  # fmt: skip


def models() -> list[ModelProto]:
    """The same every time."""
    found = [parser.parse_model(_HEAD + text) for text in _TEXTS] + [parser.parse_model(_FUNCTIONS)]
    for model in found:
        read = {name for node in model.graph.node for name in node.input}
        for name, shape in _WEIGHTS.items():
            if name in read:
                array = np.random.default_rng(0).random(shape, np.float32)
                model.graph.initializer.append(numpy_helper.from_array(array, name))
    return found


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """One for this process."""
    return tempfile.TemporaryDirectory()


def kept(name: str, make: Callable[[Path], object]) -> Path:
    """A good file or folder, which `make` writes if no worker has yet."""
    place = Path(os.environ.get(KEPT) or folder().name)
    path = place / name
    if not path.exists():
        unfinished = place / f"{os.getpid()}-{name}"
        make(unfinished)
        unfinished.rename(path)
    return path


def saved(name: str, number: int) -> Path:
    """One of the models in a file."""
    return kept(name, lambda path: path.write_bytes(models()[number].SerializeToString()))
