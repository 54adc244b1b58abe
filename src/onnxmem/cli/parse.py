"""What a user types for an option, as what the library takes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from onnxmem.errors import UsageError

Setting = bool | int | str
_Value = TypeVar("_Value")


def parse_shapes(texts: Iterable[str] | None, model: Path) -> dict[str, tuple[int, ...]]:
    """Read `x=1x3x640x640`, or `1x3x640x640` for a model with one input."""
    from onnxmem.model.bindings import parse_shape  # noqa: PLC0415

    return _each_once("the shape of input", (parse_shape(with_name(text, model)) for text in texts or ()))


def _each_once(what: str, pairs: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """As a table; which of two values for one name is meant, nothing says."""
    found: dict[str, _Value] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{what} '{name}' is given twice")
        found[name] = value
    return found


def with_name(text: str, model: Path) -> str:
    """A shape with the name of its input, which may be left out where there is only one."""
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415
    from onnxmem.model.bindings import is_nameless  # noqa: PLC0415

    if not is_nameless(text):
        return text
    names = [each.name for each in read_signature(model).inputs]
    if len(names) != 1:
        raise UsageError(
            f"'{text}' does not say which input it is the shape of, and '{model.name}' has {len(names)}",
            hint=f"write it as {names[0] if names else 'input'}={text}"
            + (f"; it has: {', '.join(names)}" * bool(names)),
        )
    return f"{names[0]}={text}"


def parse_dims(texts: Iterable[str] | None) -> dict[str, int]:
    """Read `batch=8`, any number of them."""
    from onnxmem.model.bindings import parse_dim  # noqa: PLC0415

    return _each_once("dimension", (parse_dim(text) for text in texts or ()))


def parse_ranges(texts: Iterable[str] | None) -> dict[str, tuple[float, float]]:
    """Read `ids=0:30522`: what a generated input may hold, without the upper end."""
    return _each_once("the range of input", (_range(text) for text in texts or ()))


def _range(text: str) -> tuple[str, tuple[float, float]]:
    name, separator, bounds = text.rpartition("=")
    try:
        low, high = (float(bound) for bound in bounds.split(":"))
    except ValueError:
        separator = ""
    if not separator or not name or not low < high or math.isinf(low) or math.isinf(high):
        raise UsageError(f"'{text}' is not a range", hint="write it as input=0:30522, the upper end is not included")
    return name, (low, high)


def parse_dtypes(texts: Iterable[str] | None) -> dict[str, str]:
    """Read `ids=int64`, any number of them."""
    return _each_once("the type of input", (_dtype(text) for text in texts or ()))


def _dtype(text: str) -> tuple[str, str]:
    from onnxmem.measurement.feeds import GENERATED  # noqa: PLC0415

    name, separator, dtype = text.rpartition("=")
    if not separator or not name or dtype not in GENERATED:
        raise UsageError(
            f"'{text}' is not an input's type", hint=f"write it as input=int64; known: {', '.join(GENERATED)}"
        )
    return name, dtype


def parse_options(texts: Iterable[str] | None) -> dict[str, dict[str, Setting]]:
    """Read `enable_mem_pattern=false` as one of `options`, and `session.disable_prepacking=1` as one of `config`."""
    parsed = _each_once("session option", (_option(text) for text in texts or ()))
    return {
        "options": {name: value for name, value in parsed.items() if "." not in name},
        "config": {name: value for name, value in parsed.items() if "." in name},
    }


def _option(text: str) -> tuple[str, Setting]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"'{text}' is not a session option", hint="write it as name=value")
    if "." in name:  # entries of the configuration are always text
        return name, value
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    return name, int(value) if value.lstrip("-").isdigit() else value


def parse_size(text: str | None) -> int | None:
    """Read `512MiB`; nothing is no limit."""
    from onnxmem.units import parse_bytes  # noqa: PLC0415

    return None if text is None else parse_bytes(text)


def parse_part(text: str | None) -> float | None:
    """Read `10%` or `0.1`; nothing is nothing."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise UsageError(f"'{text}' is no part of anything", hint="for example 10% or 0.1") from error
    if not 0 <= value < float("inf"):
        raise UsageError(f"'{text}' is no part of anything", hint="for example 10% or 0.1")
    return value


def parse_counts(text: str) -> list[int]:
    """Read `1,2,4`."""
    try:
        return [int(count) for count in text.split(",")]
    except ValueError as error:
        raise UsageError(f"'{text}' is not a list of numbers", hint="for example 1,2,4") from error


@contextmanager
def modules_here() -> Iterator[None]:
    """Let modules of the current folder be imported, as `python -m` does and an installed script does not."""
    here = os.getcwd()  # noqa: PTH109  as sys.path has it
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        # What they import later is found, too, but takes no other module's place.
        sys.path.append(here)
