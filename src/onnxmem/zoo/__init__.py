"""Classic networks with random weights, for trying things out: `zoo.build("unet")`.

Batch (and height, width or sequence length) are symbolic dimensions of the model. The weights depend only on the
seed, so that two builds are equal byte for byte.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import onnx

from onnxmem.errors import UsageError
from onnxmem.zoo.alexnet import alexnet, vgg16
from onnxmem.zoo.densenet import densenet121
from onnxmem.zoo.inception import googlenet, inception
from onnxmem.zoo.mobile import mobilenet, shufflenet, squeezenet
from onnxmem.zoo.resnet import resnet18, resnet50
from onnxmem.zoo.sequence import lstm, matmul, transformer
from onnxmem.zoo.unet import unet
from onnxmem.zoo.wired import nas, randwire
from onnxmem.zoo.yolo import yolo

Builder = Callable[..., onnx.ModelProto]

_CHAINS: tuple[Builder, ...] = (alexnet, vgg16, matmul, lstm, transformer)
_JOINED: tuple[Builder, ...] = (densenet121, mobilenet, resnet18, resnet50, shufflenet, squeezenet, unet, yolo)
_WIRED: tuple[Builder, ...] = (googlenet, inception, nas, randwire)

MODELS = {builder.__name__: builder for builder in sorted((*_CHAINS, *_JOINED, *_WIRED), key=lambda b: b.__name__)}


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
