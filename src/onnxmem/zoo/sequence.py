"""Networks over sequences: a transformer encoder, an LSTM, and the plain chain of MatMuls."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from onnxmem.errors import UsageError
from onnxmem.zoo.net import Net, network


@network
def transformer(
    net: Net, *, layers: int = 6, width: int = 384, heads: int = 12, vocabulary: int = 30522, positions: int = 512
) -> None:
    """Transformer encoder of the size of MiniLM; 23 M weights."""
    if width % heads:
        raise UsageError(f"a width of {width} cannot be divided among {heads} heads")
    tokens = net.input("tokens", ("batch", "sequence"), TensorProto.INT64)
    mask = net.input("mask", ("batch", "sequence"), TensorProto.INT64)
    with net.scope("embed"):
        words = net.op("Gather", net.weight("embed/words", (vocabulary, width), 3, gain=1), tokens)
        length = net.op("Shape", tokens, start=1, end=2)
        table = net.weight("embed/positions", (positions, width), 3, gain=1)
        places = net.op("Slice", table, net.constant([0]), length, net.constant([0]))
        x = _norm(net, net.op("Add", words, places), width)
        # 0 where the mask is 1, a large negative number where it is 0; added to the scores of every head.
        absent = net.op("Sub", net.constant(1, np.float32), net.op("Cast", mask, to=TensorProto.FLOAT))
        penalty = net.op("Mul", absent, net.constant(-1e9, np.float32))
        penalty = net.op("Unsqueeze", penalty, net.constant([1, 2]))
    for layer in range(1, layers + 1):
        with net.scope(f"layer{layer}"):
            x = _norm(net, net.op("Add", x, _attention(net, x, penalty, width, heads)), width)
            hidden = _gelu(net, net.linear(x, 4 * width, width))
            x = _norm(net, net.op("Add", x, net.linear(hidden, width, 4 * width)), width)
    net.output(x, "last_hidden_state", ("batch", "sequence", width))


def _attention(net: Net, x: str, penalty: str, width: int, heads: int) -> str:
    def split(*perm: int) -> str:
        return net.transpose(net.reshape(net.linear(x, width, width), [0, 0, heads, width // heads]), *perm)

    query, key, value = split(0, 2, 1, 3), split(0, 2, 3, 1), split(0, 2, 1, 3)
    scores = net.op("Div", net.op("MatMul", query, key), net.constant(math.sqrt(width // heads), np.float32))
    weights = net.op("Softmax", net.op("Add", scores, penalty), axis=-1)
    joined = net.reshape(net.transpose(net.op("MatMul", weights, value), 0, 2, 1, 3), [0, 0, width])
    return net.linear(joined, width, width)


def _gelu(net: Net, x: str) -> str:
    spread = net.op("Erf", net.op("Div", x, net.constant(math.sqrt(2), np.float32)))
    grown = net.op("Mul", x, net.op("Add", spread, net.constant(1, np.float32)))
    return net.op("Mul", grown, net.constant(0.5, np.float32))


def _norm(net: Net, x: str, width: int) -> str:
    scale, shift = net.constant(np.ones(width), np.float32), net.constant(np.zeros(width), np.float32)
    return net.op("LayerNormalization", x, scale, shift, axis=-1)


@network
def lstm(net: Net, *, layers: int = 2, features: int = 80, hidden: int = 256, classes: int = 64) -> None:
    """LSTM that labels each step of a sequence, 2.3 M weights."""
    x = net.transpose(net.input("features", ("batch", "sequence", features)), 1, 0, 2)
    width = features
    for layer in range(1, layers + 1):
        with net.scope(f"layer{layer}"):
            x, width = _bidirectional(net, x, width, hidden, f"layer{layer}"), 2 * hidden
    x = net.linear(net.transpose(x, 1, 0, 2), classes, width)
    net.output(x, "logits", ("batch", "sequence", classes))


def _bidirectional(net: Net, x: str, width: int, hidden: int, name: str) -> str:
    inward = net.weight(f"{name}/inward", (2, 4 * hidden, width), width, gain=1)
    recurrent = net.weight(f"{name}/recurrent", (2, 4 * hidden, hidden), hidden, gain=1)
    bias = net.weight(f"{name}/bias", (2, 8 * hidden), hidden, gain=1)
    y = net.op("LSTM", x, inward, recurrent, bias, hidden_size=hidden, direction="bidirectional")
    # sequence, direction, batch, hidden → sequence, batch, both directions side by side
    return net.reshape(net.transpose(y, 0, 2, 1, 3), [0, 0, 2 * hidden])


@network
def matmul(net: Net, *, layers: int = 28, width: int = 2048) -> None:
    """A chain of square MatMuls: nothing but weights, 448 MiB of them."""
    x = net.input("x", ("batch", width))
    for layer in range(1, layers + 1):
        x = net.op("MatMul", x, net.weight(f"weight_{layer}", (width, width), width, gain=1))
    net.output(x, "y", ("batch", width))
