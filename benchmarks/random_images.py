"""Random networks on images, with all operators that can be computed in stripes and some that cannot, in branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Choose = Callable[[int], int]
"""A number from 0 up to, not including, the one that is given."""
_T = TypeVar("_T")

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Abs", "Exp", "Elu", "Softplus")
_FIRST = {"HardSwish": 14, "Resize": 13}
_CHANNELS = (1, 3, 4, 8, 12, 16, 24, 40)


class _Image(NamedTuple):
    name: str
    shape: tuple[int, ...]


class _Builder:
    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.random = np.random.default_rng(choose(2**16))
        flat = choose(8) == 0
        sides = (40 + choose(200),) if flat else (6 + choose(34), 6 + choose(60))
        self.images = [_Image("x", (1 + (choose(6) == 0), self.pick(_CHANNELS), *sides))]
        self.shape = self.images[0].shape
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def pick(self, choices: Sequence[_T]) -> _T:
        return choices[self.choose(len(choices))]

    def image(self) -> _Image:
        # Mostly what was made last; now and then something earlier, so that there are branches.
        return self.images[-1] if self.choose(4) else self.pick(self.images)

    def weight(self, *shape: int, dtype: Any = np.float32, values: Any = None) -> str:
        name = f"w{len(self.weights)}"
        if values is None:
            values = self.random.standard_normal(shape) / max(1, prod(shape[1:])) ** 0.5
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype).reshape(shape), name))
        return name

    def add(self, op_type: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        self.images.append(_Image(name, tuple(int(dim) for dim in shape)))


def _window(b: _Builder, image: _Image, *, dilated: bool) -> tuple[dict[str, Any], list[int]] | None:
    """Attributes of a window, and the sides of what it makes."""
    sides = image.shape[2:]
    kernel = [b.pick((1, 2, 3, 3, 5)) for _ in sides]
    strides = [b.pick((1, 1, 2, 3))] * len(sides)
    dilations = [b.pick((1, 1, 1, 2)) if dilated else 1 for _ in sides]
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if dilated:
        attributes["dilations"] = dilations
    named = b.choose(6) == 0 and all(d == 1 and k >= strides[0] for d, k in zip(dilations, kernel, strict=True))
    if named:
        attributes["auto_pad"] = b.pick(("SAME_UPPER", "SAME_LOWER"))
        return attributes, [-(-side // stride) for side, stride in zip(sides, strides, strict=True)]
    pads = [b.choose(k) for k in (*kernel, *kernel)]
    attributes["pads"] = pads
    made = []
    for k, side in enumerate(sides):
        room = side + pads[k] + pads[len(sides) + k] - spans[k]
        if room < 0:
            return None
        made.append(room // strides[k] + 1)
    return attributes, made


def conv(b: _Builder) -> None:
    """Grouped, depthwise, strided, dilated, padded."""
    image = b.image()
    batch, channels = image.shape[:2]
    window = _window(b, image, dilated=True)
    if window is None:
        return
    attributes, sides = window
    groups = [g for g in (1, 1, 2, channels) if channels % g == 0]
    group = b.pick(groups)
    filters = group * b.pick((1, 2, 4, 8)) if group > 1 else b.pick(_CHANNELS)
    inputs = [image.name, b.weight(filters, channels // group, *attributes["kernel_shape"])]
    if b.choose(2):
        inputs.append(b.weight(filters))
    b.add("Conv", inputs, (batch, filters, *sides), group=group, **attributes)


def pool(b: _Builder) -> None:
    """Of the largest, or of all; the last window may hang over."""
    image = b.image()
    window = _window(b, image, dilated=False)
    if window is None:
        return
    attributes, sides = window
    if "pads" in attributes and b.choose(3) == 0:
        attributes["ceil_mode"] = 1
        count = len(sides)
        for k, (size, stride) in enumerate(zip(attributes["kernel_shape"], attributes["strides"], strict=True)):
            begin, end = attributes["pads"][k], attributes["pads"][count + k]
            room = image.shape[2 + k] + begin + end - size
            sides[k] = -(-room // stride) + 1
            if (sides[k] - 1) * stride >= image.shape[2 + k] + begin:  # a window must begin inside
                sides[k] -= 1
    kind = b.pick(("MaxPool", "AveragePool"))
    if kind == "AveragePool":
        attributes["count_include_pad"] = b.choose(2)
    b.add(kind, [image.name], (*image.shape[:2], *sides), **attributes)


def activation(b: _Builder) -> None:
    """Element by element."""
    image = b.image()
    b.add(b.pick(_ACTIVATIONS), [image.name], image.shape)


def arithmetic(b: _Builder) -> None:
    """With an image of the same shape, with one number, or with one for each channel or row."""
    image, kind = b.image(), b.pick(("Add", "Mul", "Sub", "Max"))
    others = [other.name for other in b.images if other.shape == image.shape]
    shape = image.shape
    vectors = [(), (shape[1], *(1 for _ in shape[2:])), (1, *shape[1:]), (*(1 for _ in shape[1:]), shape[-1])]
    inputs = [image.name, b.pick(others) if b.choose(3) else b.weight(*b.pick(vectors))]
    b.add(kind, inputs if b.choose(2) else inputs[::-1], shape)


def concat(b: _Builder) -> None:
    """Images of the same sides."""
    image = b.image()
    others = [o for o in b.images if o.shape[0] == image.shape[0] and o.shape[2:] == image.shape[2:]]
    chosen = [image, *(b.pick(others) for _ in range(1 + b.choose(2)))]
    channels = sum(each.shape[1] for each in chosen)
    if channels <= 96:
        b.add("Concat", [c.name for c in chosen], (image.shape[0], channels, *image.shape[2:]), axis=1)


def normalization(b: _Builder) -> None:
    """BatchNormalization, which mostly becomes part of a convolution, and LRN."""
    image = b.image()
    channels = image.shape[1]
    if b.choose(2) or len(image.shape) != 4:
        spread = b.weight(channels, values=np.abs(b.random.standard_normal(channels)) + 0.5)
        inputs = [image.name, *(b.weight(channels) for _ in range(3)), spread]
        b.add("BatchNormalization", inputs, image.shape)
    else:
        b.add("LRN", [image.name], image.shape, size=3)


def resize(b: _Builder) -> None:
    """Twice as large, or three times."""
    image = b.image()
    factor = b.pick((2, 2, 2, 4, 3))
    sides = [factor * side for side in image.shape[2:]]
    if len(image.shape) != 4 or max(sides) > 128:
        return
    scales = b.weight(4, values=[1, 1, factor, factor])
    modes: tuple[dict[str, Any], ...] = (
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "round_prefer_floor"},
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    )
    if b.choose(2):
        b.add("Resize", [image.name, "", scales], (*image.shape[:2], *sides), **b.pick(modes))
    else:
        sizes = b.weight(4, dtype=np.int64, values=[*image.shape[:2], *sides])
        b.add("Resize", [image.name, "", "", sizes], (*image.shape[:2], *sides), **b.pick(modes))


def transposed_conv(b: _Builder) -> None:
    """ConvTranspose: with windows side by side, or overlapping."""
    image = b.image()
    if len(image.shape) != 4 or max(image.shape[2:]) > 40:
        return
    size, filters = b.pick((2, 2, 3)), b.pick((1, 4, 8))
    sides = [(side - 1) * 2 + size for side in image.shape[2:]]
    weights = b.weight(image.shape[1], filters, size, size)
    b.add("ConvTranspose", [image.name, weights], (image.shape[0], filters, *sides), strides=[2, 2])


def rearrangement(b: _Builder) -> None:
    """Channels last and back, channels shuffled, pixels and channels exchanged, cut, padded."""
    image = b.image()
    batch, channels, *sides = image.shape
    kind = b.choose(6)
    if len(sides) != 2:
        return
    if kind == 0:
        b.add("Transpose", [image.name], (batch, *sides, channels), perm=[0, 2, 3, 1])
        b.add("Relu", [b.images[-1].name], b.images[-1].shape)
        last = b.images.pop()
        b.images.pop()
        b.add("Transpose", [last.name], image.shape, perm=[0, 3, 1, 2])
    elif kind == 1 and channels % 2 == 0:
        half = (batch, 2, channels // 2, sides[0] * sides[1])
        b.add("Reshape", [image.name, b.weight(4, dtype=np.int64, values=half)], half)
        inner = b.images.pop()
        b.add("Transpose", [inner.name], (batch, channels // 2, 2, half[3]), perm=[0, 2, 1, 3])
        inner = b.images.pop()
        shape = b.weight(4, dtype=np.int64, values=image.shape)
        b.add("Reshape", [inner.name, shape], image.shape)
    elif kind == 2 and channels % 4 == 0:
        sides = [2 * side for side in sides]
        b.add("DepthToSpace", [image.name], (batch, channels // 4, *sides), blocksize=2, mode=b.pick(("DCR", "CRD")))
    elif kind == 3 and all(side % 2 == 0 for side in sides):
        b.add("SpaceToDepth", [image.name], (batch, 4 * channels, *(s // 2 for s in sides)), blocksize=2)
    elif kind == 4 and min(sides) > 3:
        numbers = ([b.choose(2)], [2**31 - 1], [b.pick((2, 3))], [2])
        first, axis = numbers[0][0], numbers[2][0]
        made = [*image.shape]
        made[axis] = -(-(made[axis] - first) // 2)
        inputs = [image.name, *(b.weight(1, dtype=np.int64, values=each) for each in numbers)]
        b.add("Slice", inputs, made)
    elif kind == 5:
        pads = [0, 1, 0, 0, 0, 2, 0, b.choose(2)]
        made = [dim + pads[k] + pads[4 + k] for k, dim in enumerate(image.shape)]
        b.add("Pad", [image.name, b.weight(8, dtype=np.int64, values=pads)], made)


def attention(b: _Builder) -> None:
    """Scaled by what is in the whole image: no part of it can be computed without all of it."""
    image = b.image()
    channels, ones = image.shape[1], [1 for _ in image.shape[2:]]
    b.add("GlobalAveragePool", [image.name], (*image.shape[:2], *ones))
    pooled = b.images.pop()
    b.add("Conv", [pooled.name, b.weight(channels, channels, *ones)], pooled.shape)
    b.add("Sigmoid", [b.images.pop().name], pooled.shape)
    b.add("Mul", [image.name, b.images.pop().name], image.shape)


MAKERS = (conv, conv, conv, conv, pool, activation, activation, arithmetic, arithmetic, concat, normalization, resize,
          transposed_conv, rearrangement, rearrangement, attention)  # fmt: skip


def random_network(choose: Choose, most: int = 14) -> ModelProto:
    """A network of up to so many steps; its outputs are what nobody reads, and now and then something in between."""
    b = _Builder(choose)
    for _ in range(2 + choose(most - 1)):
        if prod(b.images[-1].shape) < 200_000:
            b.pick(MAKERS)(b)
    if not b.nodes:
        activation(b)
    read = {name for node in b.nodes for name in node.input}
    made = {node.output[0] for node in b.nodes}
    outputs = [image.name for image in b.images if image.name in made and (image.name not in read or not b.choose(8))]
    # The first versions in which what was chosen can be said like this.
    first = max([11, *(_FIRST.get(node.op_type, 1) for node in b.nodes)])
    opset = b.pick([version for version in (11, 13, 17, 20) if version >= first])
    model = helper.make_model(
        helper.make_graph(
            b.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, b.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            b.weights,
        ),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    model.ir_version = 8
    return model
