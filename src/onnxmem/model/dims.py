"""Dimensions as exact integer expressions: `batch`, `4*H*W`, `(W + 7)//8`.

A dimension is an `int` or an `Expr`. An `Expr` is a polynomial with integer coefficients over *atoms*: symbols, floor
divisions, and maxima that could not be simplified away. It is kept in one canonical form, so that equal dimensions
compare equal (`ceil(ceil(H/2)/2)` and `(H + 3)//4` are the same object in all but identity). Symbols stand for
positive integers.

Written here rather than taken from sympy because this is all that shapes need, and a model has ten thousand of them:
a general simplifier took 22 s on a model of 464 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import TypeAlias

from onnxmem.errors import ModelError

Dim: TypeAlias = "int | Expr"
Monomial: TypeAlias = "tuple[tuple[Atom, int], ...]"

# Squaring a size forty times takes a few lines of a file, and then more memory than there is. Real models stay far
# below all of these.
_LARGEST_NUMBER, _HIGHEST_POWER, _MOST_PARTS, _MOST_PRODUCTS = 2**64, 64, 1000, 4096


class TooLarge(ModelError, OverflowError):
    """A formula that grows without bound: where shapes are inferred it is not followed any further."""

    def __init__(self) -> None:
        super().__init__("a size in the model is too long a formula to be followed")


@dataclass(frozen=True)
class Symbol:
    """A named dimension."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FloorDiv:
    """`dividend // divisor`, rounded towards minus infinity."""

    dividend: Expr
    divisor: Dim

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return f"{_bracketed(self.dividend)}//{_bracketed(self.divisor)}"


@dataclass(frozen=True)
class Max:
    """The largest of several dimensions: what broadcasting two unequal names gives."""

    items: tuple[Dim, ...]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return f"max({', '.join(map(str, self.items))})"


Atom: TypeAlias = Symbol | FloorDiv | Max


@dataclass(frozen=True)
class Expr:
    """A polynomial over atoms; never a plain integer (that is an `int`)."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        return frozenset().union(*(_symbols(atom) for monomial, _ in self.terms for atom, _ in monomial))

    @cached_property
    def parts(self) -> int:
        """How many names and numbers it takes to write it; those within floors and maxima count each time."""
        return sum(1 + sum(_parts(atom) for atom, _ in monomial) for monomial, _ in self.terms)

    @cached_property
    def is_modest(self) -> bool:
        """Whether it is worth following: its numbers and powers are such as sizes have, and it is no page long."""
        return self.parts <= _MOST_PARTS and all(
            abs(coefficient) <= _LARGEST_NUMBER and all(power <= _HIGHEST_POWER and _modest(a) for a, power in monomial)
            for monomial, coefficient in self.terms
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        # Terms are sorted by their texts: without remembering them, floors within floors take exponential time.
        return format_terms(self.terms)

    def __add__(self, other: Dim) -> Dim:
        return weighted_sum([(self, 1), (other, 1)])

    def __sub__(self, other: Dim) -> Dim:
        return weighted_sum([(self, 1), (other, -1)])

    def __rsub__(self, other: Dim) -> Dim:
        return weighted_sum([(other, 1), (self, -1)])

    def __neg__(self) -> Dim:
        return weighted_sum([(self, -1)])

    def __mul__(self, other: Dim) -> Dim:
        product: dict[Monomial, int] = {}
        others = terms_of(other)
        if len(self.terms) * len(others) > _MOST_PRODUCTS:
            raise TooLarge
        for left, a in self.terms:
            for right, b in others:
                monomial = _merge(left, right)
                product[monomial] = product.get(monomial, 0) + a * b
        return _canonical(product)

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_div(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floor_div(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - floor_div(self, other) * other

    def __rmod__(self, other: int) -> Dim:
        return other - floor_div(other, self) * self

    __radd__, __rmul__ = __add__, __mul__


def symbol(name: str) -> Expr:
    """The dimension called `name`."""
    return Expr(((((Symbol(name), 1),), 1),))


def symbols_of(dim: Dim) -> frozenset[str]:
    """The names a dimension depends on."""
    return dim.symbols if isinstance(dim, Expr) else frozenset()


def parts_of(dim: Dim) -> int:
    """How many names and numbers it takes to write a dimension."""
    return dim.parts if isinstance(dim, Expr) else 1


def is_modest(dim: Dim) -> bool:
    """Whether a dimension is worth following."""
    return dim.is_modest if isinstance(dim, Expr) else abs(dim) <= _LARGEST_NUMBER


def can_be_multiplied(dims: Iterable[Dim]) -> bool:
    """Whether the product of them all is sure to be one that `product` gives."""
    return prod(max(len(terms_of(dim)), 1) for dim in dims) <= _MOST_PRODUCTS


def product(dims: Iterable[Dim]) -> Dim:
    """All dimensions multiplied."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def total(dims: Iterable[Dim]) -> Dim:
    """All dimensions added; linear in the number of terms, unlike a chain of `+`."""
    return weighted_sum([(dim, 1) for dim in dims])


