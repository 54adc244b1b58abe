"""What grows with every node of a small model is not followed any further: it would take all time and memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add, mul
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxmem.errors import ModelError
from onnxmem.model.comparing import certainly_at_least, maximum
from onnxmem.model.dims import Dim, TooLarge, floor_div, is_modest, product, symbol
from onnxmem.model.model import Model
from onnxmem.model.values import propagate
from tests.helpers import model_of

N = symbol("N")
FORTY = range(40)


def _shapes(path: Path, nodes: list[NodeProto], result: str, **constants: list[int]) -> tuple[Dim, ...] | None:
    stored = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ["N"]), (result, None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    model = Model.open(path)
    return model.graph(view="raw").tensors[result].shape


@pytest.mark.parametrize("times", ["t", "c"])
def test_a_size_that_is_squared_again_and_again(tmp_path: Path, times: str) -> None:
    squares = [helper.make_node("Mul", [f"t{k}", f"t{k}"], [f"t{k + 1}"]) for k in FORTY]
    first = [helper.make_node("Shape", ["x"], ["t"]), helper.make_node("Mul", ["t", times], ["t0"])]
    nodes = [*first, *squares, helper.make_node("ConstantOfShape", ["t40"], ["y"])]
    shape = _shapes(tmp_path / "model.onnx", nodes, "y", c=[2**62 - 1])
    assert shape is not None and str(shape[0]).startswith("?")


def test_a_shape_that_is_squared_again_and_again(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["t0"])]
    for k in FORTY:
        nodes.append(helper.make_node("Unsqueeze", [f"t{k}", "one"], [f"c{k}"]))
        nodes.append(helper.make_node("Mul", [f"c{k}", f"t{k}"], [f"s{k}"]))
        nodes.append(helper.make_node("Reshape", [f"s{k}", "all"], [f"t{k + 1}"]))
    shape = _shapes(tmp_path / "model.onnx", nodes, "t40", one=[1], all=[-1])
    assert shape is not None and str(shape[0]).startswith("?")


def test_short_values_that_make_a_long_one() -> None:
    values = [np.full(shape, N, dtype=object) for shape in ((1024, 1, 1), (1, 1024, 1), (1, 1, 1024))]
    assert propagate("Where", {}, values, [], 17) is None
    assert propagate("Concat", {"axis": 0}, [np.full(4096, 1, dtype=object)] * 10**5, [], 17) is None
    assert propagate("Unsqueeze", {"axes": list(range(40))}, [np.full(4, 1, dtype=object)], [], 11) is None
    assert propagate("ConstantOfShape", {}, [np.array([2**32, 2**32], dtype=object)], [], 17) is None


def test_a_formula_that_is_a_page_long() -> None:
    sizes = [symbol(f"N{k}") + 1 for k in range(30)]
    with pytest.raises(TooLarge):
        product(sizes)
    with pytest.raises(TooLarge):
        maximum(*(symbol(f"N{k}") for k in range(100)))
    nested: Dim = N
    with pytest.raises(TooLarge):
        for _ in FORTY:
            nested = floor_div(nested + 1, 3) * floor_div(nested + 2, 5)
    assert not certainly_at_least(reduce(mul, (symbol(f"N{k}") for k in range(30))), 2)
    assert is_modest(reduce(add, sizes)) and not is_modest(product([N] * 100)) and not is_modest(N * 2**65)


def _as_long_as(length: int) -> ModelProto:
    """A shape that is that long."""
    given = helper.make_tensor_value_info("s", TensorProto.INT64, [length])
    return model_of([helper.make_node("ConstantOfShape", ["s"], ["y"])], {"s": given}, ["y"])


def _longer_and_longer() -> ModelProto:
    nodes = [helper.make_node("Concat", [f"s{k}"] * 100, [f"s{k + 1}"], axis=0) for k in range(5)]
    nodes = [helper.make_node("Shape", ["x"], ["s0"]), *nodes, helper.make_node("Expand", ["x", "s5"], ["y"])]
    return model_of(nodes, {"x": ["n"]}, ["y"])


def _of_dimensions(count: int) -> ModelProto:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1] * count, float_data=[1])
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], [weight])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: _as_long_as(2 * 10**9), "ConstantOfShape makes a tensor of 2000000000 dimensions, and at most 32"),
        (_longer_and_longer, "Expand makes a tensor of 10000000000 dimensions, and at most 32 are followed"),
        (lambda: _of_dimensions(33), "tensor 'w' has 33 dimensions, and at most 32 are followed"),
        (lambda: model_of([helper.make_node("Sin", ["x"], ["y"])], {"x": [1] * 33}, ["y"]), "input 'x' has 33 dim"),
    ],
    ids=["a shape that is given", "a shape that grows", "a weight", "an input"],
)
def test_dimensions_without_end_are_refused(make: Callable[[], ModelProto], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Model.of(make()).graph()


def test_as_many_dimensions_as_numpy_has_are_followed() -> None:
    shape = Model.of(_as_long_as(32)).graph().tensors["y"].shape
    assert shape is not None and len(shape) == 32
    assert Model.of(_of_dimensions(32)).graph().tensors["y"].shape == (*[1] * 31, 4)
