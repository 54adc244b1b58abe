"""The peak of a mode as a formula: right at sizes that it was not made from, and none where it would not be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, save

import onnxmem
from onnxmem import Unknown, predict
from onnxmem.estimation.estimate import Estimate
from onnxmem.prediction.prediction import Forecast, ModeFormula
from tests.helpers import model_of


def forecasts(path: Path, **asked: int) -> dict[str, Forecast]:
    found = onnxmem.estimate(path, threads=1, dims=asked).processes
    assert not isinstance(found, Unknown)
    return {forecast.mode: forecast for forecast in found}


def test_a_planned_peak_is_a_formula_that_holds_elsewhere(unet: Path) -> None:
    found = forecasts(unet)["planned"]
    formula = found.formula
    assert isinstance(formula, ModeFormula)
    assert set(formula.range) == {"batch", "height", "width"} and formula.error < 1e-6 and formula.checked >= 3
    assert formula.at({"batch": 1, "height": 224, "width": 224}) == found.peak
    for dims in ({"batch": 3, "height": 248, "width": 888}, {"batch": 11, "height": 520, "width": 304}):
        assert formula.at(dims) == predict(unet, mode="planned", dims=dims, threads=1).peak


def test_dimensions_that_are_given_are_numbers_in_it(unet: Path) -> None:
    formula = forecasts(unet, height=256, width=256)["planned"].formula
    assert isinstance(formula, ModeFormula) and list(formula.range) == ["batch"]
    dims = {"batch": 7, "height": 256, "width": 256}
    assert formula.at(dims) == predict(unet, mode="planned", dims=dims, threads=1).peak
    everything = forecasts(unet, batch=1, height=256, width=256)["planned"].formula
    assert everything == Unknown("estimate finds it, for dimensions that are left open")


def test_what_jumps_is_no_formula(unet: Path) -> None:
    stock = forecasts(unet)["stock"].formula
    assert isinstance(stock, Unknown) and "powers of two" in stock.reason


def test_an_arena_without_jumps_has_one(tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    save(model_of(nodes, {"x": ["n", 65536]}, ["y"]), path)
    for mode, forecast in forecasts(path).items():
        formula = forecast.formula
        assert isinstance(formula, ModeFormula), (mode, formula)
        forecast_there = predict(path, mode=mode, dims={"n": 13}, threads=1)
        assert formula.at({"n": 13}) == pytest.approx(forecast_there.peak, rel=0.005)


def test_loading_decides_where_runs_take_less(tmp_path: Path) -> None:
    """Below the size at which runs take more than loading did, only the inputs grow."""
    path = tmp_path / "wide.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "v"], ["y"])]
    weights = {"w": np.ones((8, 131072), np.float32), "v": np.ones((131072, 1), np.float32)}
    save(model_of(nodes, {"x": ["n", 8]}, ["y"], weights), path)
    formula = forecasts(path)["planned"].formula
    assert isinstance(formula, ModeFormula) and len(formula.terms) == 2 and formula.text.startswith("max(32*n + ")
    for n in (2, 15):
        assert formula.at({"n": n}) == predict(path, mode="planned", dims={"n": n}, threads=1).peak


def test_a_size_that_depends_on_what_is_fed_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "fed.onnx"
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=1)]
    save(model_of(nodes, {"x": ["n", 8]}, ["y"]), path)
    for forecast in forecasts(path).values():
        assert isinstance(forecast.formula, Unknown)


def test_formulas_come_back_as_they_were_saved(unet: Path) -> None:
    found = onnxmem.estimate(unet, threads=1)
    document = json.loads(json.dumps(found.document()))
    assert Estimate.from_document(document) == found
    rows = {row["mode"]: row for row in document["processes"]}
    assert set(rows["planned"]["formula"]) >= {"text", "terms", "range"}
    assert rows["stock"]["formula"] is None and rows["stock"]["unknown"]["formula"]
