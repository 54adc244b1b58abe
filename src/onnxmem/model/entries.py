"""What operators do with single entries of a small integer tensor: numbers, dimensions, and floats on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxmem.model.comparing import certainly_at_least, maximum, minimum
from onnxmem.model.dims import Expr, floor_div


class Undecided(Exception):
    """The result cannot be known symbolically."""


def alike(a: Any, b: Any) -> tuple[Any, Any]:
    """A dimension and a float: whole floats become integers, others cannot be followed."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        return whole(a), whole(b)
    return a, b


def whole(a: Any) -> Any:
    if not isinstance(a, float):
        return a
    if not a.is_integer():
        raise Undecided
    return int(a)


def divide(a: Any, b: Any) -> Any:
    """Integer division in ONNX truncates; Python's rounds down. They differ where one side is negative."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not certainly_at_least(b, 1):
        raise Undecided
    if certainly_at_least(a, 0):
        return floor_div(a, b)
    if certainly_at_least(0, a):
        return -floor_div(-a, b)
    raise Undecided


def divide_floats(a: Any, b: Any) -> Any:
    a, b = alike(a, b)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a / b
    quotient = floor_div(a, b)
    if quotient * b != a:
        raise Undecided  # H / 2 of an odd H is no dimension
    return quotient


def multiply(a: Any, b: Any) -> Any:
    a, b = alike(a, b)
    return a * b


def add(a: Any, b: Any) -> Any:
    a, b = alike(a, b)
    return a + b


def subtract(a: Any, b: Any) -> Any:
    return add(a, -b)


def equal(a: Any, b: Any) -> bool:
    difference = subtract(a, b)
    if isinstance(difference, Expr):
        # Two dimensions that differ by a positive amount are certainly not equal; a name and a number may be.
        if certainly_at_least(difference, 1) or certainly_at_least(-difference, 1):
            return False
        raise Undecided
    return bool(difference == 0)


def greater(a: Any, b: Any) -> bool:
    difference = subtract(a, b)
    if not isinstance(difference, Expr):
        return bool(difference > 0)
    if certainly_at_least(difference, 1):
        return True
    if certainly_at_least(-difference, 0):
        return False
    raise Undecided


def less(a: Any, b: Any) -> bool:
    return greater(b, a)


def choose(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def negate(a: Any) -> Any:
    return -a


def negated(a: Any) -> bool:
    return not a


def larger(a: Any, b: Any) -> Any:
    a, b = alike(a, b)
    return maximum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else max(a, b)


def smaller(a: Any, b: Any) -> Any:
    a, b = alike(a, b)
    return minimum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else min(a, b)


def python_modulo(a: Any, b: Any) -> Any:
    return a % b


def c_modulo(a: Any, b: Any) -> Any:
    return subtract(a, multiply(divide(a, b), b)) if isinstance(a, int | Expr) else float(np.fmod(a, b))


def floor(a: Any) -> Any:
    return a if isinstance(a, Expr | int) else float(np.floor(a))


def ceil(a: Any) -> Any:
    return a if isinstance(a, Expr | int) else float(np.ceil(a))
