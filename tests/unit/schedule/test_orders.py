"""Orders respect what nodes need, and two of them are ONNX Runtime's own: its profile says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from onnxmem import zoo
from onnxmem.errors import UsageError
from onnxmem.model.graph import Graph
from onnxmem.model.model import Model
from onnxmem.schedule.orders import ORDERS, check_order_name, find_order
from onnxmem.schedule.storages import Rules, memory_of, predecessors
from onnxmem.schedule.timeline import lay_out
from onnxmem.schedule.workload import check_order, peak
from tests.helpers import REAL_SHAPES, TINY, model_of, profile, random_feeds, real_feeds

# Many branches, ties, Shape nodes, quantised operators; no subgraphs, whose nodes are numbered from 0 again.
REAL = ("det", "rec", "ddddocr_old", "magika", "bert_pron", "kaldi", "basic_pitch", "light_shufflenet")


def order_of(graph: Graph, name: str) -> list[int]:
    workload = memory_of(graph, Rules(), number=lambda size: size if isinstance(size, int) else 1).workload
    return find_order(name, graph, workload, time_limit=1.0).order


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random networks, their nodes in any order in the file."""
    count = draw(st.integers(1, 12))
    nodes: list[NodeProto] = []
    for v in range(count):
        before = draw(st.lists(st.integers(0, v), min_size=1, max_size=3))
        names = [f"t{p - 1}" if p else "x" for p in before]
        op = draw(st.sampled_from(["Relu", "Exp", "Identity", "Shape", "Sum"]))
        inputs = names if op == "Sum" else names[:1]
        if op == "Shape":
            nodes.append(helper.make_node("Shape", inputs, [f"s{v}"]))
            nodes.append(helper.make_node("Expand", ["x", f"s{v}"], [f"t{v}"]))
        else:
            nodes.append(helper.make_node(op, inputs, [f"t{v}"]))
    read = {name for node in nodes for name in node.input}
    outputs = [f"t{v}" for v in range(count) if f"t{v}" not in read]
    shuffled = draw(st.permutations(nodes))
    return Model.of(model_of(shuffled, {"x": (2, 3)}, outputs)).graph(view="raw")


@given(graphs())
@settings(max_examples=60)
def test_every_order_runs_each_node_once_and_after_what_it_needs(graph: Graph) -> None:
    before = predecessors(graph)
    workload = memory_of(graph, Rules(), number=lambda size: size if isinstance(size, int) else 1).workload
    for name in ORDERS:
        order = order_of(graph, name)
        check_order(workload, order)
        place = {node: step for step, node in enumerate(order)}
        assert sorted(order) == list(range(len(graph.nodes)))
        assert all(place[p] < place[node] for node in range(len(graph.nodes)) for p in before[node])
        assert max(lay_out(graph, name).live(), key=int) == peak(workload, order)  # type: ignore[arg-type]


def test_a_sorted_file_is_left_as_it_is() -> None:
    for name in ("densenet121", "transformer"):
        graph = Model.of(zoo.build(name, **TINY[name][0])).graph(view="raw")
        assert order_of(graph, "file") == list(range(len(graph.nodes)))


def test_an_unknown_order_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no order 'random'") as caught:
        check_order_name("random")
    assert "ort-priority" in caught.value.hint


def check_against_profile(path: Path, feeds: dict[str, Any]) -> None:
    model = Model.open(path)
    for level in ("disabled", "extended"):
        graph = model.graph(view="optimized", level=level, numbered=True)
        for name, priority in (("ort-default", False), ("ort-priority", True)):
            order = order_of(graph, name)
            said = [(graph.nodes[v].index, graph.nodes[v].op_type) for v in order]
            ran = profile(path, feeds, level, priority=priority)
            assert [(event.index, event.op_type) for event in ran] == said, f"{level}, {name}"
            if not priority:  # the default order must come out right without the numbers, which cost a second look
                plain = model.graph(view="optimized", level=level)
                outputs = [plain.nodes[v].outputs for v in order_of(plain, name)]
                assert outputs == [graph.nodes[v].outputs for v in order]


@pytest.mark.parametrize("name", TINY)
def test_zoo_runs_in_the_order_we_say(name: str, tmp_path: Path) -> None:
    options, (dims, _) = TINY[name]
    proto, path = zoo.build(name, **options), tmp_path / "model.onnx"
    onnx.save(proto, path)
    check_against_profile(path, random_feeds(proto, dims))


@pytest.mark.models
@pytest.mark.parametrize("key", REAL)
def test_real_models_run_in_the_order_we_say(key: str, real_model: Callable[[str], Path]) -> None:
    check_against_profile(real_model(key), real_feeds(key, REAL_SHAPES[key][0]))


@pytest.mark.parametrize("seed", range(6))
def test_random_wirings_run_in_the_order_we_say(seed: int, tmp_path: Path) -> None:
    """Ties are what orders differ in; randomly wired networks are full of them."""
    proto, path = zoo.build("randwire", channels=4, nodes=12, wiring=seed), tmp_path / "model.onnx"
    onnx.save(proto, path)
    check_against_profile(path, random_feeds(proto, {"batch": 1, "height": 32, "width": 32}))
