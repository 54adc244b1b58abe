"""What will a shape ask for that never ran? Found in what others asked for: `learn` from each, then `predict`.

Runs of other shapes make the same calls in the same order, as a rule, and only sizes differ. Those are the same for
many buffers, and most are in proportion: a model with hundreds of buffers has a handful of different sizes. Each is a
product of input dimensions (`floors`), or else a sum of such. A shape is predicted only if its order is established,
every size that matters is certain, and the last recordings were predicted rightly: otherwise it is recorded, and says
more. Whoever follows a prediction checks every call, so a wrong one costs time and memory, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import gcd, prod
from typing import Any

import numpy as np

from onnxmem.placement.problem import Int64Array
from onnxmem.session.planned.floors import Products, Search, step_of
from onnxmem.session.planned.trace import OUTLIVES, Trace

# So many recordings in a row must have been predicted rightly; twice as many after each prediction that was wrong.
_CONFIRMATIONS = 2
# Below so many recordings nothing is certain; after so many without success nothing will be.
_FIRST, _LAST = 4, 48
# A search takes some milliseconds. After one that led to nothing, so much more must have been seen before the next.
_MORE = 1.3
# A size for which there is no formula stays on the heap, if all of those are at most this part of the whole and so many
# recordings had no formula for it.
_HARDLY, _ENOUGH = 0.02, 8
_MOST_BUFFERS, _MOST_SIZES, _MOST_ORDERS = 20_000, 200, 4
# Sums are sought of these many of the sizes that are products.
_MOST_ADDENDS = 8

ANY = 0
"""In place of a size: it may be any."""


class Formulas:
    """Everything that is known about the shapes of one model. Not for several threads at once."""

    def __init__(self) -> None:
        self._orders: dict[Any, list[_Order]] = {}

    def learn(self, kind: Any, dims: tuple[int, ...], trace: Trace) -> None:
        """Take a recording. Those of another `kind` (other inputs are given, or other outputs wanted) are apart."""
        orders = self._orders.setdefault(kind, [])
        order = next((each for each in orders if each.same(trace)), None)
        if order is not None:
            orders.remove(order)
        elif len(orders) < _MOST_ORDERS and len(trace) <= _MOST_BUFFERS:
            order = _Order(trace)
        else:
            return
        orders.append(order)  # the last one is the one to go by
        order.learn(dims, trace.sizes)

    def predict(self, kind: Any, dims: tuple[int, ...]) -> Trace | None:
        """What a run of this shape will ask for; None if that is not certain."""
        orders = self._orders.get(kind)
        return orders[-1].predict(dims) if orders else None

    def failed(self, kind: Any) -> None:
        """A prediction was wrong: more of them must be right before the next one counts."""
        for order in self._orders.get(kind, ()):
            order.confirmed = 0
            order.needed *= 2


class _Order:
    """Recordings that made the same calls in the same order."""

    def __init__(self, trace: Trace) -> None:
        self.lowers, self.uppers, self.alignment = trace.lowers, trace.uppers, trace.alignment
        self.dims: list[tuple[int, ...]] = []
        # Which of the different sizes each buffer has; and those, one row per recording.
        self.which = np.zeros(len(trace), np.int64)
        self.sizes: list[Int64Array] = []
        self.fit: _Fit | None = None
        self.next_search = _FIRST
        self.confirmed, self.needed, self.given_up = 0, _CONFIRMATIONS, False

    def same(self, trace: Trace) -> bool:
        return np.array_equal(self.lowers, trace.lowers) and np.array_equal(self.uppers, trace.uppers)

    def predict(self, dims: tuple[int, ...]) -> Trace | None:
        sizes = self._predicted(dims) if self.confirmed >= self.needed else None
        if sizes is None:
            return None
        # A buffer of any size is on the heap, and may be freed at any time.
        return Trace(sizes, self.lowers, np.where(sizes == ANY, OUTLIVES, self.uppers), alignment=self.alignment)

    def learn(self, dims: tuple[int, ...], sizes: Int64Array) -> None:
        if self.given_up or dims in self.dims:
            return
        predicted = self._predicted(dims)
        if predicted is not None:
            right = bool(((predicted == sizes) | (predicted == ANY)).all())
            self.confirmed = self.confirmed + 1 if right else 0
        if self._add(dims, sizes) or self.fit is None or not self.fit.narrow(dims, self.sizes[-1]):
            self.fit = None
        if (self.fit is None or not self.fit.complete) and len(self.dims) >= self.next_search:
            self.fit = _Fit(np.array(self.dims, np.int64), np.array(self.sizes, np.int64))
            self.next_search = int(len(self.dims) * _MORE) + 1
        # Enough has been seen to know, or to know that it will not be known.
        self.given_up = len(self.dims) >= _LAST or len(self.sizes[-1]) > _MOST_SIZES

    def _add(self, dims: tuple[int, ...], sizes: Int64Array) -> bool:
        """One more row; True if sizes that were always the same are not any longer."""
        before = int(self.which.max(initial=-1)) + 1
        _, firsts, which = np.unique(
            np.stack([self.which, sizes]), axis=1, return_index=True, return_inverse=True
        )  # fmt: skip
        split = len(firsts) != before
        if split:
            self.sizes = [row[self.which[firsts]] for row in self.sizes]
            self.which = which.reshape(-1)
        self.dims.append(dims)
        self.sizes.append(sizes[firsts])
        return split

    def _predicted(self, dims: tuple[int, ...]) -> Int64Array | None:
        found = self.fit.predict(dims) if self.fit else None
        if found is None:
            return None
        sizes = found[self.which]
        unknown = sizes == ANY
        if unknown.any():
            seen = np.max(self.sizes, axis=0)[self.which]
            if len(self.dims) < _ENOUGH or seen[unknown].sum() > _HARDLY * sizes.sum():
                return None
        return sizes


class _Fit:
    """A formula for each of the different sizes: one column of `sizes`, which has one row per shape, as `dims` has."""

    def __init__(self, dims: Int64Array, sizes: Int64Array) -> None:
        self.base, self.first = dims[0], sizes[0]
        # Dimensions that always were equal are one variable, and those that never changed are none.
        same: dict[bytes, int] = {}
        self.like = [same.setdefault(column.tobytes(), place) for place, column in enumerate(dims.T)]
        self.variables = [k for k in sorted(set(self.like)) if (dims[:, k] != dims[0, k]).any()]
        self.steps = [step_of(column) for column in dims.T]
        # Sizes in proportion have one product: of each kind, the first.
        kinds: dict[bytes, int] = {}
        common = np.gcd.reduce(sizes, axis=0)
        self.kind = [kinds.setdefault((column // by).tobytes(), k)
                     for k, (column, by) in enumerate(zip(sizes.T, common, strict=True))]  # fmt: skip
        self.constant = [k for k in kinds.values() if (sizes[:, k] == sizes[0, k]).all()]
        search = Search(dims[:, self.variables])
        found = {k: search.products(sizes[:, k]) for k in kinds.values() if k not in self.constant}
        self.products: dict[int, Products] = {k: each for k, each in found.items() if each is not None}
        self.sums: dict[int, _Sum] = {}
        addends = list(self.products)[:_MOST_ADDENDS]
        for k in found.keys() - self.products.keys():
            known = {each: sizes[:, each].tolist() for each in addends}
            if sum_ := _find_sum(known, sizes[:, k].tolist()):
                self.sums[k] = sum_

    @property
    def complete(self) -> bool:
        """Whether there is a formula for all of them."""
        return len(set(self.kind)) == len(self.constant) + len(self.products) + len(self.sums)

    def predict(self, dims: tuple[int, ...]) -> Int64Array | None:
        """The sizes, or ANY; None if the shape is unlike all that were seen, or the formulas that are left disagree."""
        shape = np.array(dims, np.int64)
        if not self._inside(shape):
            return None
        ratios: dict[int, tuple[int, int]] = dict.fromkeys(self.constant, (1, 1))
        for k, products in self.products.items():
            ratio = products.ratio(shape[self.variables])
            if ratio is None:
                return None
            ratios[k] = ratio
        for k, each in self.sums.items():
            value = each.of({a: _scaled(int(self.first[a]), ratios[a]) for a in each.addends})
            ratios[k] = (value, int(self.first[k]))
        scaled = [_scaled(int(first), ratios.get(kind, (ANY, 1)))
                  for first, kind in zip(self.first, self.kind, strict=True)]  # fmt: skip
        return np.array(scaled, np.int64)

    def narrow(self, dims: tuple[int, ...], sizes: Int64Array) -> bool:
        """Drop the products that are wrong for one more shape; False if no formula is left for a size that had one."""
        shape = np.array(dims, np.int64)
        if not self._inside(shape):
            return False
        ratios = {k: (int(sizes[k]), int(self.first[k])) for k in set(self.kind)}
        for size, first, kind in zip(sizes.tolist(), self.first.tolist(), self.kind, strict=True):
            if size * ratios[kind][1] != first * ratios[kind][0]:
                return False
        for k, products in self.products.items():
            self.products[k] = products.left(shape[self.variables], ratios[k])
        sums = (each.of({a: int(sizes[a]) for a in each.addends}) == sizes[k] for k, each in self.sums.items())
        return (
            all(map(len, self.products.values())) and all(sums) and all(len({*ratios[k]}) == 1 for k in self.constant)
        )

    def _inside(self, shape: Int64Array) -> bool:
        steps = np.array(self.steps)
        off = shape - self.base
        # A step of 0: the dimension never changed.
        return bool((shape == shape[self.like]).all() and (off % np.maximum(steps, 1) == 0).all()
                    and (off[steps == 0] == 0).all())  # fmt: skip


def _scaled(first: int, ratio: tuple[int, int]) -> int:
    """A size from the one that was seen first; ANY if that is not a whole number."""
    value, rest = divmod(first * ratio[0], ratio[1])
    return value if rest == 0 and 0 < value < 2**62 else ANY


class _Sum:
    """A size as the sum of products of other sizes: (1, 3/2) of ((), (4, 4)) is 1 + 3/2 times the square of size 4."""

    def __init__(self, terms: Sequence[tuple[int, ...]], factors: Sequence[tuple[int, int]]) -> None:
        self.terms, self.factors = terms, factors
        self.addends = {each for term in terms for each in term}

    def of(self, sizes: dict[int, int]) -> int:
        common = prod(below for _, below in self.factors)
        total = sum(prod(sizes[each] for each in term) * above * (common // below)
                    for term, (above, below) in zip(self.terms, self.factors, strict=True))  # fmt: skip
        value, rest = divmod(total, common)
        return value if rest == 0 and value > 0 else ANY


def _find_sum(known: dict[int, list[int]], goal: list[int]) -> _Sum | None:
    """The first sum that gives these sizes; None if there is none, or too few were seen to tell."""
    for terms in _sums(list(known)):
        if len(goal) < len(terms) + 3:
            continue
        rows = [[prod(known[each][row] for each in term) for term in terms] + [goal[row]] for row in range(len(goal))]
        if factors := _solve(rows):
            return _Sum(terms, factors)
    return None


def _sums(kinds: list[int]) -> Iterator[Sequence[tuple[int, ...]]]:
    """What is worth a try, the simple ones first: a token more, outputs of several scales, the square of either."""
    yield from ([(), (a,)] for a in kinds)
    yield from ([(a,), (b,)] for a, b in combinations(kinds, 2))
    yield from ([(), (a,), (a, a)] for a in kinds)
    yield from ([(), (a,), (b,)] for a, b in combinations(kinds, 2))
    yield from ([(a,), (b,), (c,)] for a, b, c in combinations(kinds, 3))


def _solve(rows: list[list[int]]) -> list[tuple[int, int]] | None:
    """Factors, as fractions, that make the last column of all other ones; None unless there is exactly one answer."""
    count = len(rows[0]) - 1
    for k in range(count):
        place = next((r for r in range(k, len(rows)) if rows[r][k]), None)
        if place is None:
            return None
        rows[k], rows[place] = rows[place], rows[k]
        for r, row in enumerate(rows):
            if r != k and row[k]:
                mixed = [a * rows[k][k] - b * row[k] for a, b in zip(row, rows[k], strict=True)]
                common = gcd(*mixed) or 1
                rows[r] = [each // common for each in mixed]
    if any(row[count] for row in rows[count:]):
        return None
    return [(rows[k][count], rows[k][k]) for k in range(count)]
