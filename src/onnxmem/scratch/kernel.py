"""What a kernel's formula is given, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from onnxmem.model.graph import Node

_Value = TypeVar("_Value")

_WIDTHS = {"int64": 8, "uint64": 8, "float64": 8, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2}
_BYTE_WIDE = ("int8", "uint8", "bool")


@dataclass(frozen=True)
class Scratch:
    """What a kernel takes beside its outputs while it runs, in the order in which it does.

    What it does again and again (a transform per frame) is there once: the same memory serves each time.
    """

    steps: tuple[int, ...] = ()
    """A positive number takes so many bytes; -n gives back the n-th buffer taken. What is left goes back at the end."""
    before: int = 0
    """How many of the steps come before the outputs are allocated."""
    reserved: int = 0
    """Bytes taken past any arena, straight from the system, and given back at the end."""

    @property
    def buffers(self) -> tuple[int, ...]:
        """The bytes of each buffer taken."""
        return tuple(step for step in self.steps if step > 0)

    @property
    def peak(self) -> int:
        """The most bytes that it holds at once."""
        taken, held, most = self.buffers, 0, 0
        for step in self.steps:
            held += step if step > 0 else -taken[-step - 1]
            most = max(most, held)
        return most


NOTHING = Scratch()


def taking(sizes: Iterable[int]) -> Scratch:
    """Buffers that all live until the kernel ends; ONNX Runtime asks for nothing where a size is 0."""
    return Scratch(tuple(size for size in sizes if size > 0))


class ShapeUnknown(Exception):
    """A formula needs a shape that nobody knows."""


@dataclass(frozen=True)
class Kernel:
    """A node and all that its scratch can depend on."""

    node: Node
    shapes: Callable[[str], tuple[int, ...] | None]
    """The shape of a tensor or weight."""
    dtypes: Callable[[str], str | None]
    constant: Callable[[str], bool]
    """Is it a weight?"""
    threads: int
    block: int
    """Channels in a block of NCHWc."""
    opset: int
    """Which version of ONNX's operators the model uses."""

    def has_input(self, place: int) -> bool:
        """Is there an input at this place?"""
        return place < len(self.node.inputs) and bool(self.node.inputs[place])

    def has_output(self, place: int) -> bool:
        """Is there an output at this place?"""
        return place < len(self.node.outputs) and bool(self.node.outputs[place])

    def is_constant(self, place: int) -> bool:
        """Is the input at this place a weight?"""
        return self.has_input(place) and self.constant(self.node.inputs[place])

    def input(self, place: int) -> tuple[int, ...]:
        """The shape of an input."""
        return self._shape(self.node.inputs[place] if self.has_input(place) else "")

    def output(self, place: int = 0) -> tuple[int, ...]:
        """The shape of an output."""
        return self._shape(self.node.outputs[place] if self.has_output(place) else "")

    def dtype(self, place: int) -> str:
        """The element type of an input; float32 where nobody knows, as most are."""
        return (self.dtypes(self.node.inputs[place]) if self.has_input(place) else None) or "float32"

    def width(self, place: int) -> int:
        """Bytes of one element of an input."""
        return _width(self.dtype(place))

    def output_width(self, place: int) -> int:
        """Bytes of one element of an output."""
        return _width((self.dtypes(self.node.outputs[place]) if self.has_output(place) else None) or "float32")

    def attribute(self, name: str, default: _Value) -> _Value:
        """An attribute of the node."""
        value: Any = self.node.attributes.get(name, default)
        return cast(_Value, value.decode() if isinstance(value, bytes) else value)

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = self.shapes(name) if name else None
        if shape is None:
            raise ShapeUnknown(f"the shape of {name or 'an input that is not there'} is not known")
        return shape


def elements(shape: Iterable[int]) -> int:
    """How many elements a shape has."""
    return math.prod(shape)


def _width(dtype: str) -> int:
    return 1 if dtype in _BYTE_WIDE else _WIDTHS.get(dtype, 4)
