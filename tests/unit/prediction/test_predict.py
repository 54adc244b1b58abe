"""A prediction holds together: parts add up, modes stand in the order one expects, and mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxmem
from onnxmem import Prediction, UsageError, predict
from onnxmem.prediction.predict import MODES

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
