"""Attention, feed-forward layers and whatever else can be: in blocks, with less alive at once, bit for bit the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from onnxmem import zoo
from onnxmem.model.model import Model
from onnxmem.rewriting.block_search import search_blocks
from onnxmem.rewriting.blocks import Follower
from onnxmem.rewriting.emit import write
from onnxmem.rewriting.live import peak
from onnxmem.rewriting.rewriting import Rewriting, apply
from onnxmem.rewriting.static import StaticGraph, static_graph
from tests.unit.rewriting.models import fixed, optimized, run
from tests.unit.rewriting.texts import feeds, model, same


def as_run(proto: ModelProto) -> tuple[ModelProto, StaticGraph]:
    """What ONNX Runtime makes of a model, and its static view."""
    with tempfile.TemporaryDirectory() as folder:
        path = optimized(proto, Path(folder))
        shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in proto.graph.input}
        return onnx.load(path), static_graph(Model.open(path), shapes, optimized=False)


def check_same(written: ModelProto, rewriting: Rewriting, fed: dict[str, Any]) -> None:
    rewritten = apply(written, rewriting)
    for threads in (1, 2):
        assert same(run(rewritten, fed, threads), run(written, fed, threads))


def transformer(sequence: int, layers: int = 1, heads: int = 4, width: int = 128) -> ModelProto:
    proto = zoo.build(
        "transformer", positions=sequence, layers=layers, vocabulary=50, width=width, heads=heads
    )  # fmt: skip
    return fixed(proto, {"batch": 1, "sequence": sequence})


def test_attention_and_feed_forward_layers_are_computed_in_blocks() -> None:
    proto = transformer(256, layers=2, heads=8, width=64)
    written, graph = as_run(proto)
    found = search_blocks(graph)
    assert found.before == peak(graph) and found.after == peak(found.graph)
    assert found.after < 0.5 * found.before
    assert {part.kind for part in found.parts} == {"blocks"} and len(found.parts) % 2 == 0  # both layers alike
    operators = {node.op_type for part in found.parts for node in graph.nodes if node.first_output in part.nodes}
    assert {"Softmax", "MatMul", "FusedMatMul"} <= operators
    check_same(written, found, feeds(proto))
    assert search_blocks(graph) == found


def test_a_budget_ends_the_search() -> None:
    _, graph = as_run(transformer(256, heads=8, width=64))
    most = search_blocks(graph)
    budget = (most.before + most.net) // 2
    some = search_blocks(graph, budget=budget)
    assert most.net < some.net <= budget
    assert some.added_nodes < most.added_nodes


def test_what_is_too_small_stays_as_it_is() -> None:
    _, graph = as_run(transformer(16))
    found = search_blocks(graph)
    assert found.parts == () and found.graph == graph


@pytest.mark.parametrize(
    ("lines", "axis"),
    [
        # Heads are apart in attention; queries are too, but neither keys, which are added up, nor columns.
        ("s = MatMul(q, k) p = Softmax<axis = -1>(s) y = MatMul(p, v)", {1, 2}),
        ("s = MatMul(q, k) p = Softmax<axis = 2>(s) y = MatMul(p, v)", {1}),
        ("s = MatMul(q, k) c = CumSum(s, one) y = MatMul(c, v)", {2}),
    ],
)
def test_only_axes_along_which_nothing_mixes_are_followed(lines: str, axis: set[int]) -> None:
    proto = model(
        lines, "float[1, 4, 256, 32] q, float[1, 4, 32, 256] k, float[1, 4, 256, 32] v", one=np.array(1)
    )  # fmt: skip
    written, graph = as_run(proto)
    follower = Follower(graph)
    middle = next(place for place, node in enumerate(graph.nodes) if "MatMul" not in node.op_type)
    whole = {
        each
        for each in range(4)
        if (grown := follower.grow(middle, each, 0, len(graph.nodes) - 1))
        and len(grown.members.inside) == len(graph.nodes)
    }
    assert whole == axis
    for each in axis:
        grown = follower.grow(middle, each, 0, len(graph.nodes) - 1)
        assert grown is not None
        region = grown.region(graph, 4)
        assert region is not None
        blocks = write(graph, [region])
        rewriting = Rewriting(parts=(), graph=blocks, nodes_before=3, before=0, after=0, extra_work=0.0)
        check_same(written, rewriting, feeds(proto))
        assert peak(blocks) < 0.6 * peak(graph)


def test_blocks_that_are_too_small_to_be_exact_are_not_made() -> None:
    # Of a product with 64 columns, fewer than 64 rows are shared among threads by columns, and added up otherwise.
    proto = model("p = Softmax(x) y = MatMul(p, v)", "float[512, 512] x, float[512, 64] v")
    _, graph = as_run(proto)
    grown = Follower(graph).grow(0, 0, 0, 1)
    assert grown is not None
    assert [pieces for pieces in (2, 4, 8, 16, 32) if grown.exact(pieces)] == [2, 4, 8]


def test_few_rows_of_a_product_are_not_made_fewer() -> None:
    """Reading the weights is what takes the time: four products of one row take as long as four of four rows."""
    recurrent = zoo.build("lstm", layers=1)
    _, graph = as_run(fixed(recurrent, {"batch": 4, "sequence": 128}))
    assert search_blocks(graph).parts == ()
    weights = np.ones((64, 4096), np.float32)
    for rows, pieces in ((32, [2]), (8, [])):
        proto = model("p = MatMul(x, w) q = Relu(p) y = MatMul(q, v)", f"float[{rows}, 64] x", w=weights, v=weights.T)
        _, graph = as_run(proto)
        grown = Follower(graph).grow(1, 0, 0, len(graph.nodes) - 1)
        assert [each for each in (2, 4, 8) if grown and grown.exact(each)] == pieces


def test_heads_are_not_torn_apart() -> None:
    """Where heads were merged into channels, a block has all channels of its heads."""
    proto = model(
        "t = Transpose<perm = [0, 2, 1, 3]>(x) e = Exp(t) m = Reshape(e, flat) y = Relu(m)",
        "float[1, 6, 50, 8] x", flat=np.array([1, 50, 48]),
    )  # fmt: skip
    written, graph = as_run(proto)
    place = next(place for place, node in enumerate(graph.nodes) if node.op_type == "Exp")
    grown = Follower(graph).grow(place, 2, 0, len(graph.nodes) - 1)
    assert grown is not None and grown.unit == 6
    for pieces in (2, 3, 4, 5, 6):
        region = grown.region(graph, pieces)
        assert region is not None
        blocks = write(graph, [region])
        rewriting = Rewriting(parts=(), graph=blocks, nodes_before=4, before=0, after=0, extra_work=0.0)
        check_same(written, rewriting, feeds(proto))
    assert not grown.exact(7)


LAYERS = [
    "q = MatMul(a, w) k = MatMul(a, v) t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = Softmax(s) "
    "o = MatMul(p, a) b = Add(o, a)",
    "h = MatMul(a, up) g = Relu(h) b = MatMul(g, down)", "b = LayerNormalization(a, g1, g1)", "b = Tanh(a)",
    "h = MatMul(a, up) e = Erf(h) m = ReduceMean(h, last) d = Sub(e, m) b = MatMul(d, down)",
    "r = Reshape(a, split) t = Transpose<perm = [0, 2, 1, 3]>(r) e = Exp(t) u = Transpose<perm = [0, 2, 1, 3]>(e) "
    "b = Reshape(u, back)",
    "c = CumSum(a, one) b = Add(c, a)", "m = ReduceMax(a, one1) b = Sub(a, m)",
    "h = MatMul(a, up) s = Softmax<axis = 1>(h) b = MatMul(s, down)", "b = Softplus(a)",
    "x, y = Split<axis = 1, num_outputs = 2>(a) z = Concat<axis = 1>(y, x) b = Mul(z, a)",
]  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(data=st.data(), tokens=st.sampled_from((64, 96, 130)), batch=st.sampled_from((1, 2)))
def test_whatever_is_found_computes_the_same(data: Any, tokens: int, batch: int) -> None:
    chosen = data.draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4))
    weights = {"w", "v", "up", "down", "g1", "last", "split", "back", "one", "one1"}
    lines = []
    for number, layer in enumerate(chosen):
        names = {"a": f"a{number}", "b": f"a{number + 1}"}
        lines.append(_renamed(layer, names, weights, f"_{number}"))
    proto = model(
        lines, f"float[{batch}, {tokens}, 32] a0", f"a{len(chosen)}", opset=20,
        w=(32, 32), v=(32, 32), up=(32, 256), down=(256, 32), g1=(32,), last=np.array([-1]),
        split=np.array([batch, tokens, 4, 8]), back=np.array([batch, tokens, 32]), one=np.array(1), one1=np.array([1]),
    )  # fmt: skip
    written, graph = as_run(proto)
    found = search_blocks(graph, time_limit=2)
    assert found.net <= found.before and found.after == peak(found.graph)
    if found.parts:
        check_same(written, found, feeds(proto))


def _renamed(layer: str, names: dict[str, str], kept: set[str], suffix: str) -> str:
    import re  # noqa: PLC0415

    def new(match: re.Match[str]) -> str:
        word = match[0]
        return word if word in kept or word in ("perm", "axis", "num_outputs") else names.get(word, f"{word}{suffix}")

    return re.sub(r"\b[a-z][a-z_0-9]*\b", new, layer)
