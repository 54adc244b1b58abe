"""Estimates and plans: what they hold, that they come back from JSON as they were, and how they are asked for."""

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxmem import zoo
from onnxmem.errors import ImpossibleShapes, ModelError, PlanError, UsageError
from onnxmem.estimation.estimate import Estimate, compute_estimate, estimate
from onnxmem.estimation.planning import Planning, Sharing, plan
from onnxmem.estimation.tensors import write_tensors
from onnxmem.model.model import Model
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.placement.table import write_problem
from onnxmem.placement.validate import validate_plan
from onnxmem.report.sections import section
from onnxmem.schedule.scheduled import Question
from tests.helpers import model_of

node = helper.make_node


@pytest.fixture(scope="module")
def unet() -> Model:
    return Model.of(zoo.build("unet", channels=4), "unet.onnx")


def through_json(document: dict[str, object]) -> dict[str, object]:
    text = json.dumps(document, allow_nan=False)
    read: dict[str, object] = json.loads(text)
    return read


@pytest.mark.parametrize("options", [{}, {"order": "best", "dims": {"batch": 2}}, {"view": "raw", "alias": False}])
def test_an_estimate_comes_back_from_json_as_it_was(unet: Model, options: dict[str, object]) -> None:
    result = estimate(unet, **options)  # type: ignore[arg-type]
    assert Estimate.from_document(through_json(result.document())) == result


def test_the_keys_that_others_rely_on_are_there(unet: Model) -> None:
    document = estimate(unet).document()
    assert document["schema"] == "onnxmem.estimate/1"
    assert document["model"] == "unet.onnx"
    assert {"command", "date", "environment"} <= document.keys()
    assert document["weights_bytes"] == sum(document["weights"]["bytes_by_source"].values())
    activations = document["activations"]
    assert activations["naive_bytes"] >= activations["lower_bound_bytes"] > 0
    for row in activations["strategies"]:
        assert {"name", "peak_bytes", "seconds", "optimal", "gap"} <= row.keys()
    planned = plan(unet).document()
    assert {"peak_bytes", "lower_bound_bytes", "optimal", "seconds", "strategy", "fits", "gap"} <= planned.keys()


