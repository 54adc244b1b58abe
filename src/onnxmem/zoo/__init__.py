"""Classic networks with random weights, for trying things out: `zoo.build("unet")`.

Batch (and height, width or sequence length) are symbolic dimensions of the model. The weights depend only on the
seed, so that two builds are equal byte for byte.
"""

from __future__ import annotations

import inspect
from typing import Any

import onnx

from onnxmem.errors import UsageError
from onnxmem.zoo.enhancer import enhancer
from onnxmem.zoo.images import alexnet, densenet121, googlenet, inception, resnet18, resnet50, vgg16
from onnxmem.zoo.mobile import mobilenet, shufflenet, squeezenet
from onnxmem.zoo.pixels import unet, yolo
from onnxmem.zoo.sequence import lstm, matmul, transformer
from onnxmem.zoo.wired import nas, randwire

_ALL = (alexnet, densenet121, enhancer, googlenet, inception, lstm, matmul, mobilenet, nas, randwire, resnet18,
        resnet50, shufflenet, squeezenet, transformer, unet, vgg16, yolo)  # fmt: skip
MODELS = {builder.__name__: builder for builder in _ALL}


def build(name: str, **options: Any) -> onnx.ModelProto:
    """A network by its name; `options` are its builder's, such as `channels`, `scale`, `layers` or `seed`."""
    check_name(name)
    known = inspect.signature(MODELS[name]).parameters
    for option, value in options.items():
        if option not in known:
            raise UsageError(f"'{name}' has no option '{option}'", hint=f"known: {', '.join(known)}")
        free = option in ("seed", "wiring", "rewire")
        if isinstance(value, int | float) and (value < 0 if free else value <= 0):
            raise UsageError(f"'{option}' must be {'at least' if free else 'more than'} 0; it is {value}")
    return MODELS[name](**options)


def check_name(name: str) -> None:
    """Raise UsageError unless there is a network of that name."""
    if name not in MODELS:
        raise UsageError(f"there is no network '{name}' in the zoo", hint=f"known: {', '.join(MODELS)}")
