"""The peak as an expression of the model's own dimension names.

The bytes alive at a step are a polynomial in the dimensions, with floors where strides do not divide evenly; the peak
is the largest of them. A step is dropped from that maximum only if another is proven to be at least as large, so what
is left is exact. On the sizes people use (height and width multiples of 32, say) the floors vanish and so do most
steps: that is the short form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from operator import ge
from typing import TypeVar

from onnxmem.deadline import Deadline
from onnxmem.documents import Record, stored
from onnxmem.model.comparing import certainly_at_least, evaluate, evaluate_range, substitute
from onnxmem.model.dims import Dim, Expr, FloorDiv, Symbol, format_terms, symbol, symbols_of
from onnxmem.schedule.timeline import Timeline

_Item = TypeVar("_Item")

_LARGEST_MULTIPLE = 4096
_SCANNED = range(1, 4096)
# Large first: the likely largest is looked at first, and most others are compared with it only.
_TRIED = (224, 64, 1000, 7, 3, 1, 2)


@dataclass(frozen=True)
class Piece(Record):
    """One polynomial of the short form, and where it is the peak: None if that depends on several dimensions."""

    text: str = stored("bytes")
    smallest: int | None = stored("from")
    largest: int | None = stored("to")


@dataclass(frozen=True)
class Formula:
    """`peak = max(general)`, for all positive dimensions; and shorter for dimensions that are certain multiples."""

    symbols: tuple[str, ...]
    general: tuple[Dim, ...]
    multiples: Mapping[str, int]
    """The short form holds where each of these dimensions is a multiple of its number."""
    pieces: tuple[Piece, ...]
    """The short form, in bytes: the largest of these."""

    def at(self, values: Mapping[str, int]) -> int:
        """The peak at these dimensions, in bytes."""
        return max(evaluate(dim, values) for dim in self.general)

    @property
    def condition(self) -> str:
        """Where the short form holds, in words."""
        parts = [f"{name} a multiple of {m}" for name, m in self.multiples.items() if m > 1]
        return ", ".join(parts) or "all sizes"

    @property
    def text(self) -> str:
        """The short form on one line."""
        texts = [piece.text for piece in self.pieces]
        return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


def peak_formula(timeline: Timeline, *, time_limit: float = 10.0) -> Formula | None:
    """The peak of live bytes as a formula; None where no size depends on a free dimension, or the time is up."""
    names = tuple(sorted(timeline.symbols))
    if not names:
        return None
    deadline = Deadline(max(time_limit, 0.01))
    try:
        general = _undominated(timeline.live(), deadline)
        multiples = _multiples(general, names)
        scaled = {name: symbol(name) * m for name, m in multiples.items()}
        short = _undominated(_timely((substitute(dim, scaled) for dim in general), deadline), deadline)
        return Formula(names, tuple(general), multiples, _pieces(short, multiples, deadline))
    except TimeoutError:
        return None


def _timely(items: Iterable[_Item], deadline: Deadline) -> Iterator[_Item]:
    """The same items, as long as there is time."""
    for item in items:
        if deadline.passed:
            raise TimeoutError
        yield item


def _undominated(dims: Iterable[Dim], deadline: Deadline) -> list[Dim]:
    """Those of which none is proven to be at most another."""
    # A few values tell which proofs are worth trying: nothing is proven at most what is smaller somewhere.
    values = {dim: tuple(_at(dim, number) for number in _TRIED) for dim in _timely(set(dims), deadline)}
    kept: list[Dim] = []
    for dim in sorted(values, key=lambda dim: (*(-value for value in values[dim]), str(dim))):
        larger = (other for other in _timely(kept, deadline) if all(map(ge, values[other], values[dim])))
        if not any(certainly_at_least(other, dim) for other in larger):
            kept.append(dim)
    return kept


def _at(dim: Dim, number: int) -> int:
    return evaluate(dim, dict.fromkeys(symbols_of(dim), number))


def _multiples(dims: Sequence[Dim], names: Sequence[str]) -> dict[str, int]:
    """The smallest multiples of the dimensions at which every floor division of one of them comes out even."""
    multiples = dict.fromkeys(names, 1)
    for _ in range(4):  # a floor inside a floor shows only once the inner one is gone
        scaled = {name: symbol(name) * m for name, m in multiples.items()}
        needed = dict(multiples)
        for dividend, divisor in _floors(substitute(dim, scaled) for dim in dims):
            for monomial, coefficient in dividend.terms:
                if len(monomial) == 1 and isinstance(monomial[0][0], Symbol) and monomial[0][1] == 1:
                    name = monomial[0][0].name
                    needed[name] = lcm(needed[name], multiples[name] * (divisor // gcd(coefficient, divisor)))
        if needed == multiples:
            break
        if max(needed.values()) > _LARGEST_MULTIPLE:
            return dict.fromkeys(names, 1)
        multiples = needed
    return multiples


def _floors(dims: Iterable[Dim]) -> Iterable[tuple[Expr, int]]:
    for dim in dims:
        for monomial, _ in dim.terms if isinstance(dim, Expr) else ():
            for atom, _ in monomial:
                if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int):
                    yield atom.dividend, atom.divisor


def _pieces(short: Sequence[Dim], multiples: Mapping[str, int], deadline: Deadline) -> tuple[Piece, ...]:
    """The polynomials in the original dimensions, with the range of each where there is only one dimension."""
    texts = {dim: in_original(dim, multiples) for dim in short}
    if len(short) == 1:
        return (Piece(texts[short[0]], None, None),)
    names = sorted(frozenset().union(*map(symbols_of, short)))
    if len(names) != 1:
        return tuple(Piece(texts[dim], None, None) for dim in short)
    (name,) = names
    winners: list[tuple[Dim, int]] = []
    sizes = {dim: evaluate_range(dim, name, _SCANNED) for dim in _timely(short, deadline)}
    for place, number in enumerate(_SCANNED):
        best = max(short, key=lambda dim: sizes[dim][place])
        if not winners or sizes[winners[-1][0]][place] < sizes[best][place]:
            winners.append((best, number))
    # Beyond what was scanned, the last winner must be proven to stay ahead; otherwise claim no ranges.
    last, since = winners[-1]
    if not all(certainly_at_least(last, dim, {name: since}) for dim in short):
        return tuple(Piece(texts[dim], None, None) for dim in short)
    m = multiples[name]
    ends: list[int | None] = [(start - 1) * m for _, start in winners[1:]]
    return tuple(Piece(texts[dim], start * m, end) for (dim, start), end in zip(winners, [*ends, None], strict=True))


def in_original(dim: Dim, multiples: Mapping[str, int]) -> str:
    """A polynomial of H/32 written as one of H."""
    if isinstance(dim, int):
        return str(dim)
    terms = []
    for monomial, coefficient in dim.terms:
        if any(not isinstance(atom, Symbol) for atom, _ in monomial):
            # Floors are left, which take no fractions; but H//32 is exact where H is a multiple of 32.
            return str(substitute(dim, {name: symbol(name) // m for name, m in multiples.items()}))
        scale = 1
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                scale *= multiples.get(atom.name, 1) ** power
        terms.append((monomial, _decimal(Fraction(coefficient, scale))))
    return format_terms(terms)


def _decimal(fraction: Fraction) -> str:
    """A fraction as a decimal number if that is short and exact, otherwise as it is."""
    if fraction.denominator == 1:
        return str(fraction.numerator)
    for digits in range(1, 7):
        if (fraction * 10**digits).denominator == 1:
            return f"{float(fraction):.{digits}f}"
    return f"{fraction.numerator}/{fraction.denominator}"
