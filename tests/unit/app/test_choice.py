"""What the sidebar makes of a model: names that people know, sizes that a slider can offer, and command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxmem.app.choice import Choice, dimensions


def estimate(shape: list[Any], **sizes: int) -> dict[str, Any]:
    return {"dims": {"given": {}, "assumed": sizes}, "inputs": {"x": {"symbolic_shape": shape}}, "formula": None}


@pytest.mark.parametrize(
    ("shape", "labels"),
    [
        (["batch", 3, "height", "width"], ["batch", "height", "width"]),
        (["N", 3, "H", "W"], ["batch (N)", "height (H)", "width (W)"]),
        (["N", "H", "W", 3], ["batch (N)", "height (H)", "width (W)"]),
        (["d0", "d1"], ["batch (d0)", "length (d1)"]),
        (["batch_size", "sequence_length"], ["batch size", "sequence length"]),
    ],
)
def test_dimensions_have_names_that_people_know(shape: list[Any], labels: list[str]) -> None:
    names = [name for name in shape if isinstance(name, str)]
    found = dimensions(estimate(shape, **dict.fromkeys(names, 8)))
    assert [each.label for each in found] == labels and [each.name for each in found] == names


def test_sliders_offer_sizes_for_which_the_formula_is_exact() -> None:
    found = estimate(["N", 3, "H", "W"], N=1, H=224, W=225)
    found["formula"] = {"multiples": {"N": 1, "H": 32, "W": 32}}
    batch, height, width = dimensions(found)
    assert (batch.first, batch.last, batch.step) == (1, 64, 1)
    assert (height.first, height.last, height.step) == (32, 896, 32)
    # A value between two steps would not be on the slider.
    assert width.step == 1 and width.first <= 225 <= width.last


def test_one_choice_asks_every_verb_the_same() -> None:
    choice = Choice(path=Path("/models/a b.onnx"), dims={"N": 4})
    assert choice.words("measure", "--mode", "stock") == (
        "measure", "/models/a b.onnx", "--dim", "N=4", "--mode", "stock",
    )  # fmt: skip
    assert choice.name == "a b.onnx"