def floor_div(dividend: Dim, divisor: Dim) -> Dim:
    """`dividend // divisor`, simplified as far as is certain."""
    if divisor == 0:
        raise ZeroDivisionError("a dimension is divided by zero")
    if isinstance(divisor, int) and divisor < 0:
        dividend, divisor = -dividend, -divisor
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    if isinstance(divisor, int):
        return _floor_div_by_int(dividend, divisor)
    exact = _divide_exactly(dividend, divisor)
    return atom_dim(FloorDiv(_as_expr(dividend), divisor)) if exact is None else exact


def ceil_div(dividend: Dim, divisor: Dim) -> Dim:
    """`dividend / divisor`, rounded up."""
    if isinstance(divisor, int) and divisor > 0:
        # Not -(-a // b), which would come out as H - H//2 where (H + 1)//2 is meant: two names for one dimension.
        return floor_div(dividend + divisor - 1, divisor)
    return -floor_div(-dividend, divisor)


def format_terms(terms: Iterable[tuple[Monomial, object]]) -> str:
    """A polynomial as people write it, highest power first: `4*H*W + 12`."""
    text = ""
    for monomial, coefficient in sorted(terms, key=lambda term: (-_degree(term[0]), _monomial_key(term[0]))):
        factors = [f"{_factor(atom)}^{power}" if power > 1 else _factor(atom) for atom, power in monomial]
        number = str(coefficient)
        if number.startswith("-") and len(monomial) == 1 and isinstance(monomial[0][0], Max) and monomial[0][1] == 1:
            # A minimum is kept as -max(-a, -b), so that there is one kind of atom; nobody wants to read it that way.
            factors = [f"min({', '.join(str(-item) for item in monomial[0][0].items)})"]
            number = number[1:]
        sign, number = ("-", number[1:]) if number.startswith("-") else ("+", number)
        body = "*".join(([] if number == "1" and factors else [number]) + factors)
        text += f" {sign} {body}" if text else f"{'-' if sign == '-' else ''}{body}"
    return text or "0"


def _factor(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, FloorDiv) else str(atom)


def _bracketed(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) or str(dim).isidentifier() else f"({dim})"


def _inside(atom: FloorDiv | Max) -> tuple[Dim, ...]:
    return (atom.dividend, atom.divisor) if isinstance(atom, FloorDiv) else atom.items


def _symbols(atom: Atom) -> frozenset[str]:
    if isinstance(atom, Symbol):
        return frozenset([atom.name])
    return frozenset().union(*(symbols_of(part) for part in _inside(atom)))


def _parts(atom: Atom) -> int:
    return 1 if isinstance(atom, Symbol) else sum(parts_of(part) for part in _inside(atom))


