"""What a model takes on a GPU, on paper: what is asked for there, and what ONNX Runtime's arena makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import helper

from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.prediction.asked import Asked
from onnxmem.prediction.on_device import Followed, follow
from onnxmem.scratch.kernel import NOTHING, Scratch
from onnxmem.unknown import Unknown
from tests.helpers import model_of, saved

MIB = 1 << 20
SIDE = 512  # a square of it is 1 MiB
LATER, FIRST = 3 * MIB, 5 * MIB


def graph_on_device(tmp_path: Path) -> Graph:
    """Two products, something between that is done in place there and not on the CPU, and a part for the host."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gelu", ["a"], ["g"]),
        helper.make_node("MatMul", ["g", "w"], ["b"]),
        helper.make_node("Softmax", ["b"], ["s"]),
        helper.make_node("Add", ["s", "b"], ["y"]),
    ]
    weights = {"w": np.ones((SIDE, SIDE), np.float32)}
    path = saved(model_of(nodes, {"x": [SIDE, SIDE]}, ["y"], weights, opset=20), tmp_path)
    return replace(Model.open(path).graph({}, level="disabled"), on_cuda=True)


def followed(tmp_path: Path) -> Followed:
    asked: dict[str, Asked | Unknown] = {
        "b": Asked(Scratch((FIRST,)), Scratch((LATER,))),
        "a": Asked(NOTHING, NOTHING),
        "s": Unknown("no answer"),
    }
    return follow(graph_on_device(tmp_path), asked)


def test_inputs_and_outputs_are_on_the_device_too(tmp_path: Path) -> None:
    """The input, g (where a lay: done in place there), b, and what the kernel takes."""
    found = followed(tmp_path)
    assert found.trace.bound() == 3 * MIB + LATER
    assert not found.trace.output_bytes
    sizes = sorted(found.trace.sizes)
    assert sizes == [MIB] * 5 + [LATER]  # x, a with g, b, s, y


def test_a_planned_arena_is_no_larger_than_the_first_run_and_the_plan(tmp_path: Path) -> None:
    loaded, arena, parts = followed(tmp_path).planned()
    assert loaded == 2 * MIB  # memory of devices comes in pieces of 2 MiB
    assert arena == 3 * MIB + FIRST
    assert sum(parts.values()) == loaded + arena


def test_stock_takes_weights_and_runs_from_one_arena_that_grows_by_powers_of_two(tmp_path: Path) -> None:
    found = followed(tmp_path)
    for stock in (True, False):
        for loaded, grown, parts in found.in_arena(stock=stock):
            assert loaded == 2 * MIB
            assert grown >= 3 * MIB + FIRST
            assert sum(parts.values()) == loaded + grown
    assert found.in_arena(stock=True)[0].grown >= found.in_arena(stock=False)[0].grown


def test_the_order_of_weights_is_up_to_chance(tmp_path: Path) -> None:
    """A large one that comes last needs a region of its own, one that comes first leaves room in its region."""
    found = replace(followed(tmp_path), weights=(MIB, MIB, 3 * MIB, MIB, 5 * MIB))
    possible = found.in_arena(stock=True)
    assert [sum(each[:2]) for each in possible] == sorted(sum(each[:2]) for each in possible)
    assert len({each.loaded for each in possible}) > 1


def test_what_the_host_makes_takes_nothing_on_the_device(tmp_path: Path) -> None:
    graph = graph_on_device(tmp_path)
    nodes = tuple(replace(node, on_host=node.op_type == "Softmax") for node in graph.nodes)
    sizes = sorted(follow(replace(graph, nodes=nodes), {}).trace.sizes)
    assert sizes == [MIB] * 4  # x, a with g, b, y
