"""The peak as a formula is the peak, at every size; its short form is right where it says it holds."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem import zoo
from onnxmem.model.comparing import evaluate, maximum
from onnxmem.model.dims import Dim, symbol
from onnxmem.model.model import Model
from onnxmem.schedule.formula import Formula, peak_formula
from onnxmem.schedule.search import OrderResult
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Span, Step, Timeline, lay_out
from tests.helpers import TINY
from tests.patience import patience

H, W = symbol("H"), symbol("W")


def timeline_of(*live: Dim) -> Timeline:
    """One buffer per step."""
    steps = tuple(Step(f"step {k}", "Op") for k in range(len(live)))
    spans = tuple(
        Span(id=f"t{k}", tensors=(), lower=k, upper=k + 1, size=size, kind="activation", producer=None, consumers=())
        for k, size in enumerate(live)
    )
    return Timeline(
        order="file", steps=steps, spans=spans, unknown=(), rules=Rules(), search=OrderResult([], 0, False, 0, 0.0)
    )


def formula_of(*live: Dim) -> Formula:
    formula = peak_formula(timeline_of(*live))
    assert formula is not None
    return formula


def text_at(text: str, values: dict[str, int]) -> float:
    """What a formula's text comes to, read as a person would."""
    return float(eval(text.replace("^", "**"), {"max": max, "min": min, "__builtins__": {}}, dict(values)))


@pytest.mark.parametrize("name", TINY)
def test_a_network_at_any_size(name: str) -> None:
    options, bindings = TINY[name]
    model = Model.of(zoo.build(name, **options))
    formula = peak_formula(lay_out(model.graph(view="raw"), "file"))
    assert formula is not None
    choose = random.Random(name)
    # Where ways of different depth meet again, sizes must be multiples of what the deepest divides by.
    step = 32 if name in ("enhancer", "unet", "yolo") else 1
    for smallest in bindings:
        # The transformer's table of positions ends at 32.
        more = {dim: 0 if dim == "sequence" else choose.randint(0, 40 // step) * step for dim in smallest}
        values = {dim: size + more[dim] for dim, size in smallest.items()}
        live = lay_out(model.graph(values, view="raw"), "file").live()
        assert formula.at(values) == max(evaluate(dim, {}) for dim in live)
    multiples = {dim: m * choose.randint(1, 3) for dim, m in formula.multiples.items()}
    large = {dim: size if dim == "sequence" else size * 8 for dim, size in multiples.items()}
    assert text_at(formula.text, large) == formula.at(large)


sizes = st.builds(
    lambda a, b, c, d, e: a * H * W + b * ((H + 1) // 2) * W + c * (H // 3) + d * W + e,
    *[st.integers(0, 9)] * 5,
)


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(1, 99), st.integers(1, 99))
def test_what_is_dropped_was_never_the_peak(live: list[Any], height: int, width: int) -> None:
    formula = peak_formula(timeline_of(*live))
    values = {"H": height, "W": width}
    expected = max(evaluate(dim, values) for dim in live)
    if formula is None:
        assert all(isinstance(dim, int) for dim in live)
        return
    assert formula.at(values) == expected
    on = {name: number * formula.multiples.get(name, 1) for name, number in values.items()}
    assert text_at(formula.text, on) == pytest.approx(max(evaluate(dim, on) for dim in live), rel=1e-9)


def test_pieces_say_where_they_hold() -> None:
    formula = formula_of(100 + 4 * H, 2 * H * H)
    assert [(piece.text, piece.smallest, piece.largest) for piece in formula.pieces] == [
        ("4*H + 100", 1, 8),
        ("2*H^2", 9, None),
    ]
    assert formula.text == "max(4*H + 100, 2*H^2)"
    assert formula.condition == "all sizes"


@given(st.lists(st.tuples(*[st.integers(0, 300)] * 3), min_size=2, max_size=4), st.integers(1, 400))
def test_pieces_cover_all_sizes_without_gaps(parts: list[tuple[int, int, int]], number: int) -> None:
    live: list[Dim] = [a * H * H + b * ((H + 3) // 4) + c for a, b, c in parts]
    formula = peak_formula(timeline_of(*live))
    if formula is None or formula.pieces[0].smallest is None:
        return
    m = formula.multiples["H"]
    size = number * m
    pieces = [p for p in formula.pieces if (p.smallest or 0) <= size and (p.largest is None or size <= p.largest)]
    assert len(pieces) == 1
    assert text_at(pieces[0].text, {"H": size}) == max(evaluate(dim, {"H": size}) for dim in live)


def test_multiples_make_floors_vanish() -> None:
    formula = formula_of(4 * ((H + 1) // 2) * ((W + 3) // 4), (((H + 1) // 2 + 1) // 2) * 3)
    assert formula.multiples == {"H": 4, "W": 4}
    assert formula.condition == "H a multiple of 4, W a multiple of 4"
    assert formula.text == "0.5*H*W"  # 0.75*H is less, now that W is at least 4


def test_floors_that_stay_are_written_in_the_dimensions_themselves() -> None:
    """A product under a floor cannot be made even; what is left must not be in units of 2 H."""
    formula = formula_of(8 * (H // 2) + 5 * ((H * W + 1) // 3))
    for height, width in ((2, 1), (6, 5), (10, 7)):
        values = {"H": height * formula.multiples["H"], "W": width * formula.multiples["W"]}
        assert text_at(formula.text, values) == formula.at(values)


def test_a_maximum_in_a_size_is_no_obstacle() -> None:
    formula = formula_of(4 * maximum(H, W), 4 * H + 4)
    for values in ({"H": 3, "W": 9}, {"H": 9, "W": 3}):
        assert text_at(formula.text, values) == formula.at(values) == max(4 * max(values.values()), 4 * values["H"] + 4)


def test_numbers_alone_need_no_formula() -> None:
    assert peak_formula(timeline_of(4, 8)) is None
    assert peak_formula(timeline_of()) is None


def test_the_time_limit_is_kept() -> None:
    live = [(k + 1) * (H // (k + 2)) * ((W + k) // 7) + (900 - k) * H for k in range(900)]
    started = time.monotonic()
    assert peak_formula(timeline_of(*live), time_limit=0.2) is None
    assert time.monotonic() - started < 0.2 + patience(2)
