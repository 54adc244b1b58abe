"""Which of two dimensions is larger, whatever the sizes? And which number is one, when the sizes are known?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, reduce
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from onnxmem.model.dims import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    Max,
    Monomial,
    Symbol,
    TooLarge,
    atom_dim,
    floor_div,
    product,
    symbol,
    terms_of,
    weighted_sum,
)

Range: TypeAlias = "tuple[int | None, int | None]"

# Each maximum in a difference is a case for each of its items; with many of them a proof is not worth its time.
_MOST_SPLITS = 4
# A maximum compares each of its items with each other.
_MOST_ITEMS = 32


def maximum(*dims: Dim) -> Dim:
    """The largest dimension; certain orderings (`H + 1` over `H`) are decided here."""
    kept: list[Dim] = []
    different = dict.fromkeys(item for given in dims for item in _max_items(given))
    if sum(isinstance(dim, Expr) for dim in different) > _MOST_ITEMS:
        raise TooLarge
    for dim in different:
        if any(certainly_at_least(other, dim) for other in kept):
            continue
        kept = [other for other in kept if not certainly_at_least(dim, other)] + [dim]
    return kept[0] if len(kept) == 1 else atom_dim(Max(tuple(sorted(kept, key=str))))


def _max_items(dim: Dim) -> tuple[Dim, ...]:
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Max):
            return monomial[0][0].items
    return (dim,)


def minimum(*dims: Dim) -> Dim:
    """The smallest dimension."""
    return -maximum(*(-dim for dim in dims))


def certainly_at_least(left: Dim, right: Dim, smallest: Mapping[str, int] | None = None) -> bool:
    """Is `left >= right` whatever the symbols are (each at least 1, or `smallest[name]`)? False means "not proven"."""
    try:
        return _not_negative(left - right, smallest or {}, _MOST_SPLITS)
    except TooLarge:
        return False


def _not_negative(difference: Dim, smallest: Mapping[str, int], splits: int) -> bool:
    if isinstance(difference, int):
        return difference >= 0
    if all(isinstance(atom, Symbol) for monomial, _ in difference.terms for atom, _ in monomial):
        # With every symbol written as its smallest value plus something not negative, no minus sign may remain.
        least = {name: smallest.get(name, 1) for name in difference.symbols}
        shifted = substitute(difference, {name: symbol(name) + value for name, value in least.items()})
        return all(coefficient >= 0 for _, coefficient in terms_of(shifted))
    lowest = _range(difference, smallest)[0]
    if lowest is not None and lowest >= 0:
        return True
    # A quotient grows with its dividend: (H + 1)//2 >= H//2.
    pair = _ordered_quotients(difference, smallest)
    if pair is not None:
        return _not_negative(pair, smallest, splits)
    # A maximum is at least each of its items: min(512, S) <= S is proven this way.
    for monomial, coefficient in difference.terms if splits else ():
        if coefficient > 0 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Max):
            rest = weighted_sum([(difference, 1), (atom_dim(monomial[0][0]), -coefficient)])
            return any(_not_negative(rest + coefficient * item, smallest, splits - 1) for item in monomial[0][0].items)
    return False


def _ordered_quotients(difference: Expr, smallest: Mapping[str, int]) -> Dim | None:
    """`difference` less a pair c*(a//n) - c*(b//n) with a >= b, which is not negative; None where there is none."""
    quotients = [
        (monomial[0][0], coefficient)
        for monomial, coefficient in difference.terms
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], FloorDiv)
    ]
    for more, plus in quotients:
        for less, minus in quotients:
            comparable = plus > 0 and minus == -plus and more.divisor == less.divisor and isinstance(more.divisor, int)
            if comparable and certainly_at_least(more.dividend, less.dividend, smallest):
                return weighted_sum([(difference, 1), (atom_dim(more), -plus), (atom_dim(less), plus)])
    return None


