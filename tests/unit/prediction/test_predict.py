"""A prediction holds together: parts add up, modes stand in the order one expects, and mistakes are told."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxmem
from onnxmem import Prediction, UsageError, predict
from onnxmem.model.model import Model
from onnxmem.prediction.loading import mapped_bytes
from onnxmem.prediction.predict import MODES, Subject
from onnxmem.schedule.scheduled import Question
from tests.helpers import model_of, saved

MIB = 1 << 20
SMALL = {"image": (1, 3, 128, 128)}


@pytest.mark.parametrize("mode", MODES)
def test_parts_add_up_and_documents_come_back(unet: Path, mode: str) -> None:
    found = predict(unet, shapes=SMALL, mode=mode, threads=1)
    assert sum(part.bytes for part in found.parts) == found.steady
    assert found.peak >= max(found.load_peak, found.steady)
    assert found.pss(1) == found.steady
    assert 3 * found.pss(1) > found.pss(3) > found.pss(1)
    assert Prediction.from_document(found.document()) == found


def test_modes_take_what_they_are_for(unet: Path, chain: Path) -> None:
    stock, tuned, planned = (
        predict(unet, shapes=SMALL, mode=mode, threads=1) for mode in ("stock", "tuned", "planned")
    )
    assert stock.run_growth > tuned.run_growth > planned.run_growth
    names = {part.name for part in stock.parts}
    assert "pattern" in names
    assert "pattern" not in {part.name for part in tuned.parts}
    external, prepacked = (predict(chain, mode=mode, threads=1) for mode in ("external", "prepacked"))
    assert external.pss(8) > prepacked.pss(8), "packed copies are private, saved ones are shared"


def test_a_larger_batch_takes_more(model: Path) -> None:
    assert predict(model, dims={"batch": 4096}).peak > predict(model, dims={"batch": 1}).peak


def test_modes_that_cannot_be_predicted_are_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="mode 'ort' cannot be predicted"):
        predict(model, mode="ort")
    with pytest.raises(UsageError, match="no mode 'nonsense'"):
        predict(model, mode="nonsense")


def test_an_estimate_has_a_forecast_for_each_mode(model: Path) -> None:
    found = onnxmem.estimate(model)
    assert not isinstance(found.processes, onnxmem.Unknown)
    assert [forecast.mode for forecast in found.processes] == list(MODES)
    raw = onnxmem.estimate(model, view="raw")
    assert isinstance(raw.processes, onnxmem.Unknown)


@pytest.fixture
def few_bits(tmp_path: Path) -> Path:
    """Products with weights of eight bits, which become floats beside the arena, one after the other."""
    depth, block, names = 512, 32, ("a", "b", "c")
    weights = {f"{name}_w": np.ones((depth, depth // block, block), np.uint8) for name in names}
    weights |= {f"{name}_s": np.ones((depth * depth // block,), np.float32) for name in names}
    how: dict[str, Any] = {"K": depth, "N": depth, "bits": 8, "block_size": block, "domain": "com.microsoft"}
    nodes = [
        helper.make_node("MatMulNBits", [data, f"{name}_w", f"{name}_s"], [name], **how)
        for data, name in pairwise(("x", *names))
    ]
    return saved(model_of(nodes, {"x": [4, depth]}, ["c"], weights), tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_what_kernels_take_beside_the_arena_is_part_of_runs(few_bits: Path, mode: str) -> None:
    floats = 4 * 512 * 512
    found = predict(few_bits, mode=mode, threads=1)
    assert found.run_growth > floats
    scratch = next(part.bytes for part in found.parts if part.name == "scratch")
    assert floats <= scratch < floats + MIB
    assert sum(part.bytes for part in found.parts) == found.steady


@pytest.mark.parametrize("mode", MODES)
def test_growth_lies_between_the_least_and_the_most(unet: Path, mode: str) -> None:
    found = predict(unet, shapes=SMALL, mode=mode, threads=1)
    assert found.least_growth <= found.run_growth <= found.most_growth
    if mode != "stock":
        assert found.least_growth == found.most_growth, "what is trimmed leaves nothing to chance"


def test_a_touch_of_a_mapped_table_may_bring_more_than_its_row(tmp_path: Path) -> None:
    table = np.ones((20_000, 128), np.float32)
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    path = saved(model_of(nodes, {"x": [1, 8]}, ["y"], {"table": table}, dtype=TensorProto.INT64), tmp_path)
    subject = Subject.of(Model.open(path), Question(), threads=1)
    small, large = (mapped_bytes(subject.weights, subject.graph, "mapped", around) for around in (64 << 10, 2 << 20))
    assert small == 8 * (64 << 10)
    assert small < large < table.nbytes
