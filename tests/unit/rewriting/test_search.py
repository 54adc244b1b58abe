"""Whole networks: less alive, the same bits, the same answer each time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from onnx import ModelProto, TensorProto, helper

from benchmarks.rewritten import as_packaged
from onnxmem import zoo
from onnxmem.model.model import Model
from onnxmem.rewriting.live import NODE_BYTES, peak
from onnxmem.rewriting.rewriting import Rewriting, apply
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import StaticGraph, static_graph
from onnxmem.session.planned.trace import record
from tests.helpers import hashes
from tests.unit.rewriting.models import fixed, load, optimized, random_inputs, run

IMAGE = {"batch": 1, "height": 224, "width": 224}
SIZES = {"resnet18": IMAGE, "googlenet": IMAGE, "unet": {"batch": 1, "height": 64, "width": 256}}


@cache
def prepared(name: str) -> tuple[ModelProto, StaticGraph]:
    with TemporaryDirectory() as folder:
        path = optimized(fixed(zoo.build(name), SIZES[name]), Path(folder))
        return load(path), static_graph(Model.open(path), {}, optimized=False)


@cache
def rewritten(name: str) -> Rewriting:
    return search(prepared(name)[1])


@pytest.mark.parametrize(("name", "ratio"), [("resnet18", 0.45), ("googlenet", 0.33), ("unet", 0.68)])
def test_less_is_alive_and_nothing_else_changes(name: str, ratio: float) -> None:
    (proto, graph), found = prepared(name), rewritten(name)
    assert found.before == peak(graph)
    assert found.after == peak(found.graph)
    assert found.net == found.after + NODE_BYTES * found.added_nodes <= ratio * found.before
    assert 0 <= found.extra_work <= 0.10
    assert found.extra_work == pytest.approx(sum(part.extra_work for part in found.parts))
    after, feeds = apply(proto, found), random_inputs(proto)
    for threads in (1, 2):
        wanted, made = (run(each, feeds, threads) for each in (proto, after))
        assert hashes(wanted) == hashes(made)


def test_onnx_runtime_takes_what_was_said() -> None:
    (proto, _), found = prepared("googlenet"), rewritten("googlenet")
    feeds = random_inputs(proto)
    for model, expected in ((proto, found.before), (apply(proto, found), found.after)):
        assert record(model.SerializeToString(), feeds, as_packaged()).bound() == expected


def test_the_answer_is_the_same_each_time_and_limits_are_kept() -> None:
    _, graph = prepared("resnet18")
    once, again, little = rewritten("resnet18"), search(graph), search(graph, extra_work=0.001)
    assert once == again
    assert little.extra_work <= 0.001
    assert little.net >= once.net
    assert all(part.kind == "stripes" and part.pieces > 1 and part.nodes for part in once.parts)


def test_a_budget_is_met_with_few_nodes() -> None:
    _, graph = prepared("resnet18")
    least, budget = rewritten("resnet18"), int(0.7 * peak(graph))
    modest = search(graph, budget=budget)
    assert modest.after <= budget
    assert 0 < modest.added_nodes <= least.added_nodes
    assert search(graph, budget=peak(graph)).added_nodes == 0
    assert 1000 < search(graph, budget=1000).after <= budget


def test_wide_images_are_cut_along_their_width() -> None:
    assert {part.axis for part in rewritten("unet").parts} == {3}


def test_a_graph_without_images_is_left_alone(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    proto = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:]))
    proto.ir_version = 8
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = static_graph(Model.open(path), {}, optimized=False)
    found = search(graph)
    assert found.graph == graph
    assert found.parts == ()
    assert apply(proto, found).SerializeToString() == proto.SerializeToString()
