"""Reading model files: what is right is read without its weights, what is wrong is one clear sentence."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxmem.errors import ExternalDataError, ModelError, OnnxmemError, UsageError
from onnxmem.model.dims import symbol
from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.schedule.timeline import lay_out
from onnxmem.unknown import Unknown
from tests.helpers import model_of

node = helper.make_node
F = TensorProto.FLOAT


def saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def with_external(shape: tuple[int, ...] = (4, 8), elem_type: int = F, **entries: Any) -> ModelProto:
    """x @ w, where w is kept outside."""
    weight = TensorProto(name="w", data_type=elem_type, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "w.bin"} | entries).items():
        weight.external_data.add(key=key, value=str(value))
    return model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("N", shape[0])}, ["y"], [weight])


# External data


@pytest.mark.parametrize("entries", [{}, {"length": 128}, {"offset": 64}, {"offset": 64, "length": 128}])
def test_external_data_is_seen_in_its_file(entries: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64 + 128))
    model = Model.open(saved(with_external(**entries), tmp_path))
    for view in ("raw", "optimized"):
        (weight,) = model.graph(view=view).weights
        assert (weight.name, weight.shape, weight.size) == ("w", (4, 8), 128)
    assert model.graph(view="raw").weights[0].file == "w.bin"


def test_external_data_may_be_below_the_folder_or_behind_a_link_that_stays(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(bytes(128))
    (tmp_path / "link.bin").symlink_to("parts/w.bin")
    for location in ("parts/w.bin", "parts/../parts/w.bin", "link.bin"):
        model = Model.open(saved(with_external(location=location), tmp_path))
        for view in ("raw", "optimized"):
            assert [weight.size for weight in model.graph(view=view).weights] == [128]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "gone.bin"}, "'gone.bin' of tensor 'w' is missing"),
        ({"location": "folder"}, "is missing"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "../w.bin"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "outside the model's folder"),
        ({"location": "leaves.bin"}, "outside the model's folder"),
        ({"location": "w\0.bin"}, "'w"),
        ({"location": "w" * 5000}, "'w"),
        ({"location": "loop.bin"}, "'loop.bin'"),
        ({"offset": 100}, "too short"),
        ({"offset": 1000}, "truncated"),
        ({"offset": 64, "length": 128}, "truncated"),
        ({"length": 64}, "takes 128 bytes by its shape, but its external data has 64"),
        ({"offset": -4}, "'w'"),
        ({"length": -128}, "'w'"),
        ({"offset": "many"}, "no number"),
        ({"length": "0x80"}, "no number"),
    ],
)
def test_external_data_that_cannot_be_right(entries: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "folder").mkdir()
    (folder / "w.bin").write_bytes(bytes(128))
    (tmp_path / "w.bin").write_bytes(bytes(128))
    (folder / "leaves.bin").symlink_to(tmp_path / "w.bin")
    (folder / "loop.bin").symlink_to("loop.bin")
    with pytest.raises(ExternalDataError, match="(?s)" + message):
        Model.open(saved(with_external(**entries), folder)).graph(view="raw")
    with pytest.raises(ExternalDataError):
        Model.open(saved(with_external(**entries), folder)).graph()


def test_more_than_two_gib_are_read_as_fast_as_nothing(tmp_path: Path) -> None:
    """The file is sparse: 6 GiB of zeros on disk take no room, and reading them would take this process's memory."""
    rows, columns = 40_000, 40_000
    with (tmp_path / "w.bin").open("wb") as file:
        os.truncate(file.fileno(), 4 * rows * columns)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = Model.open(saved(with_external((rows, columns)), tmp_path))
    for view in ("raw", "optimized"):
        graph = model.graph(view=view)
        assert [weight.size for weight in graph.weights] == [4 * rows * columns]
        assert graph.tensors["y"].size == 4 * columns * symbol("N")
    assert model.duplicates() == ()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024


