"""The zoo's networks are real ones: they pass the checker, run at any size, and have the published weights."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxmem import zoo
from onnxmem.errors import UsageError
from onnxmem.zoo.wired import watts_strogatz
from tests.helpers import TINY


def parameters(model: onnx.ModelProto) -> int:
    return sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)


def run(model: onnx.ModelProto, dims: dict[str, int]) -> list[tuple[onnx.ValueInfoProto, np.ndarray[Any, Any]]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in session.get_inputs():
        shape = [dims.get(dim, dim) for dim in value.shape]
        if value.type == "tensor(int64)":
            feeds[value.name] = generator.integers(0, 2, shape)
        else:
            feeds[value.name] = generator.standard_normal(shape, dtype=np.float32)
    return list(zip(model.graph.output, session.run(None, feeds), strict=True))


def test_every_network_is_tried() -> None:
    assert list(TINY) == list(zoo.MODELS) == sorted(zoo.MODELS)


@pytest.mark.parametrize("name", TINY)
def test_a_network_is_valid_and_runs_at_any_size(name: str) -> None:
    options, bindings = TINY[name]
    model = zoo.build(name, **options)
    onnx.checker.check_model(model, full_check=True)
    assert all(tensor.HasField("raw_data") for tensor in model.graph.initializer)
    for dims in bindings:
        for declared, output in run(model, dims):
            assert np.isfinite(output).all()
            assert output.std() > 0
            for dim, size in zip(declared.type.tensor_type.shape.dim, output.shape, strict=True):
                expected = dims.get(dim.dim_param, size) if dim.dim_param else dim.dim_value
                assert size == expected


@pytest.mark.parametrize("name", TINY)
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    options, _ = TINY[name]
    first, again, other = (zoo.build(name, **options, seed=seed) for seed in (1, 1, 2))
    assert first.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert first.graph.node == other.graph.node
    assert first.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", TINY)
def test_builders_say_what_they_build_in_one_line(name: str) -> None:
    text = zoo.MODELS[name].__doc__
    assert text and "\n" not in text


# Published counts, in millions; the running mean and variance of batch normalization make ours a little larger.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("alexnet", 61.1),
        ("densenet121", 8.0),
        ("googlenet", 7.0),
        ("inception", 23.8),
        ("mobilenet", 3.5),
        ("resnet18", 11.7),
        ("resnet50", 25.6),
        ("shufflenet", 2.3),
        ("squeezenet", 1.25),
        ("transformer", 22.6),
        ("yolo", 7.2),
    ],
)
def test_full_size_networks_have_the_published_number_of_weights(name: str, millions: float) -> None:
    assert parameters(zoo.build(name)) / 1e6 == pytest.approx(millions, rel=0.012)


def test_the_matmul_chain_is_nothing_but_square_weights() -> None:
    model = zoo.build("matmul", layers=5, width=64)
    assert [node.op_type for node in model.graph.node] == ["MatMul"] * 5
    assert [list(tensor.dims) for tensor in model.graph.initializer] == [[64, 64]] * 5


def test_the_demonstration_network_keeps_its_skips() -> None:
    model = zoo.build("unet")
    assert [node.input[0] for node in model.graph.node if node.op_type == "Concat"] == [
        "down3/relu_2",
        "down2/relu_2",
        "down1/relu_2",
    ]


@pytest.mark.parametrize("name", ["randwire", "nas"])
def test_wirings_differ_by_their_own_seed(name: str) -> None:
    options, _ = TINY[name]
    one, other = (zoo.build(name, **options, wiring=wiring) for wiring in (1, 2))
    assert [list(node.input) for node in one.graph.node] != [list(node.input) for node in other.graph.node]


def test_small_world_graphs_keep_the_number_of_edges() -> None:
    for rewire in (0.0, 0.5, 1.0):
        predecessors = watts_strogatz(20, 4, rewire, random.Random(3))
        assert sum(map(len, predecessors)) == 40
        assert all(source < node for node, sources in enumerate(predecessors) for source in sources)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("lenet", {}, "there is no network 'lenet'"),
        ("unet", {"chanels": 4}, "'unet' has no option 'chanels'"),
        ("unet", {"channels": 0}, "'channels' must be more than 0"),
        ("unet", {"seed": -1}, "'seed' must be at least 0"),
        ("alexnet", {"resolution": 30}, "resolution is too small"),
        ("transformer", {"width": 10, "heads": 3}, "cannot be divided among 3 heads"),
        ("randwire", {"neighbours": 3}, "must be even"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        zoo.build(name, **options)
    if "no " in said:
        assert caught.value.hint.startswith("known: ")


def test_the_package_stays_light_without_the_zoo() -> None:
    code = "import sys, onnxmem; assert not {'onnx', 'numpy', 'onnxmem.zoo'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
