"""What must be known of a model's file to share places: a profile names operators, but not where they come from.

An operator of another library may be called Add and be anything. So nothing is shared in a model that imports a domain
which is not known here, unless the model defines it itself: its functions become operators that are. QuickGelu may
write over its input only where its factor is 1; ONNX Runtime makes it of x·sigmoid(factor·x). And Gelu may only where
it is not approximated by tanh: that routine reads its input twice on every processor.

Read by hand: `onnx` takes 10 MiB, and a model without its weights is small.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import NamedTuple, TypeVar

_KNOWN = {
    b"", b"ai.onnx", b"ai.onnx.ml", b"ai.onnx.preview", b"ai.onnx.preview.training", b"ai.onnx.training",
    b"com.microsoft", b"com.microsoft.nchwc", b"com.microsoft.experimental", b"com.ms.internal.nhwc",
    b"org.pytorch.aten",
}  # fmt: skip
# Numbers of fields: of ModelProto, OperatorSetIdProto, FunctionProto; of GraphProto, NodeProto; of AttributeProto.
_GRAPH, _OPSETS, _FUNCTIONS, _DOMAIN, _FUNCTION_NODES, _FUNCTION_DOMAIN = 7, 8, 25, 1, 7, 10
_NODES, _WEIGHTS, _INPUTS, _OUTPUTS, _OPERATOR, _ATTRIBUTES = 1, 5, 1, 2, 4, 5
# Tags of TensorProto's dimensions, one by one and all together, which come first.
_DIM, _DIMS, _HEAD, _MATRIX = 1 << 3, 1 << 3 | 2, 48, 2
_NAME, _FLOAT = 1, 2
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}
_LONGEST = 20
"""A tag and a length take no more bytes."""
_WINDOW = 4096
"""So much is read at once: most fields are small, and the next one is in it, too."""
_LAST, _TAG = 0x80, 2**32 - 1
_LARGE = 1 << 16
_ORT = b"ORTM"
*_LOOPS, _CONVOLUTION = [bytes([_OPERATOR << 3 | _BYTES, len(name)]) + name for name in (b"Loop", b"Scan", b"Conv")]
_SIGMOID, _QUICK_GELU = b"Sigmoid", b"QuickGelu"
_TANH = bytes([4 << 3 | _BYTES, 4]) + b"tanh"
"""As the value of an attribute, of Gelu or of a function that hands it on."""
_NO_FACTOR = {
    b"Conv", b"ConvTranspose", b"BatchNormalization", b"InstanceNormalization", b"LayerNormalization", b"Add", b"Sub",
    b"Concat", b"Split", b"Slice", b"Gemm", b"MatMul", b"MaxPool", b"AveragePool", b"GlobalAveragePool", b"ReduceMean",
    b"Relu", b"Resize",
}  # fmt: skip
"""What makes the input of a sigmoid without a factor: not Mul, and nothing that may vanish and leave a Mul there."""

Read = Callable[[int, int], bytes]
Field = tuple[int, int, int]
T = TypeVar("T")


# What a profile takes per node, and looking for pairs besides; how many times the inputs a run takes; and what part of
# it all that may.
_PER_NODE, _SEARCH, _TIMES, _PART = 3500, 400_000, 32, 0.05
_PICTURE = 3


class Source(NamedTuple):
    """What is certain about a model. Of an .ort file, and of one that cannot be read, nothing is."""

    own_operators: bool = False
    """All of its operators are ONNX Runtime's own."""
    plain_silu: bool = False
    """All that become QuickGelu have a factor of 1."""
    plain_gelu: bool = False
    """None is approximated by tanh."""
    nodes: int = 0
    """How many there are before ONNX Runtime optimizes them."""
    width: int = 0
    """The largest matrix among the weights has no less rows, nor columns."""
    loops: bool = False
    """Some of its nodes may run any number of times, and each time is in a profile."""
    blocked: bool = False
    """ONNX Runtime may put blocked layouts and what converts them into it, in an order that depends on addresses."""

    def worth_a_profile(self, shapes: Iterable[Sequence[int]]) -> bool:
        """Whether a run on inputs of these shapes is likely to take much more than the profile of it does.

        A guess, and no more than memory depends on it: a picture's or a sound's tensors are some times as large as it
        is, and of a row of tokens each one is as wide as the weights are.
        """
        most = max((prod(shape) * (4 if len(shape) >= _PICTURE else self.width) for shape in shapes), default=0)
        cost = _SEARCH + self.nodes * _PER_NODE
        return self.own_operators and not self.loops and cost <= most * _TIMES * _PART


def look_at(model: str | bytes | os.PathLike[str]) -> Source:
    """Look at a model's file, or at its bytes."""
    return read_with(_look, model) or Source()


def read_with(reader: Callable[[Read, int], T], model: str | bytes | os.PathLike[str]) -> T | None:
    """What a reader finds in a model's file, or in its bytes; None if it is an .ort file, or cannot be read."""
    with suppress(OSError, ValueError, IndexError, struct.error):
        if isinstance(model, bytes):
            return None if model[4:8] == _ORT else reader(lambda start, end: model[start:end], len(model))
        if os.fspath(model).endswith(".ort"):
            return None
        with open(model, "rb", buffering=0) as file:  # noqa: PTH123  sessions do without pathlib, which is large
            # Not by mapping it: pages that are looked at would count as memory.
            size = os.fstat(file.fileno()).st_size
            return reader(lambda start, end: os.pread(file.fileno(), end - start, start), size)
    return None