def test_external_data_in_a_branch(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(128 * 1024))
    for shape in ((4, 8), (4, 8 * 1024)):
        outer = with_external(shape)
        branch = helper.make_graph(
            list(outer.graph.node),
            "branch",
            [],
            [helper.make_tensor_value_info("y", F, None)],
            list(outer.graph.initializer),
        )
        other = helper.make_graph([node("Identity", ["y0"], ["y"])], "other", [], list(branch.output))
        nodes = [node("If", ["c"], ["z"], then_branch=branch, else_branch=other)]
        inputs: dict[str, Any] = {
            "c": helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            "x": ("N", 4),
            "y0": ("N", shape[1]),
        }
        model = Model.open(saved(model_of(nodes, inputs, ["z"]), tmp_path))
        for view in ("raw", "optimized"):
            graph = model.graph(view=view)
            assert [weight.size for weight in graph.all_weights()] == [4 * shape[0] * shape[1]]
            assert graph.tensors["z"].size == 4 * shape[1] * symbol("N")


# What a model may contain


def only(graph: Graph) -> Any:
    (weight,) = graph.weights
    return weight


@pytest.mark.parametrize(
    ("attributes", "dtype", "shape", "size"),
    [
        ({"value": numpy_helper.from_array(np.ones((2, 3), np.float16))}, "float16", (2, 3), 12),
        ({"value_float": 1.5}, "float32", (), 4),
        ({"value_floats": [1.5, 2.5]}, "float32", (2,), 8),
        ({"value_int": 3}, "int64", (), 8),
        ({"value_ints": [3, 4, 5]}, "int64", (3,), 24),
        ({"value_string": "text"}, "string", (), None),
        ({"value_strings": ["a", "b"]}, "string", (2,), None),
    ],
)
def test_constants_in_every_form(
    attributes: dict[str, Any], dtype: str, shape: tuple[int, ...], size: int | None
) -> None:
    nodes = [node("Constant", [], ["c"], **attributes), node("Shape", ["c"], ["y"])]
    weight = only(Model.of(model_of(nodes, {}, ["y"])).graph(view="raw"))
    assert (weight.name, weight.dtype, weight.shape, weight.size, weight.source) == (
        "c",
        dtype,
        shape,
        size,
        "constant",
    )


def sparse(name: str) -> Any:
    values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5, 30], np.int64)), [4, 8])


def test_sparse_weights_count_what_they_store_and_are_dense_to_their_readers() -> None:
    by_initializer = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 4)}, ["y"])
    by_initializer.graph.sparse_initializer.append(sparse("w"))
    by_node = model_of(
        [node("Constant", [], ["w"], sparse_value=sparse("")), node("MatMul", ["x", "w"], ["y"])],
        {"x": ("N", 4)},
        ["y"],
    )
    for model in (by_initializer, by_node):
        graph = Model.of(model).graph(view="raw")
        weight = only(graph)
        assert (weight.name, weight.shape, weight.size, weight.source) == ("w", (4, 8), 3 * 4 + 3 * 8, "sparse")
        assert graph.tensors["y"].shape == (symbol("N"), 8)


@pytest.mark.parametrize(
    ("elem_type", "dtype", "size"),
    [
        (TensorProto.UINT4, "uint4", 8),
        (TensorProto.INT4, "int4", 8),
        (TensorProto.FLOAT4E2M1, "float4e2m1", 8),
        (TensorProto.INT2, "int2", 4),
        (TensorProto.UINT2, "uint2", 4),
        (TensorProto.BOOL, "bool", 15),
        (TensorProto.FLOAT8E4M3FN, "float8e4m3fn", 15),
        (TensorProto.BFLOAT16, "bfloat16", 30),
        (TensorProto.COMPLEX64, "complex64", 120),
        (TensorProto.COMPLEX128, "complex128", 240),
    ],
)
def test_elements_are_as_wide_as_they_are_stored(elem_type: int, dtype: str, size: int) -> None:
    weight = TensorProto(name="w", data_type=elem_type, dims=[3, 5], raw_data=bytes(size))
    nodes = [node("Identity", ["w"], ["y"]), node("Identity", ["x"], ["z"])]
    graph = Model.of(model_of(nodes, {"x": (3, "N")}, ["y", "z"], [weight], dtype=elem_type, opset=25)).graph(
        {"N": 5}, view="raw"
    )
    assert (only(graph).dtype, only(graph).size) == (dtype, size)
    assert [graph.tensors[name].size for name in "xyz"] == [size] * 3


