"""The bytes alive at a time, against what ONNX Runtime's own allocator counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxmem import zoo
from onnxmem.model.bindings import bind
from onnxmem.model.comparing import evaluate
from onnxmem.model.graph import Node
from onnxmem.model.model import Model
from onnxmem.schedule import inplace
from onnxmem.schedule.inplace import aliased_input, overwritten_input
from onnxmem.schedule.scheduled import ALIGNMENT, problem_of
from onnxmem.schedule.timeline import lay_out
from onnxmem.session.planned.trace import record
from scripts import probe_inplace
from tests.helpers import REAL_SHAPES, TINY, model_of, profile, random_feeds, real_feeds, saved, session_options

VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
pytestmark = pytest.mark.skipif(VERSION < (1, 28), reason="profiles have memory since ONNX Runtime 1.28")

REAL = ("det", "rec", "cls", "nsfw", "ddddocr_det", "magika", "bert_pron", "kaldi", "light_shufflenet")


def peak_when_run(path: Path, feeds: dict[str, Any], level: str) -> int:
    """Most bytes in use while a node runs, beyond what was in use before the first one."""
    events = [event.args for event in profile(path, feeds, level)]
    in_use = [int(args["mem_bytes_requested_in_use"]) for args in events]
    return max(in_use) - (in_use[0] - int(events[0]["mem_requested_in_use_delta"]))


def check(path: Path, feeds: dict[str, Any]) -> None:
    model = Model.open(path)
    dims = bind(model.inputs, shapes={name: value.shape for name, value in feeds.items()})
    for level in ("disabled", "extended"):
        graph = model.graph(dims, view="optimized", level=level)
        said = max(evaluate(live, {}) for live in lay_out(graph, "ort-default").live())
        assert peak_when_run(path, feeds, level) == said, level


@pytest.mark.parametrize("name", TINY)
def test_zoo(name: str, tmp_path: Path) -> None:
    options, (_, dims) = TINY[name]
    proto, path = zoo.build(name, **options), tmp_path / "model.onnx"
    onnx.save(proto, path)
    check(path, random_feeds(proto, dims))


@pytest.mark.parametrize("operators", [("Sin",), ("Sin", "Cos", "Sin")])
def test_loops(operators: tuple[str, ...], tmp_path: Path) -> None:
    """What a loop returns is made when its body is done: the most is alive at one of the two times, or at the other."""
    names = ["state", *(f"after {k}" for k in range(len(operators)))]
    body = helper.make_graph(
        [
            *(helper.make_node(op, [names[k]], [names[k + 1]]) for k, op in enumerate(operators)),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, (64, 64)),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, (64, 64)),
        ],
    )
    nodes = [helper.make_node("Loop", ["turns", "yes", "x"], ["y"], body=body)]
    constants = {"turns": np.array(3), "yes": np.array(True)}
    path = saved(model_of(nodes, {"x": [64, 64]}, ["y"], constants, opset=13), tmp_path)
    trace = record(str(path), {"x": np.ones((64, 64), np.float32)}, session_options("all"))
    graph = Model.open(path).graph(view="optimized", level="all")
    wanted = trace.problem(outputs=True).lower_bound
    for order in ("ort-default", "best"):
        timeline = lay_out(graph, order, alignment=ALIGNMENT)
        # Single numbers may be alive one step longer or less.
        assert problem_of(timeline, ALIGNMENT).lower_bound == pytest.approx(wanted, abs=4 * ALIGNMENT)
        assert order != "best" or timeline.search.peak == problem_of(timeline, ALIGNMENT).lower_bound


@pytest.mark.models
@pytest.mark.parametrize("key", REAL)
def test_real_models(key: str, real_model: Callable[[str], Path]) -> None:
    check(real_model(key), real_feeds(key, REAL_SHAPES[key][0]))


# All of the table, and kernels of which one would expect it and that do not.
TABLE = {op: domain for domain, op in (*sorted(inplace._ON_CPU.aliases), *inplace._ON_CPU.in_place)}
ASKED = (
    *TABLE,
    *("Add", "Mul", "Exp", "Sqrt", "Erf", "Gelu", "Transpose", "LayerNormalization", "Dropout", "Where", "Concat"),
)


@pytest.mark.parametrize("op", ASKED)
def test_kernels_share_memory_as_our_table_says(op: str, tmp_path: Path) -> None:
    """Asked of the installed ONNX Runtime, so that a release that changes it is noticed."""
    cases = [case for case in probe_inplace.cases() if case[0] == op and case[1] == TABLE.get(op, case[1])]
    assert cases
    for case in cases:
        _, domain, inputs, attributes = case
        node = Node(0, "", op, domain, ("x",) * len(inputs), ("y",))
        for position, spec in enumerate(inputs):
            if not isinstance(spec, type) or (op == "Cast" and attributes["to"] != TensorProto.FLOAT):
                continue
            shares = probe_inplace.bytes_added(probe_inplace.model_around(case, position, False), str(tmp_path)) == 0
            assert shares == (position in (aliased_input(node), overwritten_input(node)))
            if shares:
                later = probe_inplace.bytes_added(probe_inplace.model_around(case, position, True), str(tmp_path))
                assert (later == 0) == (aliased_input(node) == position)
