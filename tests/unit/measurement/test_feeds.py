"""What models are fed: what the caller gave, or something that fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem.errors import UsageError
from onnxmem.measurement.feeds import Dims, Fed, Feeds, make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Input, Signature, read_signature
from onnxmem.model.dims import symbol


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Token numbers through a Cast into a table of 7 rows, a mask, an image and a name."""
    table = numpy_helper.from_array(np.zeros((7, 4), np.float32), "table")
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["rows"]),
        *(helper.make_node("Identity", [name], [f"{name}_out"]) for name in ("mask", "image", "flag", "name")),
    ]
    kinds: dict[str, tuple[int, list[str | int | None]]] = {
        "ids": (TensorProto.INT32, ["batch", 50]),
        "mask": (TensorProto.UINT8, ["batch", 50]),
        "image": (TensorProto.FLOAT16, ["batch", 3, "h", "w"]),
        "flag": (TensorProto.BOOL, []),
        "name": (TensorProto.STRING, [1]),
    }
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info("rows", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [table])
    path = tmp_path / "model.onnx"
    onnx.save_model(helper.make_model(graph, ir_version=10), path)
    return path


def feeds(model: Path, **settings: object) -> Feeds:
    return make_feeds(read_signature(model), Scenario(model, **settings))  # type: ignore[arg-type]


def test_generated_inputs_fit_type_shape_and_table(model: Path) -> None:
    made = feeds(model, dims={"batch": 3})
    assert made.given == {"batch": 3} and made.assumed == {"h": 224, "w": 224}
    assert {name: (array.dtype.name, array.shape) for name, array in made.arrays.items() if name != "name"} == {
        "ids": ("int32", (3, 50)),
        "mask": ("uint8", (3, 50)),
        "image": ("float16", (3, 3, 224, 224)),
        "flag": ("bool", ()),
    }
    assert set(np.unique(made.arrays["ids"])) == set(range(7))
    assert set(np.unique(made.arrays["mask"])) == {0, 1}
    assert made.arrays["image"].min() >= 0 and made.arrays["image"].max() < 1
    assert made.generated["ids"] == "integers in [0, 7)"


def test_the_seed_decides_and_ranges_are_kept(model: Path) -> None:
    one, same, other = feeds(model), feeds(model), feeds(model, seed=1)
    assert all(np.array_equal(one.arrays[name], same.arrays[name]) for name in one.arrays)
    assert not np.array_equal(one.arrays["ids"], other.arrays["ids"])
    ranged = feeds(model, ranges={"ids": (2, 4), "image": (-1, 1)})
    assert set(np.unique(ranged.arrays["ids"])) == {2, 3}
    assert -1 <= ranged.arrays["image"].min() < -0.5 and 0.5 < ranged.arrays["image"].max() < 1
    with pytest.raises(UsageError, match="does not hold"):
        feeds(model, ranges={"mask": (0, 300)})
    with pytest.raises(UsageError, match="no input 'tokens'"):
        feeds(model, ranges={"tokens": (0, 3)})


def test_given_arrays_are_checked(model: Path, tmp_path: Path) -> None:
    right = dict(feeds(model).arrays)
    path = tmp_path / "feeds.npz"

    def given(**changes: object) -> Feeds:
        arrays = {**right, **changes}
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})  # type: ignore[arg-type]
        return feeds(model, inputs=path)

    assert np.array_equal(given().arrays["ids"], right["ids"])
    assert given().given == {"batch": 1, "h": 224, "w": 224}
    with pytest.raises(UsageError, match="no array for input 'mask'"):
        given(mask=None)
    with pytest.raises(UsageError, match="no input 'other'"):
        given(other=np.zeros(1))
    with pytest.raises(UsageError, match=r"is int32, but .* holds int64"):
        given(ids=np.zeros((1, 50), np.int64))
    with pytest.raises(UsageError, match="both 1 and 2"):
        given(mask=np.zeros((2, 50), np.uint8))
    given()
    with pytest.raises(UsageError, match=r"'mask' is given as 1x99, but 'feeds\.npz' holds 1x50"):
        feeds(model, inputs=path, shapes={"mask": (1, 99)})
    assert feeds(model, inputs=path, shapes={"mask": (1, 50)}).given == {"batch": 1, "h": 224, "w": 224}
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match=r"feeds\.npz"):
        feeds(model, inputs=path)


def test_an_input_without_rank_must_be_given(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "free.onnx"
    onnx.save_model(helper.make_model(graph, ir_version=10), path)
    with pytest.raises(UsageError, match="no declared rank") as caught:
        feeds(path)
    assert "--inputs" in caught.value.hint
    np.savez(tmp_path / "feeds.npz", x=np.zeros((2, 5), np.float32))
    assert feeds(path, inputs=tmp_path / "feeds.npz").arrays["x"].shape == (2, 5)


def test_both_formats_have_the_same_signature(tmp_path: Path) -> None:
    import onnxruntime  # noqa: PLC0415

    from onnxmem import zoo  # noqa: PLC0415

    source, target = tmp_path / "m.onnx", tmp_path / "m.ort"
    onnx.save_model(zoo.build("transformer", layers=1), source)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    onnx_inputs, ort_inputs = read_signature(source).inputs, read_signature(target).inputs
    assert [(v.name, v.dtype, v.shape) for v in onnx_inputs] == [(v.name, v.dtype, v.shape) for v in ort_inputs]
    assert onnx_inputs[0].table is not None


def test_a_scalar_is_an_array_without_dimensions() -> None:
    for dtype in ("float32", "float16", "int64", "bool", "string"):
        array = make_feeds(Signature((Input("x", dtype, ()),), ()), Scenario(Path("m"))).arrays["x"]
        assert isinstance(array, np.ndarray) and array.shape == ()


def test_what_was_assumed_is_named_with_what_to_give_instead() -> None:
    inputs = (
        Input("sound", "float32", (symbol("batch"), symbol("samples"))),
        Input("state", "float32", (2, symbol("layers"), 128)),
        Input("sr", "int64", ()),
    )
    fed = make_feeds(Signature(inputs, ()), Scenario(Path("m"))).described()
    text = fed.assumptions
    assert "layers=" in text and "batch=1" in text
    assert f"--shape state={'x'.join(map(str, fed.inputs['state'].shape))}" in text
    assert "--range sr=16000:16001" in text and "--inputs" in text
    assert Fed(inputs={}, dims=Dims({}, {}), generated={}).assumptions == ""


@pytest.mark.parametrize(
    ("inputs", "axis", "rows"),
    [(["table", "x"], 0, 5), (["table", "x"], -2, 5), (["table", "x"], 7, None), (["table"], 0, None), ([], 0, None)],
)
def test_a_table_is_known_only_from_a_whole_gather(
    tmp_path: Path, inputs: list[str], axis: int, rows: int | None
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", inputs, ["y"], axis=axis)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
        [],
        [numpy_helper.from_array(np.zeros((5, 4), np.float32), "table")],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert [each.table for each in read_signature(path).inputs] == [rows]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", "3725.3 TiB"), ("uint8", "931.3 TiB"), ("bool", "931.3 TiB"), ("string", "14901.2 TiB")],
)
def test_an_input_that_there_is_no_memory_for(dtype: str, size: str) -> None:
    signature = Signature((Input("x", dtype, (symbol("batch"), 1024)),), ())
    with pytest.raises(UsageError, match="and there is no memory for it") as caught:
        make_feeds(signature, Scenario(Path("model.onnx"), dims={"batch": 10**12}))
    assert "fit" in caught.value.hint and f"input 'x' takes {size}" in str(caught.value)
