"""AlexNet and VGG: a chain of convolutions, and nearly all weights in three fully connected layers."""

from __future__ import annotations

import onnx

from onnxmem.errors import UsageError
from onnxmem.zoo.net import Net, scaled


def alexnet(*, scale: float = 1.0, resolution: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """AlexNet: 5 convolutions, 3 fully connected layers, 61 M weights."""
    net = Net("alexnet", seed)
    # The first fully connected layer has a weight per pixel, so height and width are fixed when the model is built.
    x = net.input("image", ("batch", 3, resolution, resolution))
    size = (resolution + 4 - 11) // 4 + 1
    x = net.conv_relu(x, scaled(64, scale), 11, stride=4, pad=2)
    x, size = net.max_pool(x, 3, 2), (size - 3) // 2 + 1
    x = net.conv_relu(x, scaled(192, scale), 5)
    x, size = net.max_pool(x, 3, 2), (size - 3) // 2 + 1
    for channels in (384, 256, 256):
        x = net.conv_relu(x, scaled(channels, scale))
    x, size = net.max_pool(x, 3, 2), (size - 3) // 2 + 1
    return _fully_connected(net, x, size, scaled(4096, scale), classes)


def vgg16(*, scale: float = 1.0, resolution: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """VGG-16: 13 equal convolutions, 138 M weights, large tensors first."""
    net = Net("vgg16", seed)
    x = net.input("image", ("batch", 3, resolution, resolution))
    for stage, (channels, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        with net.scope(f"stage{stage}"):
            for _ in range(depth):
                x = net.conv_relu(x, scaled(channels, scale))
            x = net.max_pool(x, 2, 2)
    return _fully_connected(net, x, resolution // 32, scaled(4096, scale), classes)


def _fully_connected(net: Net, x: str, size: int, width: int, classes: int) -> onnx.ModelProto:
    if size < 1:
        raise UsageError("the resolution is too small: nothing is left of the image after the last pooling")
    pixels = net.channels[x] * size * size
    x = net.relu(net.dense(net.op("Flatten", x), width, pixels))
    x = net.relu(net.dense(x, width))
    net.output(net.dense(x, classes), "logits", ("batch", classes))
    return net.model()
