"""Reading model files: what is wrong with one is one clear sentence."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.model.load import check_structure, load_proto
from onnxmem.model.model import Model
from onnxmem.schedule.timeline import lay_out
from tests.helpers import model_of, saved

node = helper.make_node
F = TensorProto.FLOAT


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


def _calling(*pairs: tuple[str, str]) -> ModelProto:
    """Functions that each call another twice; the model calls the first."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for name, called in pairs:
        domain = "" if called == "Relu" else "local"
        twice = [helper.make_node(called, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("local", name, ["a"], ["b"], twice, imports))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(pairs[0][0], ["x"], ["y"], domain="local")], "g", ends[:1], ends[1:])
    return helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=8)


def test_functions_that_call_each_other_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    names = [f"f{k}" for k in range(40)]
    for pairs, said in (
        (list(zip(names, [*names[1:], "Relu"], strict=True)), "with their bodies it has 1099511627776 nodes"),
        ([("f", "f")], "'f' calls itself"),
        ([("f", "g"), ("g", "f")], "'f' calls itself"),
        ([(f"f{k}", f"f{k + 1}") for k in range(200)], "too deep"),
    ):
        path.write_bytes(_calling(*pairs).SerializeToString())
        with pytest.raises(ModelError, match=said):
            load_proto(path)
    path.write_bytes(_calling(("f", "g"), ("g", "Relu")).SerializeToString())
    assert [node.op_type for node in load_proto(path).graph.node] == ["Relu"] * 4


def test_many_graphs_inside_of_a_large_one() -> None:
    names = [f"n{number}" for number in range(5000)]
    outer = helper.make_node("Many", ["x"], ["y"], domain="other")
    graphs = outer.attribute.add(name="graphs", type=AttributeProto.GRAPHS)
    for _ in range(20_000):
        graphs.graphs.add()
    model = model_of([*(node("Relu", ["x"], [name]) for name in names), outer], {"x": (1,)}, ["y"])
    start = time.process_time()
    check_structure(model.graph)
    assert time.process_time() - start < 2
