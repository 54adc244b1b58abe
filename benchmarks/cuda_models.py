"""The models of `benchmarks.cuda`, built or fetched; and what they are run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import real_models
from onnxmem import zoo

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A model, and the shapes it is run on in turn: one, or a new one for each run."""

    name: str
    make: Callable[[], bytes]
    shapes: Sequence[dict[str, Shape]]
    table: bool = True
    """Whether it is one of the eight of the first table."""


def _zoo(name: str, **options: Any) -> Callable[[], bytes]:
    return lambda: zoo.build(name, **options).SerializeToString()


def _real(key: str) -> Callable[[], bytes]:
    return lambda: real_models.fetch(key).read_bytes()


def _half(name: str) -> bytes:
    """A network of the zoo in float16, inputs and outputs included."""
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    half: bytes = convert_float_to_float16(onnx.shape_inference.infer_shapes(zoo.build(name))).SerializeToString()
    return half


def _loop() -> bytes:
    """A network in a loop: two convolutions, as often as the input `turns` says, and a decision in each turn."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((64, 64, 3, 3)).astype("f4") / 30 for _ in range(2)]
    there = ["batch", 64, "height", "width"]

    def value(name: str, kind: int = TensorProto.FLOAT, shape: Any = there) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    branches = [
        helper.make_graph([helper.make_node(op, ["b"], [f"{op}_out"])], op, [], [value(f"{op}_out")])
        for op in ("Relu", "Sigmoid")
    ]
    body = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["r"]),
            helper.make_node("Conv", ["r", "w1"], ["b"], pads=[1, 1, 1, 1]),
            helper.make_node("Mod", ["turn", "two"], ["odd"]),
            helper.make_node("Cast", ["odd"], ["is_odd"], to=TensorProto.BOOL),
            helper.make_node("If", ["is_odd"], ["c"], then_branch=branches[0], else_branch=branches[1]),
            helper.make_node("Add", ["x", "c"], ["next"]),
            helper.make_node("Identity", ["go_on"], ["still"]),
        ],
        "body",
        [value("turn", TensorProto.INT64, []), value("go_on", TensorProto.BOOL, []), value("x")],
        [value("still", TensorProto.BOOL, []), value("next")],
        [numpy_helper.from_array(array, f"w{k}") for k, array in enumerate(weights)]
        + [numpy_helper.from_array(np.array(2, "i8"), "two")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "true", "image"], ["out"], body=body)],
        "loop",
        [value("image"), value("turns", TensorProto.INT64, [])],
        [value("out")],
        [numpy_helper.from_array(np.array(True), "true")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def _image(batch: int, size: int) -> list[dict[str, Shape]]:
    return [{"image": (batch, 3, size, size)}]


def _tokens(batch: int, length: int) -> list[dict[str, Shape]]:
    return [{"tokens": (batch, length), "mask": (batch, length)}]


_SIZES = [(1 + k % 4, 32 * (8 + 5 * k % 11), 32 * (8 + 7 * k % 12)) for k in range(132)]

CASES = (
    Case("U-Net 8×512²", _zoo("unet"), _image(8, 512)),
    Case("MobileNet 32×224²", _zoo("mobilenet"), _image(32, 224)),
    Case("YOLO 8×640²", _zoo("yolo"), _image(8, 640)),
    Case("PP-OCRv6 det 4×640²", _real("det"), [{"x": (4, 3, 640, 640)}]),
    Case("DenseNet-121 16×224²", _zoo("densenet121"), _image(16, 224)),
    Case("transformer 8×512", _zoo("transformer"), _tokens(8, 512)),
    Case("ResNet-50 16×224²", _zoo("resnet50"), _image(16, 224)),
    Case("VGG-16 8×224²", _zoo("vgg16"), _image(8, 224)),
    Case("U-Net fp16 8×512²", lambda: _half("unet"), _image(8, 512), table=False),
    Case("loop of convolutions 8×256²", _loop, [{"image": (8, 64, 256, 256), "turns": ()}], table=False),
    Case("YOLO, new shapes", _zoo("yolo"), [{"image": (b, 3, h, w)} for b, h, w in _SIZES], table=False),
    Case("GoogLeNet 32×224²", _zoo("googlenet"), _image(32, 224), table=False),
    Case("PP-OCRv6 rec 16×48×320", _real("rec"), [{"x": (16, 3, 48, 320)}], table=False),
)


def find(name: str) -> Case:
    """The case of that name."""
    return next(case for case in CASES if case.name == name)


def feeds(session: Any, case: Case) -> Iterator[dict[str, Any]]:
    """What each run gets, again and again from the beginning; the same in every process."""
    kinds = {each.name: each.type for each in session.get_inputs()}
    made: dict[int, dict[str, Any]] = {}
    while True:
        for number, shapes in enumerate(case.shapes):
            if number not in made:
                rng = np.random.default_rng(number)
                made[number] = {name: _values(rng, kinds[name], shape) for name, shape in shapes.items()}
            yield made[number]


def _values(rng: np.random.Generator, kind: str, shape: Shape) -> Any:
    if kind == "tensor(int64)":
        return rng.integers(0, 2, shape).astype("i8") if shape else np.array(4, "i8")
    return rng.standard_normal(shape).astype("f2" if "16" in kind else "f4")


def locate(case: Case, folder: Path) -> Path:
    """The model's file, made when it is asked for first."""
    path = folder / f"{CASES.index(case)}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(case.make())
    return path