def typed(name: str, kind: Any) -> Any:
    return helper.make_value_info(name, kind)


def test_what_has_no_size_is_unknown_for_a_reason() -> None:
    tensor = helper.make_tensor_type_proto(F, ["N", 2])
    inputs = {
        "strings": helper.make_tensor_value_info("strings", TensorProto.STRING, ["N"]),
        "sequence": typed("sequence", helper.make_sequence_type_proto(tensor)),
        "optional": typed("optional", helper.make_optional_type_proto(tensor)),
        "x": ("N", 2),
        "rankless": typed("rankless", helper.make_tensor_type_proto(F, None)),
    }
    nodes = [
        node("Identity", ["strings"], ["same_strings"]),
        node("SequenceConstruct", ["x", "x"], ["made"]),
        node("Identity", ["sequence"], ["same_sequence"]),
        node("OptionalHasElement", ["optional"], ["has"]),
        node("Relu", ["rankless"], ["relu"]),
        node("Mine", ["x"], ["mine"], domain="my.own"),
    ]
    outputs = ["same_strings", "made", "same_sequence", "has", "relu", "mine"]
    graph = Model.of(model_of(nodes, inputs, outputs)).graph({"N": 3}, view="raw")
    reasons = {name: t.size.reason for name, t in graph.tensors.items() if isinstance(t.size, Unknown)}
    assert reasons.keys() == graph.tensors.keys() - {"x", "has"}
    for name, part in {
        "strings": "string",
        "same_strings": "string",
        "made": "sequence",
        "sequence": "sequence",
        "optional": "optional",
        "rankless": "rank",
        "mine": "Mine",
    }.items():
        assert part in reasons[name]
    assert all(reasons.values())
    assert graph.tensors["has"].size == 1
    timeline = lay_out(graph)
    assert {tensor.name for tensor in timeline.unknown} == reasons.keys() - set(graph.inputs)


def test_optional_inputs_empty_dimensions_and_scalars() -> None:
    nodes = [
        node("Clip", ["x", "", "most"], ["a"]),
        node("Concat", ["a", "nothing"], ["b"], axis=0),
        node("Resize", ["b", "", "", "sizes"], ["y"], mode="nearest"),
        node("ReduceSum", ["nothing"], ["s"], keepdims=0),
    ]
    constants = {
        "most": np.array(1, np.float32),
        "nothing": np.zeros((0, 4), np.float32),
        "sizes": np.array([2, 4]),
    }
    graph = Model.of(model_of(nodes, {"x": ("N", 4)}, ["y", "s"], constants)).graph(view="raw")
    assert graph.tensors["b"].shape == (symbol("N"), 4)
    assert graph.tensors["y"].size == 32
    assert (graph.tensors["s"].shape, graph.tensors["s"].size) == ((), 4)
    assert {weight.name: weight.size for weight in graph.weights} == {"most": 4, "nothing": 0, "sizes": 16}
    empty = Model.of(model_of([node("Relu", ["x"], ["y"])], {"x": (0, 4)}, ["y"])).graph(view="raw")
    assert empty.tensors["y"].size == 0


def test_weights_listed_as_inputs_are_weights() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 4), "w": (4, 4)}, ["y"], {"w": np.eye(4, dtype="f")}
    )
    opened = Model.of(model)
    assert list(opened.inputs) == ["x"]
    for view in ("raw", "optimized"):
        graph = opened.graph(view=view)
        assert graph.inputs == ("x",)
        assert only(graph).name == "w"
        assert set(graph.tensors) == {"x", "y"}