def _look(read: Read, size: int) -> Source:
    imported, defined, plain, exact, loops = set(), set(), True, True, False
    nodes = width = convolutions = 0
    for number, start, end in fields(read, 0, size):
        if number == _OPSETS:
            imported.add(_text(read, start, end, _DOMAIN))
        elif number == _FUNCTIONS:
            defined.add(_text(read, start, end, _FUNCTION_DOMAIN))
            plain = plain and _plain_silu(read, start, end, _FUNCTION_NODES, inner=True)
            content = read(start, end)
            loops, convolutions = loops or _loops(content), convolutions + content.count(_CONVOLUTION)
            exact = exact and _TANH not in content
        elif number == _GRAPH:
            plain = plain and _plain_silu(read, start, end, _NODES, inner=False)
            for inner, first, last in fields(read, start, end):
                if inner == _NODES:
                    content = read(first, min(first + _LARGE, last))
                    nodes, convolutions = nodes + 1, convolutions + content.count(_CONVOLUTION)
                    loops = loops or _loops(content)
                    # Of a large node only the beginning was read, and all but a constant may have others inside.
                    whole = last - first <= _LARGE or _text(read, first, last, _OPERATOR) == b"Constant"
                    exact = exact and whole and _TANH not in content
                width = max(width, _width(read(first, min(first + _HEAD, last)))) if inner == _WEIGHTS else width
    own = bool(imported) and imported <= _KNOWN | defined
    return Source(own, own and plain, own and exact, nodes, width, loops, convolutions > 1)


def _loops(nodes: bytes) -> bool:
    """Whether there is a loop among nodes, or in a branch of one; their operator comes before what is inside of it."""
    return any(operator in nodes for operator in _LOOPS)


def _width(tensor: bytes) -> int:
    """The smaller side of a matrix, by the beginning of a tensor; 0 if it is none."""
    dims: list[int] = []
    position = 0
    while position < len(tensor) and tensor[position] in (_DIM, _DIMS):
        kind, position = tensor[position], position + 1
        value, position = _number(tensor, position)
        if kind == _DIM:
            dims.append(value)
            continue
        end = position + value
        while position < end:
            value, position = _number(tensor, position)
            dims.append(value)
    return min(dims) if len(dims) == _MATRIX else 0


def _plain_silu(read: Read, start: int, end: int, nodes: int, *, inner: bool) -> bool:
    """Whether no sigmoid of a graph has a factor before it. In functions and branches, there must be none at all."""
    made: dict[bytes, bytes] = {}
    read_by_sigmoid = []
    # A large one is a constant.
    places = [(a, b) for number, a, b in fields(read, start, end) if number == nodes and b - a <= _LARGE]
    if not any(_SIGMOID in (content := read(*place)) or _QUICK_GELU in content for place in places):
        return True
    for place in places:
        content = read(*place)
        parts = list(fields(lambda a, b, content=content: content[a:b], 0, len(content)))  # type: ignore[misc]
        texts = [(field, content[a:b]) for field, a, b in parts if field in (_INPUTS, _OUTPUTS, _OPERATOR)]
        operator = next((text for field, text in texts if field == _OPERATOR), b"")
        attributes = [content[a:b] for field, a, b in parts if field == _ATTRIBUTES]
        if operator == _QUICK_GELU and _factor(attributes) != 1.0:
            return False
        if operator == _SIGMOID:
            if inner:
                return False
            read_by_sigmoid += [text for field, text in texts if field == _INPUTS]
        if any(_SIGMOID in attribute or _QUICK_GELU in attribute for attribute in attributes):
            return False  # in a branch, or close enough
        made |= {text: operator for field, text in texts if field == _OUTPUTS}
    return all(made.get(name, b"") in _NO_FACTOR for name in read_by_sigmoid)


def _factor(attributes: list[bytes]) -> float:
    for attribute in attributes:
        found = {field: attribute[a:b] for field, a, b in fields(lambda a, b: attribute[a:b], 0, len(attribute))}  # noqa: B023
        if found.get(_NAME) == b"alpha" and _FLOAT in found:
            value: float = struct.unpack("<f", found[_FLOAT])[0]
            return value
    return float("nan")


def _text(read: Read, start: int, end: int, wanted: int) -> bytes:
    return next((read(first, last) for number, first, last in fields(read, start, end) if number == wanted), b"")


def fields(read: Read, start: int, end: int) -> Iterator[Field]:
    """For each field of a message its number, and where its content begins and ends."""
    window, at = b"", start
    while start < end:
        if start + _LONGEST > at + len(window) < end:
            window, at = read(start, min(start + _WINDOW, end)), start
        tag, position = _number(window, start - at)
        wire, size = tag & 7, 0
        if wire == _VARINT:
            _, position = _number(window, position)
        elif wire == _BYTES:
            size, position = _number(window, position)
        else:
            size = _FIXED.get(wire, end)
        start = at + position
        if start + size > end:
            raise ValueError("a field ends after its message")
        # Of a longer tag protobuf may drop what 32 bits do not hold: a field is not to have another number there.
        yield (tag & _TAG) >> 3, start, start + size
        start += size


def _number(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & ~_LAST) << shift
        if byte < _LAST:
            return value, position
        shift += 7
