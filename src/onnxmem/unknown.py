"""What cannot be known, and why: never 0, never a guess. Arithmetic passes the reason on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

_Number = TypeVar("_Number", int, float)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Unknown:
    """A quantity that cannot be known here, and the reason."""

    reason: str


Bytes = int | Unknown
"""A number of bytes, or why there is none."""


def combine(function: Callable[..., _Result], *values: object) -> _Result | Unknown:
    """`function` of the values if all of them are known; otherwise the first that is not."""
    for value in values:
        if isinstance(value, Unknown):
            return value
    return function(*values)


def add(*values: Bytes) -> Bytes:
    """Their sum."""
    return combine(lambda *known: sum(known), *values)


def subtract(one: Bytes, other: Bytes) -> Bytes:
    """How much more the first is; negative if it is less."""
    return combine(lambda a, b: int(a - b), one, other)


def known(values: Iterable[_Number | Unknown]) -> list[_Number]:
    """Those of the values that are known."""
    return [value for value in values if not isinstance(value, Unknown)]
