"""Numbers for free dimensions: what is given is checked against the model, what is not gets a sensible default."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from onnxmem.errors import UsageError
from onnxmem.model.bindings import bind, default_dimensions, parse_dim, parse_shape, parse_shapes
from onnxmem.model.dims import symbol
from onnxmem.model.model import Model
from tests.helpers import model_of


@pytest.fixture
def model() -> Model:
    inputs: dict[str, Any] = {
        "x": ("batch", 3, None, "width"),
        "tokens": ("batch", "length"),
        "rankless": helper.make_tensor_value_info("rankless", TensorProto.FLOAT, None),
        "scalar": (),
        "odd": ("?", -1, " "),
    }
    return Model.of(model_of([helper.make_node("Relu", ["x"], ["y"])], inputs, ["y"]))


def test_open_dimensions_have_names(model: Model) -> None:
    assert model.dimensions == ("batch", "x_2", "width", "length", "odd_0", "odd_1", "odd_2")
    assert model.inputs["x"] == (symbol("batch"), 3, symbol("x_2"), symbol("width"))
    assert model.inputs["rankless"] is None
    assert model.inputs["scalar"] == ()


def test_shapes_and_dims_together(model: Model) -> None:
    bound = bind(model.inputs, shapes={"x": (2, 3, 64, 32), "scalar": ()}, dims={"length": 7, "batch": 2})
    assert bound == {"batch": 2, "x_2": 64, "width": 32, "length": 7}
    assert model.graph(bound, view="raw").tensors["y"].size == 2 * 3 * 64 * 32 * 4


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"dims": {"height": 4}}, "no free dimension 'height'", "batch, x_2, width, length"),
        ({"shapes": {"image": (1,)}}, "no input 'image'", "x, tokens, rankless"),
        ({"shapes": {"x": (1, 3, 4)}}, r"4 dimensions \(batchx3xx_2xwidth\), but 3 were given", ""),
        ({"shapes": {"x": (1,)}}, r"4 dimensions \(batchx3xx_2xwidth\), but 1 was given$", ""),
        ({"shapes": {"tokens": (1, 2, 3)}}, r"2 dimensions \(batchxlength\), but 3 were given$", ""),
        ({"shapes": {"scalar": (1,)}}, r"'scalar' has 0 dimensions \(it is a scalar\), but 1 was given$", ""),
        ({"shapes": {"x": (1, 4, 4, 4)}}, "dimension 1 of input 'x' is fixed at 3, not 4", ""),
        ({"shapes": {"x": (1, 3, 4, 4), "tokens": (2, 9)}}, "'batch' is given as both 1 and 2", ""),
        ({"shapes": {"tokens": (2, 9)}, "dims": {"batch": 1}}, "'batch' is given as both 1 and 2", ""),
        ({"shapes": {"rankless": (2, 9)}}, "no declared rank", ""),
        ({"dims": {"batch": -1}}, "'batch' cannot be -1", ""),
        ({"shapes": {"tokens": (-2, 9)}}, "'batch' cannot be -2", ""),
    ],
)
def test_what_does_not_fit_the_model(model: Model, given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        bind(model.inputs, **given)
    assert hint in caught.value.hint


def test_a_shape_without_a_name_lacks_just_that() -> None:
    with pytest.raises(UsageError, match="'1x3x320x320' does not say which input it is the shape of") as caught:
        parse_shape("1x3x320x320")
    assert caught.value.hint == "write it as input=1x3x320x320"
    for text in ("1x", "x", "", "=1x3", "axb"):
        with pytest.raises(UsageError, match="is not a shape"):
            parse_shape(text)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("x", ("N", 3, "H", "W"), {"N": 1, "H": 224, "W": 224}),
        ("x", (3, "H", "W"), {"H": 128, "W": 128}),
        ("ids", ("batch_size", "sequence"), {"batch_size": 1, "sequence": 128}),
        ("audio", ("N", "T"), {"N": 1, "T": 16000}),
        ("waveforms", (None, None), {"waveforms_0": 1, "waveforms_1": 16000}),
        ("lengths", ("batch",), {"batch": 1}),
        ("x", (1, 2), {}),
    ],
)
def test_defaults(name: str, shape: tuple[Any, ...], expected: dict[str, int]) -> None:
    model = Model.of(model_of([helper.make_node("Relu", [name], ["y"])], {name: shape}, ["y"]))
    assert default_dimensions(model.inputs) == expected


def test_texts() -> None:
    assert parse_shape("x=1x3x640x640") == ("x", (1, 3, 640, 640))
    assert parse_shape("a=b:0=1×2,3") == ("a=b:0", (1, 2, 3))
    assert parse_shape("scalar=") == ("scalar", ())
    assert parse_shape("x=0x4") == ("x", (0, 4))
    assert parse_shapes("a=1x3,b=1x4") == {"a": (1, 3), "b": (1, 4)}
    assert parse_shapes("0=1,3,1=,x=2") == {"0": (1, 3), "1": (), "x": (2,)}
    assert parse_dim("batch=8") == ("batch", 8)
    assert parse_dim("a=b=8") == ("a=b", 8)


@pytest.mark.parametrize("text", ["", "x", "=1x2", "x=1x", "x=1xa", "x=-1", "x=1.5", "x=4294967296", "x=1 2"])
def test_texts_that_are_no_shape(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shape(text)


@pytest.mark.parametrize("text", ["", "batch", "=8", "batch=", "batch=-8", "batch=8x8", "batch=eight", "n=99999999999"])
def test_texts_that_are_no_dimension(text: str) -> None:
    with pytest.raises(UsageError):
        parse_dim(text)