def _range(dim: Dim, smallest: Mapping[str, int]) -> Range:
    """The smallest and largest value, each None where there is no limit or none is found."""
    if isinstance(dim, int):
        return dim, dim
    return _sum_range(dim, smallest) if smallest else _usual_range(dim)


@lru_cache(maxsize=1 << 16)
def _usual_range(dim: Expr) -> Range:
    # Maxima share their items with other maxima: without remembering them, proofs take exponential time.
    return _sum_range(dim, {})


def _sum_range(dim: Expr, smallest: Mapping[str, int]) -> Range:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in dim.terms:
        least, most = _monomial_range(monomial, smallest)
        if coefficient < 0:
            least, most = most, least
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or most is None else high + coefficient * most
    return low, high


def _monomial_range(monomial: Monomial, smallest: Mapping[str, int]) -> Range:
    least: int | None = 1
    most: int | None = 1
    for atom, power in monomial:
        low, high = _atom_range(atom, smallest)
        if len(monomial) == 1 and power == 1:
            return low, high
        if low is None or low < 0:
            return None, None
        least = None if least is None else least * low**power
        most = None if most is None or high is None else most * high**power
    return least, most


def _atom_range(atom: Atom, smallest: Mapping[str, int]) -> Range:
    if isinstance(atom, Symbol):
        return smallest.get(atom.name, 1), None
    if isinstance(atom, Max):
        ranges = [_range(item, smallest) for item in atom.items]
        lows = [low for low, _ in ranges if low is not None]
        highs = [high for _, high in ranges if high is not None]
        return max(lows, default=None), max(highs) if len(highs) == len(ranges) else None
    low, high = _range(atom.dividend, smallest)
    if isinstance(atom.divisor, int):
        return None if low is None else low // atom.divisor, None if high is None else high // atom.divisor
    divisor, _ = _range(atom.divisor, smallest)
    return (0, high) if low is not None and low >= 0 and divisor is not None and divisor > 0 else (None, None)


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dimension with some of its symbols replaced."""
    if isinstance(dim, int) or dim.symbols.isdisjoint(values):
        return dim
    parts = []
    for monomial, coefficient in dim.terms:
        factors = [_substitute_atom(atom, values) for atom, power in monomial for _ in range(power)]
        parts.append((product(factors), coefficient))
    return weighted_sum(parts)


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The number a dimension is when every symbol has a value."""
    if missing := (dim.symbols - values.keys() if isinstance(dim, Expr) else ()):
        raise KeyError(f"no value for {', '.join(sorted(missing))}")
    number: int = _evaluate(dim, values)
    return number


def evaluate_range(dim: Dim, name: str, numbers: range) -> list[int]:
    """The numbers a dimension is when its one symbol runs through `numbers`."""
    # Object arrays: NumPy walks through them, and Python's integers do not overflow.
    column = np.array(numbers, dtype=object)
    return [dim] * len(numbers) if isinstance(dim, int) else list(_evaluate(dim, {name: column}))


def _evaluate(dim: Dim, values: Mapping[str, Any]) -> Any:
    if isinstance(dim, int):
        return dim
    parts = (reduce(mul, (_evaluate_atom(a, values) ** p for a, p in monomial), c) for monomial, c in dim.terms)
    return sum(parts)


def _evaluate_atom(atom: Atom, values: Mapping[str, Any]) -> Any:
    if isinstance(atom, Symbol):
        return values[atom.name]
    if isinstance(atom, FloorDiv):
        return _evaluate(atom.dividend, values) // _evaluate(atom.divisor, values)
    items = [_evaluate(item, values) for item in atom.items]
    return max(items) if all(isinstance(item, int) for item in items) else reduce(np.maximum, items)


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return values.get(atom.name, atom_dim(atom))
    if isinstance(atom, FloorDiv):
        return floor_div(substitute(atom.dividend, values), substitute(atom.divisor, values))
    return maximum(*(substitute(item, values) for item in atom.items))
