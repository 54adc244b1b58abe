"""A package in a better order, and with plans: what was written is what runs, and it takes less."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem import InferenceSession, pack, repack, verify_package
from onnxmem.errors import ModelError, UsageError
from onnxmem.packing import ordering as order
from onnxmem.session.package import PLANS, Package
from onnxmem.session.packed_graphs import KEEP_OPTIONS
from tests.small_models import branching, looping

ROWS = 4096
SHAPE = {"x": (ROWS, 16)}


def branches(path: Path) -> Path:
    """A branch that leaves much behind, and one that needs even more for a while: the second should run first.

    ONNX Runtime takes the branch that comes last in the file first. That is right for this file, and wrong for the one
    it makes of it, in which it has written the branches as it ran them.
    """
    nodes = [
        helper.make_node("Tile", ["x", "twice"], ["kept"]),
        helper.make_node("Sin", ["kept"], ["kept_sine"]),
        helper.make_node("Tile", ["x", "eight_times"], ["passing"]),
        helper.make_node("Size", ["passing"], ["count"]),
        helper.make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["passing"], ["sum"], keepdims=0),
        helper.make_node("Div", ["sum", "number"], ["mean"]),
        helper.make_node("Sub", ["kept_sine", "mean"], ["centred"]),
        helper.make_node("ReduceMax", ["centred"], ["y"], axes=[1], keepdims=0),
    ]
    constants = {"twice": np.array([1, 2]), "eight_times": np.array([1, 8])}
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return branches(tmp_path_factory.mktemp("models") / "branches.onnx")


@pytest.fixture(scope="module")
def ordered(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("packages") / "branches.pack"
    return pack(source, folder, "external", order="best", plans=[SHAPE, {"x": (8, 16)}], shapes=SHAPE).package


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).random(SHAPE["x"], dtype=np.float32)


def order_of_a_run(package: Package, x: np.ndarray, folder: Path) -> list[str]:
    settings: dict[str, Any] = {"enable_profiling": True, "profile_file_prefix": str(folder / "profile")}
    session = InferenceSession(package.folder, settings=settings)
    session.run(None, {"x": x})
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    names = [e["name"].removesuffix("_kernel_time") for e in sorted(kernels, key=lambda event: event["ts"])]
    sizes = {node.name for node in onnx.load(package.model).graph.node if node.op_type == "Size"}
    return [name for name in names if name not in sizes]


def test_the_written_order_is_the_one_that_runs(ordered: Package, x: np.ndarray, tmp_path: Path) -> None:
    written = [node.name for node in onnx.load(ordered.model).graph.node if node.op_type != "Size"]
    assert len(set(written)) == len(written)
    assert order_of_a_run(ordered, x, tmp_path) == written
    assert sorted(path.name for path in ordered.files) == sorted([PLANS, "model.onnx"])


def test_it_needs_less_than_what_onnx_runtime_makes_of_the_package(
    source: Path, ordered: Package, tmp_path: Path
) -> None:
    kept = ordered.manifest.order
    assert kept is not None and kept.name == "best" and kept.verified
    assert not ordered.manifest.notes
    (plain,) = pack(source, tmp_path / "p", "external", plans=[SHAPE]).manifest.plans
    passing = ROWS * 16 * 8 * 4
    assert passing <= kept.bound < passing * 1.1
    assert plain.lower_bound_bytes > passing * 1.2
    assert kept.bound <= kept.default_bound


def test_outputs_are_those_of_stock(source: Path, ordered: Package, x: np.ndarray) -> None:
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": x})
    assert np.array_equal(InferenceSession(ordered.folder).run(None, {"x": x})[0], expected)
    assert np.array_equal(InferenceSession(ordered.folder).run(None, {"x": x})[0], expected)


def test_the_first_run_of_a_loaded_session_is_already_planned(ordered: Package, x: np.ndarray) -> None:
    session = InferenceSession(ordered.folder)
    session.run(None, {"x": x})
    memory = session.memory
    assert (memory.runs_recorded, memory.runs_replayed, memory.runs_deviated) == (0, 1, 0)
    assert [plan.inputs for plan in ordered.manifest.plans] == [{"x": (ROWS, 16)}, {"x": (8, 16)}]
    assert memory.plan_bytes == ordered.manifest.plans[0].peak_bytes == memory.bound_bytes
    session.run(None, {"x": x[:9]})
    assert session.memory.runs_recorded == 1


def test_an_order_that_is_not_kept_is_not_written(
    source: Path, x: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiling = {**KEEP_OPTIONS, "execution_order": "DEFAULT"}
    monkeypatch.setattr(order, "KEEP_OPTIONS", spoiling)
    package = pack(source, tmp_path / "p", "external", order="best", shapes=SHAPE)
    kept = package.manifest.order
    assert kept is not None and kept.asked == "best" and kept.name == "ort-default" and not kept.verified
    (note,) = package.manifest.notes
    assert "does not keep to the order 'best'" in note and "should have" in note
    assert package.manifest.config == {}
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": x})
    assert np.array_equal(InferenceSession(package.folder).run(None, {"x": x})[0], expected)
    assert [path.name for path in package.package.files] == ["model.onnx"]


def test_an_order_that_needs_no_less_is_not_written(chain: Path, tmp_path: Path) -> None:
    package = pack(chain, tmp_path / "p", order="breadth-first")
    kept = package.manifest.order
    assert kept is not None and kept.name == "ort-default" and kept.verified
    assert "needs no less than 'ort-default'" in package.manifest.notes[-1]


def test_packing_again_keeps_order_and_plans(ordered: Package, tmp_path: Path) -> None:
    first = ordered.manifest
    shutil.copytree(ordered.folder, tmp_path / "p")
    again = repack(tmp_path / "p").manifest
    assert (again.order, again.plans) == (first.order, first.plans)
    assert again.verified.inputs == first.verified.inputs
    assert [file for file in again.files if file.name != PLANS] == [file for file in first.files if file.name != PLANS]
    other = repack(tmp_path / "p", order="greedy", plans=[]).manifest
    assert other.order is not None and other.order.asked == "greedy" and other.plans == ()


def test_damaged_plans_are_noticed(source: Path, tmp_path: Path) -> None:
    package = pack(source, tmp_path / "p", "ort", plans=[{"x": (8, 16)}])
    assert len(package.package.plans()) == 1
    path = tmp_path / "p" / PLANS
    path.write_text(path.read_text().replace("1", "2", 1))
    for look in (lambda: verify_package(tmp_path / "p"), package.package.plans):
        with pytest.raises(ModelError, match=r"plans\.json' is damaged"):
            look()


def test_a_package_without_plans_has_none(packed: Path) -> None:
    assert verify_package(packed).plans() == []


@pytest.mark.parametrize(
    ("mode", "settings", "message"),
    [
        ("ort-mapped", {"order": "best"}, "an order needs a package of mode prepacked, external or mapped"),
        ("external", {"order": "fastest"}, "there is no order 'fastest'"),
        ("external", {"plans": [{"z": (1,)}]}, "the model has no input 'z'"),
        ("external", {"plans": [{"x": (1, 2)}]}, "fixed at 16, not 2"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    source: Path, tmp_path: Path, mode: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        pack(source, tmp_path / "p", mode, **settings)
    assert not list(tmp_path.iterdir())


def test_the_scratch_of_a_convolution_reaches_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's statistics name nodes with a hash behind; the search knows them without."""
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "convolve"), helper.make_node("Relu", ["y"], ["z"], "relu")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None, None, None, None]) for name in "xz"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weights])
    path = tmp_path / "conv.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    asked: dict[str, int] = {}
    memory_of: Any = vars(order)["memory_of"]

    def spy(graph: Any, *arguments: Any, scratch: Callable[[Any], int], **options: Any) -> Any:
        asked.update({node.op_type: scratch(node) for node in graph.nodes})
        return memory_of(graph, *arguments, scratch=scratch, **options)

    monkeypatch.setattr(order, "memory_of", spy)
    pack(path, tmp_path / "p", order="best", shapes={"x": (1, 3, 12, 12, 12)})
    assert max(asked.values()) > 0, asked


