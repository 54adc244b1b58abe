"""A network under construction: each call adds a node and returns the name of its output.

Tensor names read like paths (`down1/conv_2`), so that a report about a network can be followed back to its builder.
The number of channels of every tensor is remembered, which is all a layer has to know about its input; batch, height
and width stay symbolic.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from onnxmem.errors import UsageError

# Old enough for every supported ONNX Runtime, new enough for LayerNormalization.
OPSET = 17
IR_VERSION = 8

IMAGE = ("batch", 3, "height", "width")

Array = npt.NDArray[Any]
Pair = int | tuple[int, int]
Builder = Callable[..., onnx.ModelProto]


def scaled(channels: int, scale: float) -> int:
    """A published channel count times `scale`, kept a multiple of four so that groups and halves stay whole."""
    return channels if scale == 1 else max(4, 4 * round(channels * scale / 4))


class Net:
    """Collects nodes and weights; `model()` makes them an ONNX model."""

    def __init__(self, name: str, seed: int) -> None:
        self.channels: dict[str, int] = {}
        self._name = name
        # The fastest of numpy's generators: AlexNet has 61 million weights and a test wants it now.
        self._random = np.random.Generator(np.random.SFC64(seed))
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope = ""
        self._used: Counter[str] = Counter()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def model(self) -> onnx.ModelProto:
        """The network as it stands."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="onnxmem",
        )

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put `name/` before the names of everything added in the block."""
        outer = self._scope
        self._scope = f"{outer}{name}/"
        try:
            yield
        finally:
            self._scope = outer

    # Ends: inputs, weights, outputs.

    def input(self, name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        """A model input; a string in `shape` is a symbolic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        if len(shape) > 1 and isinstance(shape[1], int):
            self.channels[name] = shape[1]
        return name

    def output(self, x: str, name: str, shape: Sequence[int | str]) -> None:
        """Make a tensor a model output, under `name`."""
        # Renamed rather than passed through an Identity, which would be one more tensor to plan.
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [name if each == x else each for each in names]
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def weight(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """Random weights under a name, as `draw` makes them."""
        return self._store(name, self.draw(shape, fan_in, gain))

    def draw(self, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> Array:
        """Random weights that keep the variance of what passes through them (`gain` 2 makes up for a ReLU)."""
        # Uniform, not normal: three times faster to draw, and no reader of these models can tell.
        bound = math.sqrt(3 * gain / fan_in)
        values = self._random.random(size=tuple(shape), dtype=np.float32)
        values -= np.float32(0.5)
        values *= np.float32(2 * bound)
        return values

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        """A small constant; equal ones are stored once."""
        array = np.asarray(values, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._store(f"constant_{len(self._constants)}", array)
        return self._constants[key]

    def _store(self, name: str, array: Array) -> str:
        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        self._initializers.append(tensor)
        return name

    # Nodes.

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node with any number of outputs."""
        name = self._unused(kind.lower())
        names = [name] if outputs == 1 else [f"{name}.{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        for output in names:
            if inputs[0] in self.channels:
                self.channels[output] = self.channels[inputs[0]]
        return names

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, which has as many channels as its first input."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def _unused(self, kind: str) -> str:
        stem = self._scope + kind
        self._used[stem] += 1
        return f"{stem}_{self._used[stem]}"

    def conv(
        self,
        x: str,
        channels: int,
        kernel: Pair = 3,
        *,
        stride: int = 1,
        pad: Pair | None = None,
        groups: int = 1,
        dilation: int = 1,
        bias: bool = True,
    ) -> str:
        """A convolution; without `pad` it keeps the size (or divides it by `stride`, rounding up)."""
        height, width = _pair(kernel)
        down, right = _pair(pad) if pad is not None else (dilation * (height - 1) // 2, dilation * (width - 1) // 2)
        depth = self._channels_of(x) // groups
        attributes: dict[str, Any] = {
            "kernel_shape": [height, width],
            "strides": [stride] * 2,
            "pads": [down, right] * 2,
            "group": groups,
            "dilations": [dilation] * 2,
        }
        shape, fan_in = (channels, depth, height, width), depth * height * width
        return self._layer("Conv", x, channels, shape, fan_in, bias=bias, **attributes)

    def conv_of(self, x: str, weights: Array, bias: Array | None = None) -> str:
        """A convolution with these weights, which keeps the size."""
        name, (channels, _, height, width) = self._unused("conv"), weights.shape
        inputs = [x, self._store(f"{name}.weight", weights)]
        inputs.append(self._store(f"{name}.bias", np.zeros(channels, np.float32) if bias is None else bias))
        pads = [(height - 1) // 2, (width - 1) // 2] * 2
        self._nodes.append(helper.make_node("Conv", inputs, [name], name=name, kernel_shape=[height, width], pads=pads))
        self.channels[name] = channels
        return name

    def up_conv(self, x: str, channels: int) -> str:
        """A transposed convolution that doubles height and width."""
        depth = self._channels_of(x)
        shape = (depth, channels, 2, 2)
        return self._layer("ConvTranspose", x, channels, shape, depth, kernel_shape=[2, 2], strides=[2, 2])

    def dense(self, x: str, features: int, inputs: int | None = None) -> str:
        """A fully connected layer on a batch of vectors."""
        depth = self._channels_of(x) if inputs is None else inputs
        return self._layer("Gemm", x, features, (features, depth), depth, transB=1)

    def _layer(
        self,
        kind: str,
        x: str,
        channels: int,
        shape: Sequence[int],
        fan_in: int,
        *,
        bias: bool = True,
        **attributes: Any,
    ) -> str:
        """A node with weights, and a bias for each channel it makes."""
        name = self._unused(kind.lower())
        inputs = [x, self.weight(f"{name}.weight", shape, fan_in)]
        if bias:
            inputs.append(self.weight(f"{name}.bias", (channels,), fan_in))
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def batch_norm(self, x: str) -> str:
        """Batch normalization as trained: not folded into the convolution before it."""
        name = self._unused("batchnormalization")
        size = self._channels_of(x)
        noise = [self._random.random(size, dtype=np.float32) * np.float32(0.2) for _ in range(4)]
        starts = {"scale": 0.9, "bias": -0.1, "mean": -0.1, "variance": 0.9}
        stored = [
            self._store(f"{name}.{part}", noise[index] + np.float32(start))
            for index, (part, start) in enumerate(starts.items())
        ]
        self._nodes.append(helper.make_node("BatchNormalization", [x, *stored], [name], name=name))
        self.channels[name] = size
        return name

    def conv_bn(self, x: str, channels: int, kernel: Pair = 3, **options: Any) -> str:
        """Convolution without bias, batch normalization."""
        return self.batch_norm(self.conv(x, channels, kernel, bias=False, **options))

    def conv_bn_relu(self, x: str, channels: int, kernel: Pair = 3, **options: Any) -> str:
        """Convolution without bias, batch normalization, ReLU."""
        return self.relu(self.conv_bn(x, channels, kernel, **options))

    def conv_relu(self, x: str, channels: int, kernel: Pair = 3, **options: Any) -> str:
        """Convolution with bias, ReLU."""
        return self.relu(self.conv(x, channels, kernel, **options))

    def linear(self, x: str, features: int, width: int) -> str:
        """A fully connected layer on the last of any number of dimensions."""
        name = self._unused("linear")
        weight = self.weight(f"{name}.weight", (width, features), width, gain=1)
        bias = self.weight(f"{name}.bias", (features,), width)
        return self.op("Add", self.op("MatMul", x, weight), bias)

    def relu(self, x: str) -> str:
        return self.op("Relu", x)

    def relu6(self, x: str) -> str:
        return self.op("Clip", x, self.constant(0, np.float32), self.constant(6, np.float32))

    def silu(self, x: str) -> str:
        """x · sigmoid(x): two nodes, because the operator set has no single one for it."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def add(self, *inputs: str) -> str:
        return self.op("Add" if len(inputs) == 2 else "Sum", *inputs)

    def concat(self, *inputs: str, axis: int = 1) -> str:
        """Side by side; along channels their numbers add up."""
        output = self.op("Concat", *inputs, axis=axis)
        if axis == 1 and all(name in self.channels for name in inputs):
            self.channels[output] = sum(self.channels[name] for name in inputs)
        return output

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, *, ceil: bool = False) -> str:
        return self.op("MaxPool", x, ceil_mode=int(ceil), **_window(kernel, stride, pad))

    def average_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        return self.op("AveragePool", x, **_window(kernel, stride, pad))

    def upsample(self, x: str) -> str:
        """Twice the height and width by repeating pixels."""
        scales = self.constant([1, 1, 2, 2], np.float32)
        return self.op("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric")

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.op("Reshape", x, self.constant(shape))

    def transpose(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=perm)

    def classify(self, x: str, classes: int) -> None:
        """The usual end: average over the image, one fully connected layer."""
        pooled = self.op("Flatten", self.op("GlobalAveragePool", x))
        self.output(self.dense(pooled, classes), "logits", ("batch", classes))

    def _channels_of(self, x: str) -> int:
        if x not in self.channels:
            raise UsageError(f"the number of channels of '{x}' is not known")
        return self.channels[x]


def network(construct: Callable[..., None]) -> Builder:
    """A function that adds a network to a `Net`, as one that builds its model from its options and a seed."""
    name = construct.__name__

    @functools.wraps(construct)
    def build(*, seed: int = 0, **options: Any) -> onnx.ModelProto:
        net = Net(name, seed)
        construct(net, **options)
        return net.model()

    _, *own = inspect.signature(construct).parameters.values()
    seed = inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY, default=0, annotation="int")
    build.__signature__ = inspect.Signature([*own, seed], return_annotation="onnx.ModelProto")  # type: ignore[attr-defined]
    return build


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _window(kernel: int, stride: int, pad: int) -> dict[str, list[int]]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
