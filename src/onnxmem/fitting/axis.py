"""Which sizes are tried? What the caller gives a range, or else the batch, or else every other free dimension."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.documents import Record
from onnxmem.errors import UsageError
from onnxmem.model.bindings import bind, default_dimensions, parse_dim
from onnxmem.model.dims import Dim, symbols_of

Given = int | str | range
"""A number, or a range: "1..64", "256..1024:32" or Python's; or the name of another dimension that it is equal to."""
Inputs = Mapping[str, tuple[Dim, ...] | None]

_RANGE = re.compile(r"(\d+)\s*\.\.\s*(\d*)\s*(?::\s*(\d+))?")
_LARGEST = 2**31 - 1
# Between sizes that nobody chose: networks halve images five times, and a tenth of a second of sound is a word's part.
_STEPS = {1: 1, 224: 32, 128: 8, 16000: 1600}


@dataclass(frozen=True, kw_only=True)
class Axis(Record):
    """The sizes of a dimension, or of several that are always equal, that are tried; none: the model as it is."""

    names: tuple[str, ...] = ()
    start: int = 1
    stop: int | None = None
    """The last; None for as far as it fits."""
    step: int = 1

    @property
    def last(self) -> int | None:
        """How many sizes come after the first; None if nobody set an end."""
        if not self.names:
            return 0
        return None if self.stop is None else (self.stop - self.start) // self.step

    @property
    def label(self) -> str:
        """The dimensions in words."""
        return " = ".join(self.names)

    def size(self, index: int) -> int:
        """The size at this place of the range."""
        return self.start + index * self.step

    def dims(self, size: int) -> dict[str, int]:
        """The dimensions at this size."""
        return dict.fromkeys(self.names, size)


def read_dims(
    inputs: Inputs, dims: Mapping[str, Given], shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, int], tuple[Axis, ...]]:
    """The dimensions that are fixed, and the sizes to try."""
    numbers = {name: given for name, given in dims.items() if isinstance(given, int)}
    ranges = {name: _read(name, given) for name, given in dims.items() if not isinstance(given, int)}
    # Every name that stands in a range is checked like one with a number.
    bind(inputs, dims=dict.fromkeys(ranges, 1))
    fixed = bind(inputs, shapes={name: tuple(shape) for name, shape in shapes.items()}, dims=numbers)
    for name in ranges:
        if name in fixed:
            raise UsageError(f"dimension '{name}' is given as both {fixed[name]} and a range")
    axes: dict[str, Axis] = {name: axis for name, axis in ranges.items() if isinstance(axis, Axis)}
    for name, leader in ranges.items():
        if isinstance(leader, Axis):
            continue
        if leader in fixed:
            fixed[name] = fixed[leader]
        elif leader not in axes:
            raise UsageError(
                f"'{name}={leader}' is neither a range nor the name of a dimension that has one",
                hint=f"write it as {name}=1..64 or {name}=256..1024:32, or name one that has a range",
            )
        else:
            axes[leader] = Axis(**{**vars(axes[leader]), "names": (*axes[leader].names, name)})
    return fixed, tuple(axes.values()) or _default_axes(inputs, fixed)


def _read(name: str, given: Any) -> Axis | str:
    if isinstance(given, range):
        if not given or given.step < 1:
            raise UsageError(f"the range of '{name}' holds no sizes, or falls", hint="for example range(1, 65)")
        return _checked(name, given.start, given[-1], given.step)
    match = _RANGE.fullmatch(given.strip())
    if match is None:
        return str(given).strip()
    return _checked(name, int(match[1]), int(match[2]) if match[2] else None, int(match[3] or 1))


def _checked(name: str, start: int, stop: int | None, step: int) -> Axis:
    if not 1 <= start <= (start if stop is None else stop) <= _LARGEST or step < 1:
        end = "" if stop is None else stop
        raise UsageError(
            f"'{name}={start}..{end}:{step}' is not a range of sizes", hint=f"write it as {name}=1..64 or 256..1024:32"
        )
    return Axis(names=(name,), start=start, stop=stop, step=step)


def _default_axes(inputs: Inputs, fixed: Mapping[str, int]) -> tuple[Axis, ...]:
    """The first free dimension that looks like a batch; else each by itself, but height and width as a square."""
    free = {name: number for name, number in default_dimensions(inputs).items() if name not in fixed}
    batch = next((name for name, number in free.items() if number == 1), None)
    if batch is not None:
        return (Axis(names=(batch,)),)
    groups: dict[tuple[str, int] | str, list[str]] = {}
    for name, number in free.items():
        holder = next((key for key, shape in inputs.items() for dim in shape or () if name in symbols_of(dim)), "")
        groups.setdefault((holder, number) if number in _STEPS and _is_image(inputs[holder]) else name, []).append(name)
    axes = []
    for names in groups.values():
        step = _STEPS.get(free[names[0]], 1)
        axes.append(Axis(names=tuple(names), start=step, step=step))
    return tuple(axes) or (Axis(),)


def _is_image(shape: tuple[Dim, ...] | None) -> bool:
    return shape is not None and len(shape) >= 4


def parse_dims(texts: Iterable[str]) -> dict[str, Given]:
    """Read `batch=8`, `batch=1..64`, `height=256..1024:32` and `width=height`."""
    found: dict[str, Given] = {}
    for text in texts:
        name, separator, given = text.rpartition("=")
        if not separator or not name or not given.strip():
            raise UsageError(f"'{text}' is not a dimension", hint="write it as name=8, name=1..64 or name=256..1024:32")
        if name in found:
            raise UsageError(f"dimension '{name}' is given twice")
        found[name] = parse_dim(text)[1] if given.strip().isdecimal() else given.strip()
    return found
