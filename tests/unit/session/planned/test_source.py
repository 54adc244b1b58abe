"""What a model's file says about its operators, read by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxmem.session.planned.source import Source, look_at
from tests import small_models


def model(nodes: list[Any], domains: tuple[str, ...] = ("",), functions: tuple[Any, ...] = ()) -> Any:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.zeros(50_000, np.float32), "weight")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    opsets = [helper.make_opsetid(domain, 20) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def silu(before: str, **attributes: Any) -> Any:
    return model([
        helper.make_node(before, ["x", "x"] if before in ("Add", "Mul") else ["x"], ["a"], **attributes),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ])  # fmt: skip


ADD = [helper.make_node("Add", ["x", "x"], ["y"])]


def test_known_operators(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(ADD, ("", "com.microsoft")).SerializeToString())
    assert look_at(path) == look_at(str(path)) == look_at(path.read_bytes()) == Source(True, True, True, 1)


def test_operators_of_others_unless_the_model_defines_them() -> None:
    assert not look_at(model(ADD, ("", "my.own")).SerializeToString()).own_operators
    function = helper.make_function("my.own", "F", ["p"], ["q"], [helper.make_node("Abs", ["p"], ["q"])],
                                    [helper.make_opsetid("", 20)])  # fmt: skip
    assert look_at(model(ADD, ("", "my.own"), (function,)).SerializeToString()).own_operators


@pytest.mark.parametrize(
    ("before", "plain"), [("Add", True), ("Relu", True), ("Mul", False), ("Identity", False), ("Cast", False)]
)
def test_a_factor_before_a_sigmoid(before: str, plain: bool) -> None:
    attributes = {"to": TensorProto.FLOAT} if before == "Cast" else {}
    assert look_at(silu(before, **attributes).SerializeToString())[:2] == (True, plain)


@pytest.mark.parametrize(("factor", "plain"), [(1.0, True), (1.702, False), (None, False)])
def test_the_factor_of_a_quick_gelu(factor: float | None, plain: bool) -> None:
    attributes: dict[str, Any] = {} if factor is None else {"alpha": factor}
    node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", **attributes)
    assert look_at(model([node], ("", "com.microsoft")).SerializeToString())[:2] == (True, plain)


def test_sigmoids_in_branches_and_functions() -> None:
    inner = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["z"])], "b", [], [helper.make_empty_tensor_value_info("z")]
    )
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    assert not look_at(model([branch]).SerializeToString()).plain_silu
    function = helper.make_function("my.own", "F", ["p"], ["q"], [helper.make_node("Sigmoid", ["p"], ["q"])],
                                    [helper.make_opsetid("", 20)])  # fmt: skip
    assert not look_at(model(ADD, ("", "my.own"), (function,)).SerializeToString()).plain_silu


def test_a_gelu_that_is_approximated_is_found_wherever_it_is() -> None:
    def gelu(**attributes: Any) -> Any:
        return helper.make_node("Gelu", ["x"], ["y"], name="tanh", **attributes)

    assert look_at(model([gelu()]).SerializeToString()).plain_gelu
    assert look_at(model([gelu(approximate="none")]).SerializeToString()).plain_gelu
    assert not look_at(model([gelu(approximate="tanh")]).SerializeToString()).plain_gelu
    value = [helper.make_empty_tensor_value_info("y")]
    inner = helper.make_graph([gelu(approximate="tanh")], "b", [], value)
    assert not look_at(
        model([helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)]).SerializeToString()
    ).plain_gelu
    # A large constant hides nothing; of a large branch that is not certain.
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(50_000, np.float32)))
    assert look_at(model([constant, gelu()]).SerializeToString()).plain_gelu
    inner = helper.make_graph([constant, gelu()], "b", [], value)
    assert not look_at(
        model([helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)]).SerializeToString()
    ).plain_gelu
    function = helper.make_function("my.own", "F", ["p"], ["q"], [gelu(approximate="tanh")],
                                    [helper.make_opsetid("", 20)])  # fmt: skip
    assert not look_at(model(ADD, ("", "my.own"), (function,)).SerializeToString()).plain_gelu


def test_nothing_is_certain_of_what_cannot_be_read(tmp_path: Path) -> None:
    whole = model(ADD).SerializeToString()
    assert look_at(tmp_path / "missing.onnx") == Source()
    assert look_at(b"") == look_at(b"\xff" * 40) == Source()
    assert look_at(whole[:-3]) == Source()
    (tmp_path / "model.ort").write_bytes(whole)
    assert look_at(tmp_path / "model.ort") == Source()


def test_what_a_run_may_take_decides_about_the_profile() -> None:
    small = model(ADD)
    weights = np.zeros((768, 30), np.float32), np.zeros((600, 700), np.float32), np.zeros((9, 9, 3, 3), np.float32)
    small.graph.initializer.extend(numpy_helper.from_array(each, f"w{k}") for k, each in enumerate(weights))
    found = look_at(small.SerializeToString())
    assert (found.nodes, found.width) == (1, 600)
    assert not found.worth_a_profile([(1, 3)]) and not found.worth_a_profile([(1, 3, 2, 2)])
    assert found.worth_a_profile([(1, 3, 224, 224)]) and found.worth_a_profile([(4, 256)])
    assert not found._replace(nodes=3000).worth_a_profile([(4, 4)])
    assert not found.worth_a_profile([])
    assert not found._replace(loops=True).worth_a_profile([(1, 3, 224, 224)])


def test_loops_are_found_wherever_they_are() -> None:
    assert look_at(small_models.looping()).loops and not look_at(small_models.branching()).loops
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("p", "q")]
    body = helper.make_graph([helper.make_node("Neg", ["p"], ["q"])], "Loop", values[:1], values[1:])
    scan = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)
    then = helper.make_graph([scan], "then", [], values[1:])
    assert look_at(
        model([helper.make_node("If", ["x"], ["y"], name="Scan", then_branch=then)]).SerializeToString()
    ).loops
    assert not look_at(model([helper.make_node("Neg", ["x"], ["y"], name="Loop")]).SerializeToString()).loops
    function = helper.make_function("", "F", ["x"], ["y"], [scan], [helper.make_opsetid("", 20)])
    assert look_at(model(ADD, functions=(function,)).SerializeToString()).loops