def test_nodes_may_stand_in_any_order() -> None:
    """Also where the producer is needed only inside a branch, or by a view of a view."""
    y = [helper.make_tensor_value_info("inner", F, None)]
    branch = helper.make_graph([node("Relu", ["b"], ["inner"])], "branch", [], y)
    other = helper.make_graph([node("Neg", ["b"], ["inner"])], "other", [], y)
    nodes = [
        node("If", ["c"], ["y"], then_branch=branch, else_branch=other),
        node("Flatten", ["v"], ["f"]),
        node("Exp", ["f"], ["e"]),
        node("Flatten", ["a"], ["v"]),
        node("Concat", ["a", "a"], ["b"], axis=0),
        node("Exp", ["x"], ["a"]),
    ]
    inputs: dict[str, Any] = {"c": helper.make_tensor_value_info("c", TensorProto.BOOL, []), "x": ("N", 4)}
    backwards, sorted_ = (Model.of(model_of(n, inputs, ["y", "e"])) for n in (nodes, nodes[::-1]))
    graph = backwards.graph(view="raw")
    assert graph.tensors["y"].size == 32 * symbol("N")
    assert lay_out(graph).total == lay_out(sorted_.graph(view="raw")).total
    assert {span.id for span in lay_out(graph).spans} == {"a", "b", "y", "e", *inside(graph)}


def inside(graph: Graph) -> set[str]:
    return {span.id for span in lay_out(graph).spans if ":" in span.id}


def test_functions_are_read_as_what_they_call() -> None:
    body = [node("Concat", ["a", "a"], ["b"], axis=0), node("Relu", ["b"], ["c"])]
    opsets = [helper.make_opsetid("", 21)]
    inner = helper.make_function("my.own", "Twice", ["a"], ["c"], body, opsets)
    outer_body = [node("Twice", ["a"], ["b"], domain="my.own"), node("Twice", ["b"], ["c"], domain="my.own")]
    outer = helper.make_function(
        "my.own", "Four", ["a"], ["c"], outer_body, [*opsets, helper.make_opsetid("my.own", 1)]
    )
    model = model_of([node("Four", ["x"], ["y"], domain="my.own")], {"x": ("N", 4)}, ["y"], functions=[inner, outer])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    graph = Model.of(model).graph(view="raw")
    assert [n.op_type for n in graph.nodes] == ["Concat", "Relu"] * 2
    assert graph.tensors["y"].size == 64 * symbol("N")


def test_a_function_that_calls_itself_is_an_error() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my.own", 1)]
    again = helper.make_function(
        "my.own", "Again", ["a"], ["b"], [node("Again", ["a"], ["b"], domain="my.own")], opsets
    )
    model = model_of([node("Again", ["x"], ["y"], domain="my.own")], {"x": ("N", 4)}, ["y"], functions=[again])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    with pytest.raises(ModelError, match=r"local functions .* cannot be followed"):
        Model.of(model)


