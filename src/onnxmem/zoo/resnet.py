"""ResNet: a tensor lives across each block, to be added to what the block made."""

from __future__ import annotations

import onnx

from onnxmem.zoo.net import IMAGE, Net


def resnet18(*, channels: int = 64, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """ResNet-18: blocks of two 3×3 convolutions, 11.7 M weights."""
    net = Net("resnet18", seed)
    return net.classify(_stages(net, channels, (2, 2, 2, 2), expansion=1), classes)


def resnet50(*, channels: int = 64, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """ResNet-50: bottleneck blocks (1×1, 3×3, 1×1), 25.6 M weights."""
    net = Net("resnet50", seed)
    return net.classify(_stages(net, channels, (3, 4, 6, 3), expansion=4), classes)


def _stages(net: Net, channels: int, depths: tuple[int, ...], *, expansion: int) -> str:
    x = net.conv_bn_relu(net.input("image", IMAGE), channels, 7, stride=2)
    x = net.max_pool(x, 3, 2, 1)
    for stage, depth in enumerate(depths):
        for block in range(depth):
            with net.scope(f"stage{stage + 1}/block{block + 1}"):
                stride = 2 if stage > 0 and block == 0 else 1
                x = _block(net, x, channels << stage, expansion, stride)
    return x


def _block(net: Net, x: str, channels: int, expansion: int, stride: int) -> str:
    out = channels * expansion
    if expansion == 1:
        y = net.conv_bn(net.conv_bn_relu(x, channels, stride=stride), out)
    else:
        y = net.conv_bn_relu(net.conv_bn_relu(x, channels, 1), channels, stride=stride)
        y = net.conv_bn(y, out, 1)
    if stride != 1 or net.channels[x] != out:
        x = net.conv_bn(x, out, 1, stride=stride)
    return net.relu(net.add(y, x))
