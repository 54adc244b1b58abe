"""What is written of a rewriting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxmem import zoo
from onnxmem.errors import ModelError
from onnxmem.model.blocks import block_size
from onnxmem.model.model import Model
from onnxmem.rewriting.rewriting import Part, Rewriting, apply
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import StaticNode, StaticTensor, static_graph
from tests.unit.rewriting.models import fixed, load, optimized, random_inputs, run


def test_a_graph_that_is_not_rewritten_is_written_as_it_was(tmp_path: Path) -> None:
    path = optimized(fixed(zoo.build("resnet18"), {"batch": 1, "height": 64, "width": 64}), tmp_path)
    proto = load(path)
    graph = static_graph(Model.open(path), {}, optimized=False)
    unchanged = Rewriting(parts=(), graph=graph, nodes_before=len(graph.nodes), before=1, after=1, extra_work=0.0)
    assert apply(proto, unchanged).SerializeToString() == proto.SerializeToString()


def test_copies_and_added_nodes_are_written_with_their_attributes(tmp_path: Path) -> None:
    proto = fixed(zoo.build("resnet18"), {"batch": 1, "height": 64, "width": 64})
    path = optimized(proto, tmp_path)
    graph = static_graph(Model.open(path), {}, optimized=False)
    first = graph.nodes[0]
    tensor = graph.tensors["image"]
    slicing = StaticNode("Slice", "", ("image", "start", "end", "axis"), ("whole",))
    copy = first._replace(inputs=("whole", *first.inputs[1:]))
    numbers = {"start": (0,), "end": (64,), "axis": (2,)}
    changed = replace(
        graph,
        nodes=(slicing, copy, *graph.nodes[1:]),
        added=tuple(numbers),
        values={**graph.values, **numbers},
        tensors={**graph.tensors, **dict.fromkeys(numbers, StaticTensor((1,), "int64", 8)), "whole": tensor},
    )
    rewriting = replace(search(graph), graph=changed)
    written = apply(load(path), rewriting)
    assert rewriting.added_nodes == 1
    assert [node.op_type for node in written.graph.node][:2] == ["Slice", first.op_type]
    assert [tensor.name for tensor in written.graph.initializer][-3:] == list(numbers)
    feeds = random_inputs(proto)
    for before, after in zip(run(load(path), feeds), run(written, feeds), strict=True):
        np.testing.assert_array_equal(before, after)
    with pytest.raises(ModelError, match="another model"):
        apply(onnx.ModelProto(), rewriting)


def test_the_block_is_the_one_that_onnx_runtime_uses() -> None:
    assert block_size() in (4, 8, 16, 32)


def test_a_part_comes_back_from_its_document() -> None:
    part = Part(kind="stripes", nodes=("a", "b"), axis=2, pieces=4, before=100, after=50, extra_work=0.01)
    assert Part.from_document(part.document()) == part
