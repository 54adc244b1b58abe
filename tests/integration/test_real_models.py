"""Estimates of real networks: the figures that are known, and no crash on any of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.real_models import find, real_models
from onnxmem import zoo
from onnxmem.estimation.estimate import Estimate, estimate
from onnxmem.model.model import Model
from onnxmem.placement.validate import validate_plan
from onnxmem.schedule.scheduled import Question
from onnxmem.schedule.storages import Rules

MIB = 2**20
Fetch = Callable[[str], Path]
KEYS = [model.key for model in real_models() if not model.member.endswith(".ort")]


def ask(path: Path, key: str, **options: object) -> Estimate:
    return estimate(Model.open(path), Question(shapes=find(key).shapes, dims={}, **options), time_limit=1.0)  # type: ignore[arg-type]


@pytest.mark.models
@pytest.mark.parametrize("in_place", [False, True])
def test_the_text_detector_needs_what_is_known_of_it(real_model: Fetch, in_place: bool) -> None:
    rules = Rules(alias=in_place, in_place=in_place)
    found = {
        order: ask(real_model("det"), "det", level="extended", order=order, rules=rules)
        for order in ("file", "depth-first")
    }
    naive = found["file"].scheduled.problem.total / MIB
    bounds = {order: result.scheduled.problem.lower_bound / MIB for order, result in found.items()}
    if in_place:
        assert naive <= 357.7
        assert bounds["file"] <= 44.54
        assert bounds["depth-first"] <= 37.51
    else:
        assert naive == pytest.approx(357.7, abs=0.05)
        assert bounds["file"] == pytest.approx(44.53, abs=0.005)
        assert bounds["depth-first"] == pytest.approx(37.5, abs=0.005)


@pytest.mark.models
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("view", ["raw", "optimized"])
def test_every_real_model_is_estimated(real_model: Fetch, key: str, view: str) -> None:
    check(ask(real_model(key), key, view=view))


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "densenet121", "inception", "googlenet", "squeezenet",
                                  "shufflenet", "mobilenet", "transformer", "lstm", "unet", "yolo"])  # fmt: skip
def test_every_network_of_the_zoo_is_estimated_with_its_formula(name: str) -> None:
    result = estimate(Model.of(zoo.build(name), name), Question(shapes={}, dims={}), time_limit=1.0)
    check(result)
    assert not result.unknown
    assert result.formula is not None
    assert result.table


def check(result: Estimate) -> None:
    bound = result.scheduled.problem.lower_bound
    best = next(plan for plan in result.plans if plan.strategy == "best")
    for plan in result.plans:
        validate_plan(plan)
        assert bound <= best.peak <= plan.peak <= max(result.scheduled.problem.total, 1)
    for tensor in result.unknown:
        assert tensor.size.reason  # type: ignore[union-attr]
    counted = {tensor.name for span in result.scheduled.timeline.spans for tensor in span.tensors}
    assert counted or result.unknown, "a model that takes no memory at all would be news"
