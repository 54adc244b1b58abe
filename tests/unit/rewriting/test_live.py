"""The bytes alive at each step, against the rules of `schedule/` and a graph counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnxmem import zoo
from onnxmem.model.model import Model
from onnxmem.rewriting.live import NODE_BYTES, live, live_bytes, peak, score
from onnxmem.rewriting.static import StaticGraph, StaticNode, StaticTensor, static_graph
from onnxmem.schedule.storages import Rules, memory_of
from onnxmem.schedule.workload import lifetimes
from tests.helpers import TINY
from tests.unit.rewriting.models import fixed, optimized


def by_schedule(model: Model, static: StaticGraph) -> list[int]:
    """The same by the rules that the estimate uses, but for channels that fill up a block."""
    graph = model.graph({}, view="raw")
    sizes = {name: replace(tensor, size=static.tensors[name].bytes) for name, tensor in graph.tensors.items()}
    graph = replace(graph, tensors=sizes)
    outputs = frozenset(graph.outputs)
    memory = memory_of(graph, Rules(), number=lambda size: int(str(size)), uncounted=outputs)
    alive = [0] * len(graph.nodes)
    for row in lifetimes(memory.workload, range(len(graph.nodes))):
        for step in range(row.lower, row.upper):
            alive[step] += row.size
    return alive


@pytest.mark.parametrize("name", TINY)
def test_it_equals_the_schedule(name: str, tmp_path: Path) -> None:
    options, (dims, _) = TINY[name]
    path = optimized(fixed(zoo.build(name, **options), dims), tmp_path)
    model = Model.open(path)
    graph = static_graph(model, {}, optimized=False)
    assert len(graph.nodes) == len(model.proto.graph.node)
    quiet = replace(graph, nodes=tuple(node._replace(scratch=0) for node in graph.nodes))
    assert live_bytes(quiet) == by_schedule(model, graph)
    with_scratch = [a + node.scratch for a, node in zip(live_bytes(quiet), graph.nodes, strict=True)]
    assert live_bytes(graph) == with_scratch
    assert score(graph, graph) == peak(graph) == max(with_scratch)


def test_a_node_that_may_overwrite_its_input_does_so_only_once_nobody_else_reads_it() -> None:
    tensors = dict.fromkeys("xabcd", StaticTensor((100,), "float32", 400))
    chain = [
        StaticNode("Exp", "", ("x",), ("a",)),
        StaticNode("Relu", "", ("a",), ("b",)),
        StaticNode("Add", "", ("b", "b"), ("c",)),
    ]
    assert live(chain, tensors, {"c"}) == [400, 400, 400]
    twice = [chain[0], chain[1], StaticNode("Add", "", ("a", "b"), ("c",))]
    assert live(twice, tensors, {"c"}) == [400, 800, 800]
    view = [chain[0], StaticNode("Flatten", "", ("a",), ("b",)), StaticNode("Exp", "", ("b",), ("c",)), chain[0]]
    assert live([*view[:3], StaticNode("Exp", "", ("c",), ("d",), scratch=50)], tensors, {"d"}) == [400, 400, 800, 450]
    assert NODE_BYTES == 6144