def _modest(atom: Atom) -> bool:
    return isinstance(atom, Symbol) or all(is_modest(part) for part in _inside(atom))


def atom_dim(atom: Atom) -> Expr:
    """The dimension that is this atom and nothing else."""
    # Its text is remembered, and atoms within atoms can double it each time.
    if _parts(atom) > _MOST_PARTS:
        raise TooLarge
    return Expr(((((atom, 1),), 1),))


def _as_expr(dim: Dim) -> Expr:
    return Expr((((), dim),)) if isinstance(dim, int) else dim


def terms_of(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    """The terms of a dimension: an integer has one without atoms, and 0 has none."""
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    if not isinstance(dim, Expr):
        raise TypeError(f"{dim!r} is not a dimension")
    return dim.terms


def weighted_sum(parts: Iterable[tuple[Dim, int]]) -> Dim:
    """The sum of dimensions, each times a factor."""
    sums: dict[Monomial, int] = {}
    for dim, factor in parts:
        for monomial, coefficient in terms_of(dim):
            sums[monomial] = sums.get(monomial, 0) + factor * coefficient
    return _canonical(sums)


def _canonical(sums: Mapping[Monomial, int]) -> Dim:
    terms = [(monomial, coefficient) for monomial, coefficient in sums.items() if coefficient]
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    return Expr(tuple(sorted(terms, key=lambda term: _monomial_key(term[0]))))


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _monomial_key(monomial: Monomial) -> tuple[tuple[str, int], ...]:
    return tuple((str(atom), power) for atom, power in monomial)


def _merge(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _floor_div_by_int(dividend: Dim, divisor: int) -> Dim:
    # (d*q + r) // d = q + r // d: move every whole multiple out, leaving coefficients in [0, d).
    quotient = _canonical({monomial: c // divisor for monomial, c in terms_of(dividend)})
    rest = _canonical({monomial: c % divisor for monomial, c in terms_of(dividend)})
    if isinstance(rest, int):
        return quotient  # 0 <= rest < divisor
    common = gcd(divisor, *(c for monomial, c in rest.terms if monomial))
    if common > 1:
        # (g*r + c) // (g*d) = (r + c // g) // d
        rest, divisor = _floor_div_by_int(rest, common), divisor // common
        return quotient + floor_div(rest, divisor)
    constant = dict(rest.terms).get((), 0)
    varying = [term for term in rest.terms if term[0]]
    if len(varying) == 1 and varying[0][1] == 1 and len(varying[0][0]) == 1:
        atom, power = varying[0][0][0]
        if power == 1 and isinstance(atom, FloorDiv) and isinstance(atom.divisor, int):
            # (a // b + c) // d = (a + b*c) // (b*d)
            return quotient + floor_div(atom.dividend + atom.divisor * constant, atom.divisor * divisor)
    return quotient + atom_dim(FloorDiv(_as_expr(rest), divisor))


def _divide_exactly(dividend: Dim, divisor: Expr) -> Dim | None:
    """Polynomial long division, or None where a remainder is left."""
    lead, lead_coefficient = _leading(divisor)
    rest = dividend
    quotient: list[tuple[Dim, int]] = []
    while rest != 0:
        monomial, coefficient = _leading(rest)
        powers = dict(monomial)
        for atom, power in lead:
            powers[atom] = powers.get(atom, 0) - power
        if coefficient % lead_coefficient or any(power < 0 for power in powers.values()) or len(quotient) > 64:
            return None
        factor = tuple((atom, power) for atom, power in powers.items() if power)
        part = _canonical({factor: coefficient // lead_coefficient})
        quotient.append((part, 1))
        rest = rest - part * divisor
    return weighted_sum(quotient)


def _leading(dim: Dim) -> tuple[Monomial, int]:
    return max(terms_of(dim), key=lambda term: (_degree(term[0]), _monomial_key(term[0])))