def test_tensors_are_also_given_in_the_models_own_dimensions(tmp_path: Path) -> None:
    nodes = [node("Concat", ["x", "x"], ["y"], axis=0), node("Exp", ["y"], ["z"])]
    model = Model.of(model_of(nodes, {"x": ("batch", 4, "H")}, ["z"]))
    question = Question(dims={"H": 3})
    result, scheduled, best = compute_estimate(model, question)
    shown = {
        row.name: (row.shape, row.symbolic_shape, row.symbolic_bytes) for row in result.activations.placement or ()
    }
    assert shown == dict.fromkeys(("y", "z"), ((2, 4, 3), ("2*batch", 4, 3), "96*batch"))
    assert Estimate.from_document(through_json(result.document())) == result
    write_tensors(scheduled, best, tmp_path / "tensors.csv")
    with (tmp_path / "tensors.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert (rows["y"]["shape"], rows["y"]["size"]) == ("2x4x3", "96")
    assert (rows["y"]["symbolic_shape"], rows["y"]["symbolic_size"]) == ("[2*batch, 4, 3]", "96*batch")
    # Where every dimension has its number, there is nothing to add.
    decided = estimate(model, dims={"H": 3, "batch": 5}).document()
    assert "symbolic_shape" not in decided["activations"]["placement"][0]


def test_a_plan_of_a_model_comes_back_from_json_as_it_was(unet: Model) -> None:
    result = plan(unet, capacity=2**30)
    again = Planning.from_document(through_json(result.document()))
    assert again == result
    assert again.fits
    validate_plan(again.plan())
    assert again.plan().peak == result.peak_bytes


def test_a_plan_of_a_problem_has_no_model_in_it(tmp_path: Path) -> None:
    write_problem(Problem.of([Buffer("a", 0, 2, 5), Buffer("b", 1, 3, 7)]), tmp_path / "problem.csv")
    result = plan(tmp_path / "problem.csv")
    assert (result.peak_bytes, result.problem, result.about) == (12, "problem.csv", None)
    document = result.document()
    assert "model" not in document
    assert document["placement"][0] == {
        "name": "a", "bytes": 5, "lower": 0, "upper": 2, "offset": document["placement"][0]["offset"],
        "producer": None, "consumers": [],
    }  # fmt: skip
    assert Planning.from_document(through_json(document)) == result


def test_a_plan_with_shared_places_says_which_and_what_they_save(tmp_path: Path) -> None:
    text = 'id,lower,upper,size,shares\nx y,0,3,4096,\nb,2,6,4096,"""x y"""\nc,5,9,1024,b\n'
    (tmp_path / "problem.csv").write_text(text)
    result = plan(tmp_path / "problem.csv")
    assert result.optimal and result.peak_bytes == 4096
    assert result.sharing == Sharing(possible=2, used=2, unshared_bound_bytes=8192)
    assert [row.over for row in result.placement or ()] == [None, "x y", "b"]
    again = Planning.from_document(through_json(result.document()))
    assert again == result
    validate_plan(again.plan())


def test_a_buffer_knows_who_writes_and_who_reads_it(unet: Model) -> None:
    rows = {row.name: row for row in plan(unet, view="raw", alias=False, in_place=False).placement or ()}
    nodes = [node for node in unet.proto.graph.node if node.op_type != "Constant"]
    for node in nodes:
        row = rows[node.output[0]]
        label = node.name or f"{node.op_type}→{node.output[0]}"
        assert row.producer == label
        readers = {n.name or f"{n.op_type}→{n.output[0]}" for n in nodes if node.output[0] in n.input}
        assert set(row.consumers) == readers


def test_paths_and_open_models_give_the_same(unet: Model, tmp_path: Path) -> None:
    onnx.save(unet.proto, tmp_path / "unet.onnx")
    for path in (tmp_path / "unet.onnx", str(tmp_path / "unet.onnx")):
        assert (
            estimate(path, shapes={"image": (1, 3, 64, 64)}).best.peak_bytes
            == plan(unet, shapes={"image": [1, 3, 64, 64]}).peak_bytes
        )


def test_a_result_is_shown_on_one_line(unet: Model) -> None:
    for result in (estimate(unet), plan(unet)):
        assert "\n" not in repr(result)
        assert "unet.onnx" in repr(result)
        assert len(repr(result)) < 120


def test_requests_that_make_no_sense_are_refused(unet: Model) -> None:
    problem = Problem.of([Buffer("a", 0, 2, 5)])
    with pytest.raises(UsageError, match="has no inputs"):
        plan(problem, shapes={"x": (1,)})
    with pytest.raises(UsageError, match="there is none to choose here"):
        plan(problem, strategy="model")
    with pytest.raises(UsageError, match="there is no order"):
        plan(unet, order="nonsense")
    with pytest.raises(UsageError, match="more than 0 seconds"):
        estimate(unet, time_limit=0)
    with pytest.raises(UsageError, match="chooses the order itself"):
        plan(unet, strategy="model", order="greedy")


def test_model_decides_order_and_placement_together() -> None:
    pytest.importorskip("ortools")
    small = Model.of(zoo.build("squeezenet"), "net")
    separate = plan(small, order="best")
    joint = plan(small, strategy="model", time_limit=5)
    validate_plan(joint.plan())
    assert joint.peak_bytes <= separate.peak_bytes
    assert joint.about is not None and joint.about.order == "model"
    assert Planning.from_document(through_json(joint.document())) == joint


def test_model_says_what_it_cannot_do() -> None:
    with pytest.raises(PlanError, match=r"out of reach for .* nodes: 100 are its limit"):
        plan(Model.of(zoo.build("densenet121"), "net"), strategy="model")


def two_paths() -> Model:
    """Halves that are rounded up on one way and down on the other: they meet only if the size is even."""
    nodes = [
        node("MaxPool", ["x"], ["up"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("MaxPool", ["x"], ["down"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Add", ["up", "down"], ["y"], name="meet"),
    ]
    return Model.of(model_of(nodes, {"x": (1, 1, "H", "H")}, ["y"]), "two.onnx")


def test_shapes_that_contradict_the_model_are_refused_before_anything_is_called_optimal() -> None:
    model = two_paths()
    assert estimate(model, dims={"H": 64}).best.optimal
    for ask in (estimate, plan):
        with pytest.raises(ImpossibleShapes, match="Add 'meet' cannot take inputs of 1×1×33×33, 1×1×32×32") as caught:
            ask(model, dims={"H": 65})
        assert caught.value.exit_code == 3
        assert "x 1×1×65×65" in caught.value.hint


def two_rates(*others: str) -> Model:
    """As a voice detector for two sample rates: what suits one branch does not suit the other."""
    arms = {"then_branch": "Relu", "else_branch": "Squeeze"}
    if others:
        arms = dict(zip(arms, others, strict=True))
    graphs = {}
    for arm, operator in arms.items():
        read = ["rows", "first"] if operator == "Squeeze" else ["rows"]
        inner = node(operator, read, [arm], name=arm)
        graphs[arm] = helper.make_graph([inner], arm, [], [helper.make_empty_tensor_value_info(arm)])
    nodes = [
        node("Sin", ["x"], ["rows"]),
        node("If", ["which"], ["either"], **graphs),
        node("ReduceSum", ["either"], ["y"], keepdims=0),
    ]
    which = helper.make_tensor_value_info("which", TensorProto.BOOL, [])
    first = {"first": np.array([0])}
    return Model.of(model_of(nodes, {"x": ("n", 16), "which": which}, ["y"], first, opset=17), "rates.onnx")


def test_a_branch_that_these_inputs_cannot_take_is_no_reason_to_refuse_them() -> None:
    for ask in (estimate, plan):
        found = ask(two_rates(), shapes={"x": (64, 16)})
        assert found.about is not None and found.about.inputs["x"].shape == (64, 16)
        with pytest.raises(ImpossibleShapes, match="Squeeze 'then_branch' cannot take inputs of 64×16, 1") as caught:
            ask(two_rates("Squeeze", "Squeeze"), shapes={"x": (64, 16)})
        assert caught.value.hint.startswith("the inputs were x 64×16, which scalar; ")


@pytest.mark.parametrize("capacity", [None, 2**20])
def test_what_cannot_be_loaded_for_these_sizes_alone_is_not_tiled(capacity: int | None) -> None:
    """ONNX Runtime refuses the other branch as soon as sizes are in the model; with free ones it does not see it."""
    model, shapes = two_rates(), {"x": (64, 16)}
    found = plan(model, shapes=shapes, tile=True, capacity=capacity)
    assert found.peak_bytes == plan(model, shapes=shapes).peak_bytes and found.fits
    for result in (found, estimate(model, shapes=shapes, tile=True, processes=False)):
        tiling = result.tiling
        assert tiling is not None and not tiling.parts and tiling.after_bytes == tiling.before_bytes > 0
        assert "for these sizes alone: ONNX Runtime cannot load the model" in tiling.note
        assert type(result).from_document(json.loads(json.dumps(result.document()))) == result
        shown = section(result.document())
        assert [fact.about for fact in shown.facts if "tiled" in fact.label] == ["as it is: it cannot be tiled"]
        assert any(note.startswith("It cannot be tiled, as there is no graph for these sizes") for note in shown.notes)
        with pytest.raises(ModelError, match="ONNX Runtime cannot load the model"):
            plan(model, shapes=shapes, tile=True, fix_dims=True)


def test_inputs_that_are_too_small_are_refused_and_end_no_process() -> None:
    """Given a Slice of fewer than no elements, shape inference of onnx aborts."""
    nodes = [
        node("MaxPool", ["x"], ["few"], kernel_shape=[3, 3]),
        node("Slice", ["few", "start", "end", "axis"], ["y"]),
    ]
    numbers = {"start": 0, "end": 2**62, "axis": 2}
    weights = {name: np.array([number], np.int64) for name, number in numbers.items()}
    model = Model.of(model_of(nodes, {"x": (1, 1, "H", "H")}, ["y"], weights), "small.onnx")
    assert estimate(model, dims={"H": 3}).best.optimal
    with pytest.raises(ImpossibleShapes, match="tensor 'few' would have a negative dimension") as caught:
        estimate(model, dims={"H": 1})
    assert "x 1×1×1×1" in caught.value.hint


def test_an_assumption_that_contradicts_the_model_is_named() -> None:
    nodes = [node("Add", ["x", "bias"], ["y"])]
    model = Model.of(model_of(nodes, {"x": ("N", "S")}, ["y"], {"bias": np.ones(100, np.float32)}), "fixed.onnx")
    with pytest.raises(ImpossibleShapes) as caught:
        estimate(model)
    assert caught.value.hint.startswith("N=1, S=128 was assumed")
    assert estimate(model, dims={"S": 100}).best.optimal


@pytest.mark.parametrize("order", ["ort-default", "ort-priority", "best"])
def test_the_same_seed_gives_the_same_order_and_plan(order: str) -> None:
    """ONNX Runtime numbers some nodes by their addresses: orders, and what is searched from them, went with that."""
    proto = zoo.build("randwire", channels=16, nodes=12)
    plans = [plan(Model.of(proto, "wired.onnx"), order=order, seed=3) for _ in range(4)]
    assert len({each.placement for each in plans}) == 1