@pytest.mark.parametrize("model", [branching, looping])
def test_nodes_around_subgraphs_are_followed(tmp_path: Path, model: Callable[[], bytes]) -> None:
    (tmp_path / "m.onnx").write_bytes(model())
    kept = pack(tmp_path / "m.onnx", tmp_path / "p", order="best", shapes={"x": (1000,)}).manifest.order
    assert kept is not None and kept.verified
    assert 4000 <= kept.bound <= kept.default_bound


@pytest.mark.parametrize("how", [{"order": "best"}, {"tile": True}])
def test_a_branch_that_is_not_taken_may_be_impossible(tmp_path: Path, how: dict[str, Any]) -> None:
    """As in a voice detector for two sample rates: the shapes of one do not suit the branch of the other."""
    value = helper.make_tensor_value_info
    arms = []
    for operator, name in (("Relu", "taken"), ("Squeeze", "left")):
        node = helper.make_node(operator, ["rows"], [name])
        arms.append(helper.make_graph([node], name, [], [value(name, TensorProto.FLOAT, None)]))
    arms[1].node[0].input.append("first")
    nodes = [
        helper.make_node("Sin", ["x"], ["rows"]),
        helper.make_node("If", ["which"], ["either"], then_branch=arms[0], else_branch=arms[1]),
        helper.make_node("ReduceSum", ["either"], ["y"], keepdims=0),
    ]
    inputs = [value("x", TensorProto.FLOAT, ["n", 16]), value("which", TensorProto.BOOL, [])]
    first = numpy_helper.from_array(np.array([0]), "first")
    graph = helper.make_graph(nodes, "rates", inputs, [value("y", TensorProto.FLOAT, [])], [first])
    path, feeds = tmp_path / "rates.onnx", {"x": np.ones((ROWS, 16), np.float32), "which": np.array(True)}
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(tmp_path / "feeds.npz", x=feeds["x"], which=feeds["which"])
    package = pack(path, tmp_path / "package", inputs=tmp_path / "feeds.npz", **how)
    (expected,) = onnxruntime.InferenceSession(path).run(None, feeds)
    assert np.array_equal(InferenceSession(package.folder).run(None, feeds)[0], expected)