# What a file must not be


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an ONNX model"),
        (b"not an onnx file at all", "not an ONNX model"),
        (b"\x00" * 100, "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"\x18\x00\x00\x00ORTM" + bytes(64), "ORT format"),
        (b"PK\x03\x04" + bytes(64), "not an ONNX model"),
    ],
)
def test_other_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Model.open(path)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.onnx", tmp_path / ("x" * 5000), Path("/dev/zero")):
        with pytest.raises((UsageError, ModelError), match=r"cannot read|not a file|directory"):
            Model.open(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = saved(model_of([node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"]), tmp_path)
    path.chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        Model.open(path)


@pytest.mark.parametrize(
    ("nodes", "outputs", "message"),
    [
        ([], ["x"], "empty graph"),
        ([node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["a"])], ["a"], "cycle"),
        ([node("Relu", ["a"], ["a"])], ["a"], "cycle"),
        ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], ["y"], "'y' is defined twice"),
        ([node("Split", ["x"], ["y", "y"], num_outputs=2)], ["y"], "'y' is defined twice"),
        ([node("Relu", ["x"], ["x"])], ["x"], "'x' is defined twice"),
        ([node("Relu", ["x"], ["w"])], ["w"], "'w' is defined twice"),
        ([node("Relu", ["nowhere"], ["y"])], ["y"], "needs 'nowhere'"),
        ([node("Relu", ["x"], ["y"])], ["z"], "'z' is produced by nothing"),
        ([node("Relu", ["x"], [])], ["x"], "no output"),
        ([node("Constant", [], ["c"])], ["c"], "Constant"),
        ([node("Constant", [], [], value_int=1)], ["x"], "output"),
        ([node("Scan", ["x"], ["y"])], ["y"], "Scan"),
        ([node("Loop", ["x"], ["y"])], ["y"], "Loop"),
        ([node("If", ["x"], ["y"])], ["y"], "If"),
    ],
)
def test_graphs_that_make_no_sense(nodes: list[Any], outputs: list[str], message: str) -> None:
    model = model_of(nodes, {"x": (1,)}, outputs, {"w": np.zeros(1, "f")})
    with pytest.raises(ModelError, match=message):
        Model.of(model).graph(view="raw")


def test_names_that_appear_twice() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"], {"w": np.zeros(1, "f")})
    for field in ("input", "initializer"):
        twice = ModelProto()
        twice.CopyFrom(model)
        getattr(twice.graph, field).append(getattr(twice.graph, field)[0])
        with pytest.raises(ModelError, match="twice"):
            Model.of(twice)


def test_negative_weight_dimensions_are_an_error() -> None:
    weight = TensorProto(name="w", data_type=F, dims=[-4], raw_data=b"")
    with pytest.raises(ModelError, match="'w'"):
        Model.of(model_of([node("Relu", ["w"], ["y"])], {}, ["y"], [weight])).graph(view="raw")


def everything() -> bytes:
    """A small model with something of all there is."""
    inner = [helper.make_tensor_value_info("inner", F, [4])]
    branch = helper.make_graph([node("Constant", [], ["inner"], value_floats=[1.0] * 4)], "branch", [], inner)
    body = helper.make_graph(
        [node("Add", ["state", "part"], ["next"]), node("Identity", ["next"], ["row"])],
        "body",
        [helper.make_tensor_value_info(name, F, [4]) for name in ("state", "part")],
        [helper.make_tensor_value_info(name, F, [4]) for name in ("next", "row")],
    )
    function = helper.make_function(
        "my.own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Shape", ["a"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "minus"], ["target"], axis=0),
        node("Reshape", ["a", "target"], ["r"]),
        node("Twice", ["r"], ["t"], domain="my.own"),
        node("If", ["flag"], ["i"], then_branch=branch, else_branch=branch),
        node("Scan", ["i", "t"], ["last", "rows"], body=body, num_scan_inputs=1),
        node("Slice", ["rows", "zero", "minus"], ["y"]),
    ]
    inputs: dict[str, Any] = {"x": ("N", 4), "flag": helper.make_tensor_value_info("flag", TensorProto.BOOL, [])}
    constants = {"w": np.eye(4, dtype=np.float32), "zero": np.array([0]), "minus": np.array([-1])}
    model = model_of(nodes, inputs, ["y", "last"], constants, functions=[function])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    return bytes(model.SerializeToString())


def look_at_everything(path: Path) -> None:
    model = Model.open(path)
    graph = model.graph(view="raw", time_limit=5)
    model.duplicates()
    for order in ("file", "greedy"):
        timeline = lay_out(graph, order)
        assert timeline.live() is not None


def test_the_model_for_fuzzing_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(everything())
    look_at_everything(path)


def flip(content: bytearray, choose: random.Random) -> bytearray:
    for _ in range(choose.choice([1, 1, 2, 8])):
        content[choose.randrange(len(content))] = choose.randrange(256)
    return content


def cut(content: bytearray, choose: random.Random) -> bytearray:
    return content[: choose.randrange(len(content))]


def remove(content: bytearray, choose: random.Random) -> bytearray:
    start = choose.randrange(len(content))
    del content[start : start + choose.randint(1, 20)]
    return content


@pytest.mark.parametrize("damage", [flip, cut, remove])
@pytest.mark.parametrize("seed", range(5))
def test_damaged_files_are_errors_or_models_and_nothing_else(
    damage: Callable[[bytearray, random.Random], bytearray], seed: int, tmp_path: Path
) -> None:
    path, whole, choose = tmp_path / "model.onnx", everything(), random.Random(seed)
    for _ in range(60):
        path.write_bytes(damage(bytearray(whole), choose))
        try:
            look_at_everything(path)
        except OnnxmemError as error:
            assert str(error)
            assert "\n" not in str(error)
