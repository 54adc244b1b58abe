"""Dimensions obey integer arithmetic, and equal ones look equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.model.comparing import certainly_at_least, evaluate, evaluate_range, maximum, minimum, substitute
from onnxmem.model.dims import Dim, Expr, ceil_div, floor_div, product, symbol, symbols_of, total

H, W, N = symbol("H"), symbol("W"), symbol("N")
NAMES = ("H", "W", "N")
Plain = Callable[[Mapping[str, int]], int]
Pair = tuple[Dim, Plain]

positive_values = st.fixed_dictionaries({name: st.integers(1, 60) for name in NAMES})


def _leaf(number: int) -> Pair:
    return number, lambda _: number


def _symbol(name: str) -> Pair:
    return symbol(name), lambda values: values[name]


def _both(dims: Callable[..., Dim], plain: Callable[..., int], *parts: Pair) -> Pair:
    return dims(*(dim for dim, _ in parts)), lambda values: plain(*(number(values) for _, number in parts))


def _branches(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    divisor = st.integers(-9, 9).filter(bool).map(_leaf) | st.sampled_from(NAMES).map(_symbol)
    return st.one_of(
        st.tuples(inner, inner).map(lambda ab: _both(lambda a, b: a + b, lambda a, b: a + b, *ab)),
        st.tuples(inner, inner).map(lambda ab: _both(lambda a, b: a - b, lambda a, b: a - b, *ab)),
        st.tuples(inner, inner).map(lambda ab: _both(lambda a, b: a * b, lambda a, b: a * b, *ab)),
        st.tuples(inner, divisor).map(lambda ab: _both(lambda a, b: a // b, lambda a, b: a // b, *ab)),
        st.tuples(inner, divisor).map(lambda ab: _both(lambda a, b: a % b, lambda a, b: a % b, *ab)),
        st.tuples(inner, divisor).map(lambda ab: _both(ceil_div, lambda a, b: -(-a // b), *ab)),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: _both(maximum, lambda *n: max(n), *items)),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: _both(minimum, lambda *n: min(n), *items)),
        st.lists(inner, max_size=3).map(lambda items: _both(lambda *d: total(d), lambda *n: sum(n), *items)),
        st.lists(inner, max_size=3).map(
            lambda items: _both(lambda *d: product(d), lambda *n: reduce(lambda a, b: a * b, n, 1), *items)
        ),
    )


pairs = st.recursive(st.integers(-20, 20).map(_leaf) | st.sampled_from(NAMES).map(_symbol), _branches, max_leaves=8)


@given(pairs, positive_values)
def test_expressions_are_integer_arithmetic(pair: Pair, values: dict[str, int]) -> None:
    dim, plain = pair
    assert evaluate(dim, values) == plain(values)
    assert symbols_of(dim) <= set(NAMES)


@given(pairs, positive_values, st.sampled_from(NAMES))
def test_substitution_may_happen_in_any_order(pair: Pair, values: dict[str, int], first: str) -> None:
    dim, plain = pair
    partly = substitute(dim, {first: values[first]})
    assert first not in symbols_of(partly)
    assert evaluate(partly, values) == plain(values)


@given(pairs, st.fixed_dictionaries(dict.fromkeys(NAMES, pairs)), positive_values)
def test_expressions_can_replace_symbols(pair: Pair, others: dict[str, Pair], values: dict[str, int]) -> None:
    dim, plain = pair
    inner = {name: number(values) for name, (_, number) in others.items()}
    if all(number > 0 for number in inner.values()):
        replaced = substitute(dim, {name: other for name, (other, _) in others.items()})
        assert evaluate(replaced, values) == plain(inner)


@given(pairs, pairs, positive_values)
def test_certainty_is_never_wrong(left: Pair, right: Pair, values: dict[str, int]) -> None:
    if certainly_at_least(left[0], right[0]):
        assert left[1](values) >= right[1](values)


@given(pairs, pairs, positive_values, positive_values)
def test_certainty_above_given_sizes_is_never_wrong(
    left: Pair, right: Pair, smallest: dict[str, int], more: dict[str, int]
) -> None:
    if certainly_at_least(left[0], right[0], smallest):
        for values in (smallest, {name: smallest[name] + more[name] for name in NAMES}):
            assert left[1](values) >= right[1](values)


@given(pairs)
def test_an_expression_is_never_a_number_in_disguise(pair: Pair) -> None:
    dim, _ = pair
    if isinstance(dim, Expr):
        assert any(monomial for monomial, _ in dim.terms)
        assert all(coefficient for _, coefficient in dim.terms)
        assert dim - dim == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ceil_div(ceil_div(H, 2), 2), (H + 3) // 4),
        (ceil_div(ceil_div(ceil_div(H, 2), 2), 2), ceil_div(H, 8)),
        (((H - 1) // 2 + 1 - 1) // 2 + 1, (H + 3) // 4),
        (H // 2 // 3, H // 6),
        ((4 * H + 8 * W) // 4, H + 2 * W),
        ((6 * H + 4) // 4, H + (2 * H + 4) // 4),
        ((H * W * 3) // (H * 3), W),
        (H * (W + 1) - H, W * H),
        (maximum(H, W), maximum(W, H)),
        (maximum(H, H + 1, 1), H + 1),
        (maximum(H, maximum(W, N)), maximum(N, H, W)),
        (minimum(H, H * W), H),
        (minimum(512, maximum(512, H)), 512),
        ((H + 7) % 1, 0),
        (H - H % 4, 4 * (H // 4)),
    ],
)
def test_equal_dimensions_compare_equal(one: Dim, other: Dim) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other)


@pytest.mark.parametrize(
    ("left", "right"),
    [(H, 1), (H + 1, H), (H * W, H), (2 * H, H + 1), ((H + 3) // 4, 1), (maximum(512, H), 512), (H, 0)],
)
def test_what_is_obvious_is_proven(left: Dim, right: Dim) -> None:
    assert certainly_at_least(left, right)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (symbol("batch") * 4, "4*batch"),
        (4 * H * W + 12, "4*H*W + 12"),
        ((W + 7) // 8, "((W + 7)//8)"),
        (H - W, "H - W"),
        (-H, "-H"),
        (H * H, "H^2"),
        (minimum(H, 512), "min(512, H)"),
        (maximum(H, W) * 2, "2*max(H, W)"),
    ],
)
def test_dimensions_read_as_people_write_them(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_division_by_zero_and_missing_values_are_errors() -> None:
    with pytest.raises(ZeroDivisionError):
        floor_div(H, 0)
    with pytest.raises(KeyError, match="W"):
        evaluate(H * W, {"H": 2})
    with pytest.raises(ZeroDivisionError):
        evaluate(N // (H - W), {"H": 2, "W": 2, "N": 1})


def test_floors_within_floors_stay_fast() -> None:
    """Each step halves a sum of the one before it: texts that were not remembered took exponential time."""
    dim: Dim = H
    for _ in range(60):
        dim = (dim + W) // 2 + N // 3
    assert evaluate(dim, {"H": 7, "W": 5, "N": 9}) == 10


def test_proofs_about_many_maxima_end() -> None:
    """Every maximum is a case for each of its items: to try them all would take longer than anyone lives."""
    left = total(maximum(H * k, W * W + k, N + 7 * k) for k in range(2, 60))
    assert not certainly_at_least(left, total([*(H * k for k in range(2, 60)), W]))
    assert certainly_at_least(maximum(H, W) + maximum(W, N), H + N)


@given(st.integers(1, 50), st.integers(1, 9))
def test_a_range_of_values_is_each_value(first: int, divisor: int) -> None:
    dim = maximum(H * H - 40, ceil_div(H, divisor) * 3, 17) + 2**70 * H
    numbers = range(first, first + 20)
    assert evaluate_range(dim, "H", numbers) == [evaluate(dim, {"H": number}) for number in numbers]
    assert evaluate_range(5, "H", numbers) == [5] * 20
