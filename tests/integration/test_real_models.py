"""Estimates of real networks: the figures that are known, and no crash on any of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.real_models import find, real_models
from onnxmem import zoo
from onnxmem.errors import ImpossibleShapes
from onnxmem.estimation import planning
from onnxmem.estimation.estimate import Estimate, estimate
from onnxmem.model.model import Model

MIB = 2**20
Fetch = Callable[[str], Path]
KEYS = [model.key for model in real_models() if not model.member.endswith(".ort")]


def ask(path: Path, key: str, **options: object) -> Estimate:
    return estimate(path, shapes=find(key).shapes, **options)  # type: ignore[arg-type]


@pytest.mark.models
@pytest.mark.parametrize("in_place", [False, True])
def test_the_text_detector_needs_what_is_known_of_it(real_model: Fetch, in_place: bool) -> None:
    found = {
        order: ask(real_model("det"), "det", level="extended", order=order, alias=in_place, in_place=in_place)
        for order in ("file", "depth-first")
    }
    naive = found["file"].activations.naive_bytes / MIB
    bounds = {order: result.activations.lower_bound_bytes / MIB for order, result in found.items()}
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


@pytest.mark.models
@pytest.mark.parametrize("time_limit", [1.0, 20.0])
def test_the_time_limit_holds_for_all_of_it(real_model: Fetch, time_limit: float) -> None:
    """Its formula took 40 s, whatever the limit. By the processor's clock: others may be using the machine."""
    path, started = real_model("swift_f0"), time.process_time()
    check(estimate(path, time_limit=time_limit))
    assert time.process_time() - started < min(time_limit, 8) + 1


@pytest.mark.models
def test_shapes_that_contradict_the_model_are_refused(real_model: Fetch) -> None:
    with pytest.raises(ImpossibleShapes, match="cannot take inputs of") as caught:
        estimate(real_model("det"), shapes={"x": (1, 3, 641, 641)})
    assert "1×3×641×641" in caught.value.hint


@pytest.mark.models
def test_a_model_with_a_branch_for_other_sizes_is_asked_for_tiles(real_model: Fetch) -> None:
    path, shapes = real_model("silero"), {"input": (1, 576), "state": (2, 1, 128)}
    planned = planning.plan(path, shapes=shapes, tile=True)
    for tiling in (planned.tiling, estimate(path, shapes=shapes, tile=True, processes=False).tiling):
        assert tiling is not None and tiling.note and not tiling.parts
    assert planned.peak_bytes == planning.plan(path, shapes=shapes).peak_bytes


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "densenet121", "inception", "googlenet", "squeezenet",
                                  "shufflenet", "mobilenet", "transformer", "lstm", "unet", "yolo"])  # fmt: skip
def test_every_network_of_the_zoo_is_estimated_with_its_formula(name: str) -> None:
    result = estimate(Model.of(zoo.build(name), name))
    check(result)
    assert not result.activations.unknown
    assert result.formula is not None
    assert result.table


def check(result: Estimate) -> None:
    found = result.activations
    best = next(plan for plan in found.strategies if plan.name == "best")
    for plan in found.strategies:
        assert found.lower_bound_bytes <= best.peak_bytes <= plan.peak_bytes <= max(found.naive_bytes, 1)
    assert all(tensor.reason for tensor in found.unknown)
    assert found.placement or found.unknown, "a model that takes no memory at all would be news"
    assert Estimate.from_document(json.loads(json.dumps(result.document()))) == result
