"""Same answers or not: figures, shapes, NaN, and who is the reference."""

import numpy as np
import pytest

from onnxmem.comparison.parity import compare_outputs, difference, judge_parity

ONES = np.linspace(-1, 1, 100, dtype=np.float32)


def test_rounding_is_the_same_answer() -> None:
    found = difference("b", "64", "y", ONES, ONES + np.float32(1e-6), 1e-4)
    assert found.same and found.max_abs == pytest.approx(1e-6, rel=0.2)
    assert found.max_rel == pytest.approx(1e-6, rel=0.2) and found.cosine == pytest.approx(1)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ONES + np.float32(0.01), "differs by 0.01"),
        (-ONES, "cosine -1"),
        (ONES[:50], "its shape is [50]"),
        (np.where(ONES > 0.5, np.nan, ONES), "NaN"),
    ],
)
def test_other_answers_say_how_they_differ(other: np.ndarray, said: str) -> None:
    found = difference("b", "64", "y", ONES, other, 1e-4)
    assert not found.same and said in str(found)


def test_tiny_values_have_to_agree_too() -> None:
    tiny = np.random.default_rng(0).standard_normal(100) * 1e-7
    assert not difference("b", "64", "y", tiny, -tiny, 1e-4).same
    assert difference("b", "64", "y", tiny, tiny.copy(), 1e-4).same


def test_nan_in_the_same_places_is_the_same() -> None:
    values = np.where(ONES > 0.5, np.nan, ONES)
    assert difference("b", "64", "y", values, values.copy(), 1e-4).same


def test_outputs_are_matched_by_name_or_else_by_place() -> None:
    wanted = [("y", ONES), ("z", ONES * 2)]
    assert all(d.same for d in compare_outputs("b", "64", wanted, [("z", ONES * 2), ("y", ONES)], 1e-4))
    assert all(d.same for d in compare_outputs("b", "64", wanted, [("0", ONES), ("1", ONES * 2)], 1e-4))
    (missing,) = compare_outputs("b", "64", wanted, wanted[:1], 1e-4)
    assert not missing.same and "it has 1 outputs" in missing.reason


def test_the_first_is_the_reference_and_text_is_compared_exactly() -> None:
    words = np.array(["a", "b"])
    outputs = {"a": {"1": [("y", words)]}, "b": {"1": [("y", words.copy())]}, "c": {"1": [("y", words[::-1])]}}
    parity = judge_parity(outputs, 1e-4)
    assert parity.reference == "a" and not parity.same
    assert parity.agrees("a") and parity.agrees("b") and not parity.agrees("c")
    assert judge_parity({}, 1e-4).same


def test_equal_is_bit_for_bit() -> None:
    zeros = np.zeros(3, np.float32)
    for value in (ONES, np.array(["a"]), np.array([np.nan])):
        assert difference("b", "64", "y", value, value.copy(), 1e-4).equal
    for value, other in ((zeros, -zeros), (zeros, zeros.astype(np.float64)), (ONES, ONES + np.float32(1e-6))):
        found = difference("b", "64", "y", value, other, 1e-4)
        assert found.same and not found.equal
    alone = judge_parity({"a": {"1": [("y", ONES)]}}, 1e-4)
    both = judge_parity({"a": {"1": [("y", ONES)]}, "b": {"1": [("y", ONES.copy())]}}, 1e-4)
    assert alone.same and not alone.equal
    assert both.equal and both.document()["equal"]
