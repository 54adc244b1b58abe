"""The rule of each operator, against ONNX Runtime: which rows are read, and whether parts are the same as all of it.

What a rule says is read is put to the test by changing one input row at a time; that parts come out bit for bit the
same, by running them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxmem.model.blocks import BLOCKED_DOMAIN
from onnxmem.model.model import Model
from onnxmem.rewriting.axes import Axes, follow
from onnxmem.rewriting.elementwise import BROADCASTING, UNARY
from onnxmem.rewriting.emit import write
from onnxmem.rewriting.local import Local, Rows, Window
from onnxmem.rewriting.rewriting import Rewriting, apply
from onnxmem.rewriting.rules import RULES, local
from onnxmem.rewriting.static import StaticGraph, StaticNode, static_graph
from onnxmem.rewriting.stripes import Span, members_of, plan
from tests.helpers import hashes
from tests.unit.rewriting.models import Array, load, optimized, run

IMAGE, PLAIN = (1, 16, 33, 40), (1, 3, 33, 40)


def weight(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def model(op_type: str, weights: Sequence[Array | None], shape: Sequence[int] = IMAGE, **how: Any) -> ModelProto:
    """One node on one image; what is None is an input that is not there."""
    opset, made = how.pop("opset", 17), how.pop("made", 1)
    stored = [numpy_helper.from_array(array, f"w{k}") for k, array in enumerate(weights) if array is not None]
    names = ["x", *(f"w{k}" if array is not None else "" for k, array in enumerate(weights))]
    node = helper.make_node(op_type, names, [f"y{k}" for k in range(made)], **how)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output],
        stored,
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    found = helper.make_model(graph, opset_imports=domains)
    found.ir_version = 8
    return found


CONV = weight(16, 16, 3, 3)
CASES: dict[str, ModelProto] = {
    "conv": model("Conv", [CONV], pads=[1, 1, 1, 1]),
    "exponents": model("Exp", []),
    "strided": model("Conv", [CONV], pads=[0, 2, 1, 0], strides=[2, 2]),
    "dilated": model("Conv", [weight(16, 16, 3, 2)], pads=[2, 1, 2, 1], dilations=[2, 1]),
    "depthwise": model("Conv", [weight(16, 1, 5, 3), weight(16)], group=16, pads=[2, 1, 2, 1]),
    "grouped": model("Conv", [weight(6, 8, 3, 3)], group=2, pads=[1, 1, 1, 1], strides=[3, 1]),
    "plain, long sums": model("Conv", [weight(3, 30, 3, 3)], [1, 30, 64, 96], pads=[1, 1, 1, 1]),
    "by name": model("Conv", [CONV], auto_pad="SAME_UPPER", strides=[2, 2]),
    "by the other name": model("Conv", [weight(4, 16, 2, 2)], auto_pad="SAME_LOWER", strides=[2, 2]),
    "no pads": model("Conv", [weight(5, 16, 3, 3)], auto_pad="VALID"),
    "one-dimensional": model("Conv", [weight(16, 8, 5)], [1, 8, 700], pads=[2, 2]),
    "largest": model("MaxPool", [], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "largest, hanging over": model("MaxPool", [], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "largest, dilated": model("MaxPool", [], kernel_shape=[2, 2], dilations=[2, 2]),
    "average": model("AveragePool", [], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "average, pads counted": model("AveragePool", [], kernel_shape=[3, 2], pads=[2, 1, 1, 0], count_include_pad=1),
    "average by name": model("AveragePool", [], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    "largest of plain": model("MaxPool", [], PLAIN, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "average of plain": model("AveragePool", [], PLAIN, kernel_shape=[3, 3], strides=[1, 2], pads=[1, 0, 1, 1]),
    "nearest": model("Resize", [None, floats(1, 1, 2, 2)], mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric"),
    "nearest, rounded up": model("Resize", [None, floats(1, 1, 4, 4)], mode="nearest", nearest_mode="ceil",
                                 coordinate_transformation_mode="asymmetric"),
    "nearest in the middle": model("Resize", [None, None, numbers(1, 16, 66, 80)], mode="nearest"),
    "linear": model("Resize", [None, floats(1, 1, 2, 2)], mode="linear"),
    "linear from the corner": model("Resize", [None, floats(1, 1, 4, 4)], [1, 3, 33, 20], mode="linear",
                                    coordinate_transformation_mode="asymmetric"),
    "upsampling": model("Upsample", [floats(1, 1, 2, 2)], mode="nearest", opset=9),
    "transposed": model("ConvTranspose", [weight(16, 4, 2, 2), weight(4)], strides=[2, 2]),
    "depth to space": model("DepthToSpace", [], blocksize=2, mode="CRD"),
    "space to depth": model("SpaceToDepth", [], [1, 8, 36, 40], blocksize=2),
    "one number": model("Mul", [weight(1)]),
    "one for each channel": model("Add", [weight(16, 1, 1)]),
    "one for each row": model("Sub", [weight(16, 33, 1)]),
    "batch normalization": model("BatchNormalization", [weight(16), weight(16), weight(16), np.abs(weight(16))]),
    "local response": model("LRN", [], [1, 64, 34, 40], size=5),
    "limits": model("Clip", [floats(-0.5)[0:1].reshape(()), floats(0.5).reshape(())]),
    "split": model("Split", [numbers(4, 12)], axis=1, made=2),
    "slice elsewhere": model("Slice", [numbers(1), numbers(7), numbers(1)]),
    "every other row": model("Slice", [numbers(1, 0), numbers(32, 9), numbers(2, 3), numbers(2, 1)]),
    "old slice": model("Slice", [], starts=[3], ends=[30], axes=[2], opset=9),
    "pad elsewhere": model("Pad", [numbers(0, 1, 0, 0, 0, 2, 0, 0)]),
    "axes exchanged": model("Transpose", [], perm=[0, 2, 3, 1]),
    "rows and columns in one": model("Reshape", [numbers(1, 2, 8, 1320)]),
    "without batch": model("Squeeze", [numbers(0)]),
}  # fmt: skip


@cache
def prepared(case: str) -> tuple[ModelProto, StaticGraph]:
    """The model as ONNX Runtime has optimized it, and what is known of it."""
    with TemporaryDirectory() as folder:
        path = optimized(CASES[case], Path(folder))
        return load(path), static_graph(Model.open(path), {}, optimized=False)


def cuts(graph: StaticGraph) -> list[Axes]:
    """The axes along which the nodes can be cut: all that a rule knows, or those of images where there are blocks."""
    if len(graph.nodes) > 1:
        return [axes for axes in (follow(graph, 2), follow(graph, 3)) if any(axes.nodes)]
    (node,) = graph.nodes
    found = [local(node, graph, axis) for axis in range(len(graph.tensors[node.first_output].shape))]
    return [
        Axes(each.axis, {**dict.fromkeys(node.outputs, each.axis), "x": each.windows[0].axis}, (each,))
        for each in found
        if each is not None and each.windows[0] is not None
    ]


@pytest.mark.parametrize("case", CASES)
def test_what_changes_with_a_row_is_what_reads_it(case: str) -> None:
    proto, graph = prepared(case)
    if len(graph.nodes) > 1:
        return  # within blocks of channels nothing can be seen from outside
    image = np.random.default_rng(0).standard_normal(graph.tensors["x"].shape).astype(np.float32)
    before = run(proto, {"x": image})[0]
    for axes in cuts(graph):
        (found,) = axes.nodes
        assert found is not None
        assert found.windows[0] is not None
        axis, window = found.axis, found.windows[0]
        others = tuple(k for k in range(before.ndim) if k != axis)
        for row in range(0, image.shape[window.axis], 4):
            changed = image.copy()
            changed[(slice(None),) * window.axis + (row,)] += 1
            for made in np.flatnonzero((run(proto, {"x": changed})[0] != before).any(axis=others)):
                groups = found.groups(Rows(int(made), int(made) + 1), before.shape[axis])
                read = window.over(groups)
                assert read.low <= row < read.high, (axis, row, made)


@pytest.mark.parametrize("case", CASES)
def test_parts_are_the_same_bits(case: str) -> None:
    proto, graph = prepared(case)
    image = np.random.default_rng(2).standard_normal(graph.tensors["x"].shape).astype(np.float32)
    tried = 0
    for axes in cuts(graph):
        for pieces in (2, 3, 5):
            span = Span(0, len(graph.nodes) - 1, pieces, False, axes.seed)
            members = members_of(graph, axes, span.first, span.last, sunk=False)
            region = plan(graph, axes, span, members) if members is not None and members.inside else None
            if region is None:
                continue
            tried += 1
            written = write(graph, [region])
            parts = Rewriting(parts=(), graph=written, nodes_before=1, before=0, after=0, extra_work=0.0)
            for threads in (1, 2):
                wanted, found = (run(each, {"x": image}, threads) for each in (proto, apply(proto, parts)))
                assert hashes(wanted) == hashes(found), (axes.seed, pieces, threads)
    assert tried


LEFT_ALONE = {
    "filters that are computed": model("Conv", [CONV]),
    "along channels": model("Concat", [weight(1, 16, 33, 40)], axis=2),
    "three times as large": model("Resize", [None, floats(1, 1, 3, 3)], mode="linear"),
    "to the corners": model("Resize", [None, floats(1, 1, 2, 2)], mode="linear",
                            coordinate_transformation_mode="align_corners"),
    "cubic": model("Resize", [None, floats(1, 1, 2, 2)], mode="cubic"),
    "overlapping": model("ConvTranspose", [weight(16, 4, 3, 3)], strides=[2, 2]),
    "average, hanging over": model("AveragePool", [], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
                                   shape=[1, 3, 32, 40]),
    "average by name, pads counted": model("AveragePool", [], kernel_shape=[3, 3], auto_pad="SAME_UPPER",
                                           count_include_pad=1),
    "backwards": model("Slice", [numbers(30), numbers(0), numbers(2), numbers(-1)]),
    "odd powers": model("LRN", [], [1, 3, 33, 41], size=3),
    "tails that are rounded otherwise": model("Softplus", []),
    "a mean of all": model("GlobalAveragePool", []),
    "rows mixed": model("Reshape", [numbers(1, 16, 40, 33)]),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_not_proven_is_left_alone(case: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = LEFT_ALONE[case]
    if case == "filters that are computed":
        proto = model("Conv", [], made=1)
        proto.graph.node[0].input.append("x")
    path.write_bytes(proto.SerializeToString())
    graph = static_graph(Model.open(path), {}, optimized=False)
    assert local(graph.nodes[0], graph, 2) is None


@pytest.mark.parametrize("case", ["average of plain", "largest of plain"])
def test_pools_of_plain_images_are_left_alone_along_their_rows(case: str) -> None:
    """Some columns at once, and the rest one by one, are rounded otherwise, or another zero is the largest; one row is
    computed like all of them."""
    _, graph = prepared(case)
    (node,) = (node for node in graph.nodes if node.op_type.endswith("Pool"))
    assert node.domain != BLOCKED_DOMAIN
    assert local(node, graph, 2) is not None and local(node, graph, 3) is None


@pytest.mark.parametrize(
    ("how", "size"),
    [
        ({"ceil_mode": 1, "pads": [0, 0, 0, 1]}, (8, 12)),
        ({"ceil_mode": 1, "pads": [0, 0, 0, 2]}, (8, 12)),  # and not 13
        ({"auto_pad": "SAME_UPPER", "dilations": [2, 1]}, (7, 12)),  # and not 8
    ],
)
def test_what_onnx_runtime_takes_for_larger_than_it_is_is_left_alone(
    how: dict[str, Any], size: tuple[int, int], tmp_path: Path
) -> None:
    proto = model("MaxPool", [], [1, 3, 24, 35], kernel_shape=[3, 3], strides=[3, 3], **how)
    pool = proto.graph.node.pop()
    pool.input[0] = "a"
    around = helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Exp", ["y0"], ["z"])
    proto.graph.node.extend([around[0], pool, around[1]])
    proto.graph.output[0].name = "z"
    (path := tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    graph = static_graph(Model.open(path), {}, optimized=False)
    (made,) = run(proto, {"x": np.zeros((1, 3, 24, 35), np.float32)})
    assert made.shape[2:] == graph.tensors["z"].shape[2:] == size
    along = [each is not None for each in follow(graph, 2).nodes]
    assert along == ([True] * 3 if how.get("pads") == [0, 0, 0, 1] else [True, False, False])


def test_only_types_whose_kernels_were_asked_are_computed_in_parts() -> None:
    for case, allowed in (("largest of plain", False), ("exponents", False), ("axes exchanged", True)):
        _, graph = prepared(case)
        double = {name: tensor._replace(dtype="float64") for name, tensor in graph.tensors.items()}
        (node,) = graph.nodes
        assert local(node, graph, 2) is not None
        assert (local(node, replace(graph, tensors=double), 2) is not None) == allowed


def test_a_tensor_of_unknown_size_is_not_cut() -> None:
    _, graph = prepared("one for each row")
    known = {name: tensor for name, tensor in graph.tensors.items() if name != "x"}
    assert local(graph.nodes[0], replace(graph, tensors=known), 2) is None


def test_what_is_read_whole_is_not_made_in_stripes() -> None:
    _, graph = prepared("exponents")
    again = StaticNode("Mul", "", ("x", "y0"), ("z",), origin="z")
    tensors = {**graph.tensors, "z": graph.tensors["x"]}
    graph = replace(graph, nodes=(*graph.nodes, again), tensors=tensors, outputs=("z",))
    part, whole = Local(2, (Window(2),)), Local(2, (Window(2), None))
    axes = Axes(2, {"x": 2, "y0": 2, "z": 2}, (part, whole))
    assert members_of(graph, axes, 0, 1, sunk=False) is None
    assert members_of(graph, axes, 1, 1, sunk=False) is not None


def test_every_rule_is_tried() -> None:
    tried = {(node.domain, node.op_type) for case in CASES for node in prepared(case)[1].nodes}
    elementwise = {("", name) for name in (*UNARY, *BROADCASTING)} | {("com.microsoft", n) for n in UNARY}
    # Those are in random networks.
    several = {("", "Concat"), ("", "Unsqueeze"), ("", "Flatten"), ("com.microsoft", "FusedConv")}
    assert RULES.keys() - tried - elementwise - several <= {(BLOCKED_DOMAIN, "Upsample"), ("", "Upsample")}
