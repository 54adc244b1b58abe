"""Sizes of shapes that never ran: what is predicted is right, and after a few recordings most is predicted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxmem.session.planned import floors
from onnxmem.session.planned.floors import Search
from onnxmem.session.planned.formulas import ANY, Formulas
from onnxmem.session.planned.trace import OUTLIVES, Trace

Size = Callable[[tuple[int, ...]], int]


def trace(sizes: list[int]) -> Trace:
    """One buffer after the other, each freed when the next but one is there; the last is an output."""
    lowers = np.arange(len(sizes)) * 2
    uppers = np.append(lowers[:-1] + 3, OUTLIVES)
    return Trace(np.array(sizes, np.int64), lowers, uppers)


class Model:
    """What a model would ask for."""

    def __init__(self, *sizes: Size) -> None:
        self.sizes = sizes

    def run(self, dims: tuple[int, ...]) -> Trace:
        return trace([size(dims) for size in self.sizes])


def played(model: Model, shapes: list[tuple[int, ...]]) -> list[bool]:
    """Which shapes were predicted, in a session that records the others. Predictions must be right."""
    formulas, predicted = Formulas(), []
    for dims in shapes:
        found, true = formulas.predict("", dims), model.run(dims)
        predicted.append(found is not None)
        if found is None:
            formulas.learn("", dims, true)
        else:
            assert ((found.sizes == true.sizes) | (found.sizes == ANY)).all()
            assert np.array_equal(found.lowers, true.lowers)
            assert np.array_equal(found.uppers, np.where(found.sizes == ANY, OUTLIVES, true.uppers))
    return predicted


def shapes(count: int, *ranges: range, seed: int = 0) -> list[tuple[int, ...]]:
    chance = np.random.default_rng(seed)
    return [tuple(int(chance.choice(values)) for values in ranges) for _ in range(count)]


@st.composite
def terms(draw: st.DrawFn) -> tuple[int, int, int]:
    divisor = draw(st.sampled_from((1, 2, 4, 8, 16, 32, 3, 14)))
    return draw(st.sampled_from((0, 1, 1, 1, 2))), divisor, draw(st.integers(-divisor, divisor))


@st.composite
def products(draw: st.DrawFn, variables: int) -> Size:
    factor = draw(st.integers(1, 5000))
    chosen = [draw(terms()) for _ in range(variables)]
    return lambda dims: factor * prod(((d + p) // m) ** e for d, (e, m, p) in zip(dims, chosen, strict=True))


@given(st.data(), st.integers(1, 2), st.integers(0, 99))
def test_a_prediction_is_right(data: st.DataObject, variables: int, seed: int) -> None:
    model = Model(*data.draw(st.lists(products(variables), min_size=1, max_size=4)))
    played(model, shapes(25, *[range(64, 300)] * variables, seed=seed))


@settings(max_examples=8)
@given(st.data())
def test_all_that_fits_is_found(data: st.DataObject) -> None:
    """Against trying every pair of terms."""
    size = data.draw(products(2))
    dims = np.array(data.draw(st.lists(st.tuples(*[st.integers(130, 200)] * 2), min_size=4, max_size=5, unique=True)))
    assume(all(len(set(column)) > 1 for column in dims.T.tolist()))
    sizes = np.array([size(tuple(row)) for row in dims.tolist()], np.int64)
    search = Search(dims)
    found = search.products(sizes)
    (first, one), (second, two) = search.tables
    some, expected, count = set(range(0, len(one), 17)), set(), 0
    for a, values in enumerate(one):
        both = values * two
        fitting = np.flatnonzero((both * sizes[0] == both[:, :1] * sizes).all(axis=1)).tolist()
        count += len(fitting)
        expected |= {(*_row(first, a), *_row(second, b)) for b in fitting} if a in some else set()
    if found is None:
        assert count == 0 or count > floors._MOST
        return
    assert len(found) == count
    columns = (found.powers, found.divisors, found.shifts)
    rows = {tuple(int(c[row, k]) for k in search.order for c in columns) for row in range(len(found))}
    assert {row for row in rows if row[:3] in {_row(first, a) for a in some}} == expected


def _row(terms: floors.Terms, row: int) -> tuple[int, ...]:
    return tuple(int(column[row]) for column in vars(terms).values())


def test_a_detector_is_known_after_a_few_images() -> None:
    sizes = [lambda d, c=c, s=s: c * (d[0] // s) * (d[1] // s) for c, s in ((64, 2), (96, 4), (128, 8), (256, 32))]
    done = played(Model(*sizes, lambda _: 4096), shapes(60, range(64, 640, 32), range(64, 640, 32)))
    assert sum(done) >= 50 and all(done[12:])


def test_a_recognizer_of_any_width_is_known_after_a_few_more() -> None:
    sizes = [lambda d, c=c, s=s: c * -(-d[0] // s) for c, s in ((64, 2), (96, 4), (128, 8))]
    done = played(Model(*sizes, lambda d: 32 * ((d[0] + 3) // 8) ** 2), shapes(150, range(32, 800)))
    assert sum(done) >= 130


def test_sums_of_products_are_known_too() -> None:
    """Outputs of three scales one behind the other; patches and a token; what attends to all of them."""

    def scale(stride: int) -> Size:
        return lambda dims: 4 * (-(-dims[0] // stride)) * (-(-dims[1] // stride))

    grid = [scale(stride) for stride in (8, 16, 32)]

    def tokens(dims: tuple[int, ...]) -> int:
        return (dims[0] // 14) * (dims[1] // 14) + 1

    model = Model(
        *grid, lambda d: 85 * sum(each(d) for each in grid), lambda d: 384 * (tokens(d) - 1),
        lambda d: 384 * tokens(d), lambda d: 24 * tokens(d) ** 2,
    )  # fmt: skip
    done = played(model, shapes(120, range(64, 640), range(64, 640)))
    assert sum(done[60:]) >= 50


def test_sound_has_hops() -> None:
    model = Model(lambda d: 4 * d[0], lambda d: 320 * ((d[0] - 400) // 160 + 1))
    assert sum(played(model, shapes(60, range(16000, 160000)))[30:]) >= 20


def test_what_hardly_matters_may_have_any_size() -> None:
    chance = np.random.default_rng(0)
    odd: dict[tuple[int, ...], int] = {}
    model = Model(lambda d: 4000 * d[0], lambda d: odd.setdefault(d, int(chance.integers(1, 200))), lambda d: 64 * d[0])
    assert sum(played(model, shapes(60, range(100, 800)))) >= 40


@pytest.mark.parametrize("size", [lambda d: 1000 * (d[0] * 7919 % 613 + 1), lambda d: 900 * int(d[0] ** 1.5)])
def test_what_matters_and_follows_no_rule_is_recorded(size: Size) -> None:
    assert not any(played(Model(lambda d: 4 * d[0], size), shapes(60, range(100, 800))))


def test_an_unlike_shape_is_recorded() -> None:
    """Another batch, sides that are no whole blocks, a second input that is not as long as the first any more."""
    model = Model(lambda d: d[0] * d[1] * 400, lambda d: d[2] * 4)
    formulas = Formulas()
    for side in range(32, 480, 32):
        formulas.learn("", (1, side, side), model.run((1, side, side)))
    assert formulas.predict("", (1, 640, 640)) is not None
    for dims in ((2, 640, 640), (1, 641, 641), (1, 640, 320)):
        assert formulas.predict("", dims) is None
    assert formulas.predict("other", (1, 640, 640)) is None


def test_after_a_wrong_prediction_more_must_be_right() -> None:
    formulas, model = Formulas(), Model(lambda d: d[0] * 64)
    sides = iter(range(10, 10000, 7))

    def until_predicted() -> int:
        for count in itertools.count():
            dims = (next(sides),)
            if formulas.predict("", dims):
                return count
            formulas.learn("", dims, model.run(dims))
        raise AssertionError

    counts = [until_predicted()]
    for _ in range(3):
        formulas.failed("")
        assert formulas.predict("", (20000,)) is None
        counts.append(until_predicted())
    assert counts[1:] == [4, 8, 16]


def test_another_order_is_apart() -> None:
    """Above a size the model makes other calls: each order has formulas of its own, and the last seen one counts."""
    small, large = (
        Model(lambda d: d[0] * 64, lambda d: d[0]),
        Model(lambda d: d[0] * 64, lambda d: d[0] * 2, lambda _: 8),
    )
    formulas = Formulas()
    for dims in shapes(20, range(10, 500)):
        formulas.learn("", dims, small.run(dims))
    found = formulas.predict("", (1000,))
    assert found is not None and len(found) == 2
    for dims in shapes(20, range(1000, 2000)):
        formulas.learn("", dims, large.run(dims))
    found = formulas.predict("", (5000,))
    assert found is not None and found == large.run((5000,))


def test_long_loops_and_many_sizes_are_left_alone() -> None:
    formulas = Formulas()
    for side in range(10, 40):
        formulas.learn("", (side,), trace([side * 8] * 30_000))
        formulas.learn("many", (side,), trace([side * k for k in range(1, 400)]))
    assert formulas.predict("", (100,)) is formulas.predict("many", (100,)) is None
