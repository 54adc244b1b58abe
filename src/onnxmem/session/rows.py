"""Where do the outputs of a batch go that is run in parts? Into arrays for all rows, without a copy if possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxmem.rewriting.batch import ROWS, Batch

Array = np.ndarray[Any, Any]

_ALIGNED = 64
_TYPES = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Some rows of a batch."""

    start: int
    rows: int


class Outputs:
    """Arrays for all rows. Where the shapes are known before and rows lie one after the other, runs write into them."""

    def __init__(self, session: Any, batch: Batch, names: list[str], dims: Mapping[str, int]) -> None:
        self._asked, self._batch, self._rows = names, batch, dims[ROWS]
        self.names = list(dict.fromkeys(names))
        """Each once, as a binding has them: who asks twice is given the same array twice."""
        declared = {each.name: each for each in session.get_outputs()}
        shapes = batch.made_shapes(dims)
        self._arrays: dict[str, Array] = {}
        self._written: set[str] = set()
        """The outputs that runs write into their rows."""
        for name in self.names:
            dtype, axis = array_type(declared[name].type), batch.outputs[name]
            if dtype is not None and axis is not None and name in shapes:
                self._arrays[name] = _aligned_array(shapes[name], dtype)
                if axis == 0 and _agree(declared[name].shape, shapes[name]):
                    self._written.add(name)
        self._collected: dict[str, list[tuple[Part, Any]]] = {name: [] for name in self.names}

    @property
    def bytes(self) -> int:
        """What all of them take; those of unknown shape as much for each row as for the rows that there are."""
        parts = [each for found in self._collected.values() for each in found]
        collected = sum(array.nbytes * self._rows // part.rows for part, array in parts[:1])
        return int(sum(array.nbytes for array in self._arrays.values()) + collected)

    def bind(self, binding: Any, part: Part) -> None:
        for name in self.names:
            if name in self._written:
                rows = self._arrays[name][along(0, self._scaled(name, part))]
                binding.bind_output(name, "cpu", 0, rows.dtype.type, rows.shape, rows.ctypes.data)
            else:
                binding.bind_output(name)

    def take(self, binding: Any, part: Part) -> None:
        for name, value in zip(self.names, binding.get_outputs(), strict=True):
            if name in self._arrays:
                axis = self._batch.outputs[name] or 0
                rows = self._arrays[name][along(axis, self._scaled(name, part))]
                # An output that is an input of the model, is not written anywhere: what comes is that input.
                if name not in self._written or value.data_ptr() != rows.ctypes.data:
                    rows[...] = value.numpy()
            else:
                self._collected[name].append((part, value.numpy()))

    def finished(self) -> list[Any]:
        made = {name: self._arrays[name] if name in self._arrays else self._joined(name) for name in self.names}
        return [made[name] for name in self._asked]

    def _joined(self, name: str) -> Any:
        """Of what came in arrays of its own: the first one if all are the same, otherwise one after the other."""
        axis, parts = self._batch.outputs[name], self._collected[name]
        if axis is None:
            return parts[0][1]
        rows, done = [], 0
        for part, array in parts:
            each = array.shape[axis] // part.rows
            rows.append(np.take(array, range((done - part.start) * each, array.shape[axis]), axis))
            done = part.start + part.rows
        return np.concatenate(rows, axis)

    def _scaled(self, name: str, part: Part) -> Part:
        """The same part of an axis that has several entries for each row."""
        each = self._arrays[name].shape[self._batch.outputs[name] or 0] // self._rows
        return Part(part.start * each, part.rows * each)


def _agree(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    """Whether ONNX Runtime takes rows of this shape for an output: it goes by what the file says, right or wrong."""
    known = [(each, dim) for each, dim in zip(declared, shape, strict=False) if isinstance(each, int)]
    return not declared or (not isinstance(declared[0], int) and all(each == dim for each, dim in known))


def along(axis: int, part: Part) -> tuple[slice, ...]:
    """The index of a part of an axis."""
    return (*[slice(None)] * axis, slice(part.start, part.start + part.rows))


def _aligned_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """As ONNX Runtime would allocate it: some kernels compute the first elements differently at odd addresses."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(count + _ALIGNED, np.uint8)
    first = -memory.ctypes.data % _ALIGNED
    aligned: Array = memory[first : first + count].view(dtype).reshape(shape)
    return aligned


def array_type(text: str) -> Any:
    """NumPy's type for ONNX Runtime's `tensor(float)`; None for what is not a tensor of numbers."""
    return _TYPES.get(text.removeprefix("tensor(").removesuffix(")")) if text.startswith("tensor(") else None
