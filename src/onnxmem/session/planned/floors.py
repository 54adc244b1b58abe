"""What product of input dimensions is a size? Every answer that fits what was seen, and what they all agree on.

A tensor's size is a constant times its dimensions, and each of those is ⌊(d + p) / m⌋ of a dimension of the inputs:
convolutions, poolings and paddings with strides are of that kind, and so is one after the other, because
⌊(⌊(d + p) / m⌋ + q) / n⌋ = ⌊(d + p + mq) / mn⌋. A few recordings leave many such products possible. None of them is
chosen: a size is known for a new shape if all that are left say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from onnxmem.placement.problem import Int64Array

# Strides multiply to powers of two nearly always; patches and the hops of sound have other sizes.
_DIVISORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 64)
_HOPS = (40, 48, 80, 100, 128, 160, 200, 240, 256, 320, 400, 480, 512, 640, 1024)
# Hops are looked for only in what is so many times as long: sound, not images.
_LONG = 16
# Shifts are at most so many times the divisor.
_MARGIN = 2
# So many products may be left for one size; with more, the recordings say too little.
_MOST = 4096
_MOST_VARIABLES = 4
# Products of two numbers below this fit into 64 bits.
_LARGEST = 2**31
# Logarithms are compared by their digits up to here, and then what they stand for exactly.
_DIGITS = 1e9


@dataclass(frozen=True, eq=False)
class Terms:
    """One per row: ⌊(d + shift) / divisor⌋ to a power; to the power of 0 the dimension plays no part."""

    powers: Int64Array
    divisors: Int64Array
    shifts: Int64Array

    def of(self, dims: Int64Array) -> Int64Array:
        """Their values, one row per term, one column per dimension."""
        steps = (dims + self.shifts[:, None]) // self.divisors[:, None]
        values: Int64Array = np.where(
            self.powers[:, None] == 0, 1, np.where(self.powers[:, None] == 1, steps, steps**2)
        )
        return values


def _terms(dims: Int64Array, *, plain: bool, alone: bool) -> Terms:
    """Those worth a look for these values of a dimension; `alone`: there is no other, so there may be more."""
    if plain:
        return _PLAIN
    hops = [hop for hop in _HOPS if alone and hop * _LONG <= dims.min()]
    return _stack([_RICH, *(_shifted(1, hop) for hop in hops)]) if hops else _RICH


def _shifted(power: int, divisor: int) -> Terms:
    shifts = np.arange(-_MARGIN * divisor, _MARGIN * divisor + 1)
    return Terms(np.full(len(shifts), power), np.full(len(shifts), divisor), shifts)


def _stack(terms: list[Terms]) -> Terms:
    return Terms(*(np.concatenate(columns) for columns in zip(*(vars(each).values() for each in terms), strict=True)))


_ABSENT = Terms(*(np.array([value], np.int64) for value in (0, 1, 0)))
_PLAIN = _stack([_ABSENT, Terms(*(np.array([value], np.int64) for value in (1, 1, 0)))])
_RICH = _stack([_ABSENT, *(_shifted(power, divisor) for power in (1, 2) for divisor in _DIVISORS)])


@dataclass(frozen=True, eq=False)
class Products:
    """All products that are left for one size: per row one, per column the term of one dimension."""

    powers: Int64Array
    divisors: Int64Array
    shifts: Int64Array
    first: Int64Array
    """Their values for the shape that was seen first; all others are in proportion."""

    def __len__(self) -> int:
        return len(self.first)

    def _of(self, dims: Int64Array) -> Int64Array | None:
        steps = (dims + self.shifts) // self.divisors
        factors = np.where(self.powers == 0, 1, np.where(self.powers == 1, steps, steps**2))
        if (factors < 1).any() or np.prod(factors.astype(np.float64), axis=1).max(initial=0) >= _LARGEST:
            return None
        values: Int64Array = factors.prod(axis=1)
        return values

    def ratio(self, dims: Int64Array) -> tuple[int, int] | None:
        """How the size is to the first one, if all that are left agree."""
        values = self._of(dims)
        if values is None or not len(values) or (values * self.first[0] != values[0] * self.first).any():
            return None
        return int(values[0]), int(self.first[0])

    def left(self, dims: Int64Array, ratio: tuple[int, int]) -> Products:
        """Those that are left once the size is known for one more shape."""
        values, (one, other) = self._of(dims), _lowest(*ratio)
        if values is None or max(one, other) >= _LARGEST:
            return self._only(np.zeros(len(self), bool))
        return self._only(values * other == self.first * one)

    def _only(self, rows: np.typing.NDArray[np.bool_]) -> Products:
        return replace(self, **{name: column[rows] for name, column in vars(self).items()})


def _lowest(one: int, other: int) -> tuple[int, int]:
    common = gcd(one, other)
    return one // common, other // common


class Search:
    """Looks for products, with tables of all terms of these shapes: one row per shape, one column per dimension."""

    def __init__(self, dims: Int64Array) -> None:
        self.dims = dims
        count = dims.shape[1]
        self.possible = 1 <= count <= _MOST_VARIABLES
        if not self.possible:
            return
        # The two dimensions of which most values were seen have many possible terms, all others are plain.
        seen = [len(set(column)) for column in dims.T.tolist()]
        self.order = sorted(range(count), key=lambda k: seen[k])
        self.tables = [
            _table(dims[:, column], plain=place < count - 2, alone=count == 1)
            for place, column in enumerate(self.order)
        ]
        self.last: dict[bytes, list[int]] = {}
        for row, digits in enumerate(_digits(np.log(self.tables[-1][1]))):
            self.last.setdefault(digits, []).append(row)

    def products(self, sizes: Int64Array) -> Products | None:
        """All that fit these sizes, one per shape; None if there are none, or too many."""
        sizes = sizes // np.gcd.reduce(sizes)
        if not self.possible or int(sizes.max()) >= _LARGEST:
            return None
        goal, chosen = np.log(sizes), []
        for rows in self._plain():
            known = [values[row] for (_, values), row in zip(self.tables, rows, strict=False)]
            rest = goal - sum(np.log(value) for value in known)
            if len(self.tables) > len(rows) + 1:
                digits = _digits(rest - np.log(self.tables[-2][1]))
                found = [(*rows, a, b) for a, each in enumerate(digits) for b in self.last.get(each, ())]
            else:
                found = [(*rows, b) for b in self.last.get(_digits(rest[None])[0], ())]
            chosen += found
            if len(chosen) > _MOST:
                return None
        return self._exact(sizes, np.array(chosen, np.int64)) if chosen else None

    def _plain(self) -> list[tuple[int, ...]]:
        combinations: list[tuple[int, ...]] = [()]
        for _, values in self.tables[:-2]:
            combinations = [(*before, row) for before in combinations for row in range(len(values))]
        return combinations

    def _exact(self, sizes: Int64Array, chosen: Int64Array) -> Products | None:
        values = np.ones((len(chosen), len(sizes)))
        for (_, table), rows in zip(self.tables, chosen.T, strict=True):
            values *= table[rows]
        chosen = chosen[values.max(axis=1) < _LARGEST]
        exact = np.ones((len(chosen), len(sizes)), np.int64)
        for (_, table), rows in zip(self.tables, chosen.T, strict=True):
            exact *= table[rows]
        right = (exact * sizes[0] == exact[:, :1] * sizes).all(axis=1)
        if not right.any():
            return None
        places = np.argsort(self.order)
        columns = {
            name: np.stack([getattr(self.tables[k][0], name)[chosen[right, k]] for k in places], axis=1)
            for name in ("powers", "divisors", "shifts")
        }
        return Products(**columns, first=exact[right, 0])


def _table(dims: Int64Array, *, plain: bool, alone: bool) -> tuple[Terms, Int64Array]:
    """The terms of a dimension that can be, and their values."""
    terms = _terms(dims, plain=plain, alone=alone)
    values = terms.of(dims)
    good: np.typing.NDArray[np.bool_] = np.all(values > 0, axis=1)
    # Where only multiples of a number were seen (images of whole blocks), all shifts within a divisor of it are the
    # same for every other multiple: one of them stands for all. `same_steps` says for which shapes that holds.
    same: dict[tuple[int, bytes], int] = {}
    whole = good & (step_of(dims) % terms.divisors == 0)
    for row, digits in zip(np.flatnonzero(whole).tolist(), _digits(np.log(values[whole])), strict=True):
        good[row] = same.setdefault((int(terms.powers[row]), digits), row) == row
    return Terms(*(each[good] for each in vars(terms).values())), values[good]


def step_of(dims: Int64Array) -> int:
    """The largest number of which all differences are multiples."""
    return int(np.gcd.reduce(dims - dims[0]))


def _digits(logarithms: np.typing.NDArray[np.float64]) -> list[bytes]:
    """Rows that are the same up to a factor have the same."""
    relative = np.ascontiguousarray(np.rint((logarithms - logarithms[:, :1]) * _DIGITS).astype(np.int64))
    whole: list[bytes] = relative.view(f"V{8 * relative.shape[1]}").ravel().tolist()
    return whole
