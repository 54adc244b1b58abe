"""What a model is fed: the caller's arrays, or generated ones that fit each input's type, shape and range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onnxmem.documents import Record
from onnxmem.errors import UsageError
from onnxmem.measurement.protocol import SavedFeeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Input, Signature
from onnxmem.model.bindings import bind, default_dimensions
from onnxmem.model.comparing import substitute
from onnxmem.model.feeds_file import look_at_feeds, read_feed, with_given_shapes
from onnxmem.units import format_bytes

Array = npt.NDArray[Any]

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Of arrays that are larger, NumPy says other things than that there is no memory.
_ADDRESSABLE = 2**47
GENERATED = (*_FLOATS, *_INTEGERS, "bool", "string")
"""Types that inputs can be generated for."""


class ArrayType(NamedTuple):
    """An array without its numbers."""

    dtype: str
    shape: tuple[int, ...]


class Dims(NamedTuple):
    """The open dimensions of a model."""

    given: Mapping[str, int]
    """Those the caller decided."""
    assumed: Mapping[str, int]
    """Those the caller left open, and the numbers used for them."""


@dataclass(frozen=True, kw_only=True)
class Fed(Record):
    """What a model was fed, in words: the arrays themselves may be large."""

    inputs: Mapping[str, ArrayType]
    dims: Dims
    generated: Mapping[str, str]
    """What generated inputs hold; empty if the caller gave the arrays."""

    @property
    def assumptions(self) -> str:
        """What was made up and may be why the model fails, and what to give instead; empty if nothing was."""
        if not self.generated:
            return ""
        parts, options = ["its inputs were generated"], []
        if self.dims.assumed:
            listed = ", ".join(f"{name}={number}" for name, number in self.dims.assumed.items())
            parts.append(f"and of their dimensions these were assumed: {listed}")
            sized = [(name, "x".join(map(str, array.shape))) for name, array in self.inputs.items() if array.shape]
            shapes = " ".join(f"--shape {name}={shape}" for name, shape in sized[:3])
            options.append(f"{shapes} with the numbers it expects (an LSTM's state follows its batch)")
        scalar = next((n for n, a in self.inputs.items() if not a.shape and a.dtype in _INTEGERS), None)
        if scalar:
            parts.append(f"and '{scalar}' is one of the {self.generated[scalar]}")
            options.append(f"--range {scalar}=16000:16001 for the one value 16000, if it is a sample rate")
        options.append("--inputs FEEDS.npz")
        return f"{', '.join(parts)}; try {', or '.join(options)}"


@dataclass(frozen=True)
class Feeds:
    """Arrays for all inputs, and how their sizes were decided."""

    arrays: Mapping[str, Array]
    given: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    generated: Mapping[str, str] = field(default_factory=dict)

    def described(self) -> Fed:
        """The same without the arrays."""
        inputs = {name: ArrayType(str(array.dtype), array.shape) for name, array in self.arrays.items()}
        return Fed(inputs=inputs, dims=Dims(self.given, self.assumed), generated=self.generated)

    def save(self, folder: Path, prefix: str = "") -> SavedFeeds:
        """Write each array to a file of its own; names may hold anything, so the files are numbered."""
        saved = []
        for number, (name, array) in enumerate(self.arrays.items()):
            path = folder / f"{prefix}input-{number}.npy"
            np.save(path, array)
            saved.append((name, str(path)))
        return saved


def make_feeds(signature: Signature, scenario: Scenario) -> Feeds:
    """The arrays a scenario asks for; whatever does not fit the model is an error that says what would."""
    known = {value.name: value for value in signature.inputs}
    for name in scenario.ranges:
        if name not in known:
            raise UsageError(f"the model has no input '{name}'", hint=f"it has: {', '.join(known) or 'none'}")
    if scenario.inputs is not None:
        return _read(scenario.inputs, signature, scenario)
    given, assumed = _bound(signature, scenario)
    random = np.random.default_rng(scenario.seed)
    arrays, contents = {}, {}
    for value in signature.inputs:
        shape = _numbers(value, {**given, **assumed})
        arrays[value.name], contents[value.name] = _generate(value, shape, scenario.ranges.get(value.name), random)
    return Feeds(arrays, given, assumed, contents)


def shapes_of_feeds(signature: Signature, scenario: Scenario) -> dict[str, tuple[int, ...]]:
    """The shapes of generated inputs, without generating any: they may be large, and there may be many scenarios."""
    given, assumed = _bound(signature, scenario)
    return {value.name: _numbers(value, {**given, **assumed}) for value in signature.inputs}


def _bound(signature: Signature, scenario: Scenario) -> tuple[dict[str, int], dict[str, int]]:
    """The open dimensions that the scenario decides, and what is assumed for the others."""
    given = bind(signature.shapes, shapes=scenario.shapes, dims=scenario.dims)
    return given, {name: n for name, n in default_dimensions(signature.shapes).items() if name not in given}


def _read(path: Path, signature: Signature, scenario: Scenario) -> Feeds:
    stored = look_at_feeds(path)
    shapes = {name: feed.shape for name, feed in stored.items()}
    known = {value.name: value for value in signature.inputs}
    missing = [name for name in known if name not in shapes]
    if missing:
        raise UsageError(
            f"'{path.name}' has no array for input '{missing[0]}'", hint=f"it has: {', '.join(shapes) or 'none'}"
        )
    ranked = {name: shape for name, shape in shapes.items() if name not in known or known[name].shape is not None}
    given = bind(signature.shapes, shapes=with_given_shapes(path, ranked, scenario.shapes), dims=scenario.dims)
    for name, value in known.items():
        dtype = "string" if stored[name].dtype.kind in "US" else stored[name].dtype.name
        if value.dtype in GENERATED and dtype != value.dtype:
            raise UsageError(
                f"input '{name}' is {value.dtype}, but '{path.name}' holds {dtype}",
                hint=f"convert it with array.astype('{value.dtype}') before saving",
            )
    return Feeds({name: read_feed(path, stored[name]) for name in known}, given)


def _numbers(value: Input, bindings: Mapping[str, int]) -> tuple[int, ...]:
    if value.shape is None or not value.dtype:
        what = "is no tensor" if not value.dtype else "has no declared rank"
        raise UsageError(f"input '{value.name}' {what}, so nothing can be generated for it", hint="give --inputs")
    dims = tuple(substitute(dim, bindings) for dim in value.shape)
    return tuple(dim for dim in dims if isinstance(dim, int))


def _generate(
    value: Input, shape: tuple[int, ...], bounds: tuple[float, float] | None, random: np.random.Generator
) -> tuple[Array, str]:
    if bounds is not None and not bounds[0] < bounds[1]:
        raise UsageError(f"the range of input '{value.name}' is empty: [{bounds[0]:g}, {bounds[1]:g})")
    try:
        return _generated(value, shape, bounds, random)
    except (MemoryError, ValueError, OverflowError) as error:
        size = prod(shape) * np.dtype("U4" if value.dtype == "string" else value.dtype).itemsize
        if not isinstance(error, MemoryError) and size < _ADDRESSABLE:
            raise UsageError(f"input '{value.name}' cannot be generated: {error}") from error
        raise UsageError(
            f"input '{value.name}' takes {format_bytes(size)}, and there is no memory for it",
            hint="give a smaller size; onnxmem fit finds the largest that fits",
        ) from error


def _generated(
    value: Input, shape: tuple[int, ...], bounds: tuple[float, float] | None, random: np.random.Generator
) -> tuple[Array, str]:
    if value.dtype in _FLOATS:
        # As images and sound mostly are: small, not negative, and never far from what a network was made for.
        low, high = bounds or (0.0, 1.0)
        values = np.asarray(random.uniform(low, high, shape), value.dtype)
        # Rounding to a short type may reach the upper end, which is outside. Of scalars NumPy makes no arrays.
        values = np.asarray(np.minimum(values, np.nextafter(np.asarray(high, value.dtype), low)))
        return values, f"floats in [{low:g}, {high:g})"
    if value.dtype in _INTEGERS:
        # Numbers that select from a table must be in it. Others may be masks, flags or lengths: 0 and 1 are safe.
        bottom, top = (int(bounds[0]), int(bounds[1])) if bounds else (0, value.table or 2)
        held = np.iinfo(value.dtype)
        if bottom < held.min or top - 1 > held.max:
            raise UsageError(f"input '{value.name}' is {value.dtype}, which does not hold [{bottom}, {top})")
        top = max(top, bottom + 1)
        numbers = np.asarray(random.integers(bottom, top, shape, dtype=np.int64), value.dtype)
        return numbers, f"integers in [{bottom}, {top})"
    if value.dtype == "bool":
        return np.asarray(random.integers(0, 2, shape), bool), "true and false"
    if value.dtype == "string":
        return np.full(shape, "text"), "the word 'text'"
    raise UsageError(
        f"input '{value.name}' is {value.dtype}, which NumPy does not have",
        hint="give --inputs, or choose another model",
    )
