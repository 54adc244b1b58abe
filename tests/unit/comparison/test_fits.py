"""Memory as a function of the input: the form that the data say, its error, and where it is extrapolation."""

import json

import pytest

from onnxmem.comparison.fits import Fit, fit

SIZES = [1000, 4000, 9000, 16000, 25000]


def test_a_line_is_a_line() -> None:
    made = fit("a", [(n, 5e7 + 400 * n) for n in SIZES])
    assert made and made.form == "constant + linear"
    assert [made.constant, made.linear, made.quadratic] == pytest.approx([5e7, 400, 0])
    assert made.error < 1e-6 and made.left_out is not None and made.left_out < 1e-6


def test_attention_grows_with_the_square() -> None:
    made = fit("a", [(n, 5e7 + 300 * n + 0.5 * n**2) for n in SIZES])
    assert made and made.form == "constant + linear + quadratic"
    assert made.quadratic == pytest.approx(0.5)


def test_noise_adds_no_terms() -> None:
    wobble = [1.004, 0.997, 1.003, 0.996, 1.002]
    made = fit("a", [(n, (5e7 + 4000 * n) * w) for n, w in zip(SIZES, wobble, strict=True)])
    assert made and made.form == "constant + linear"


def test_what_does_not_grow_is_a_constant() -> None:
    made = fit("a", [(n, 5e7 + n) for n in SIZES])
    assert made and made.form == "constant"


def test_two_points_are_a_line_of_unknown_error_and_one_is_nothing() -> None:
    made = fit("a", [(100, 1e6), (200, 2e6)])
    assert made and made.form == "constant + linear" and made.left_out is None
    assert fit("a", [(100, 1e6)]) is None
    assert fit("a", [(100, 1e6), (100, 1.1e6)]) is None


def test_beyond_the_points_is_extrapolation() -> None:
    made = fit("a", [(n, 5e7 + 400 * n) for n in SIZES], [("twice", 50000), ("inside", 5000)])
    assert made and [each.extrapolated for each in made.predictions] == [True, False]
    assert made.predict("below", 999).extrapolated and not made.predict("at", 25000).extrapolated
    assert made.predictions[0].bytes == 70_000_000
    assert Fit.from_document(json.loads(json.dumps(made.document()))) == made


def test_larger_inputs_never_take_less() -> None:
    made = fit("a", [(1000, 9e7), (4000, 9.5e7), (9000, 9.8e7), (16000, 9.9e7)])
    assert made and made.quadratic >= 0 and made.linear >= 0
