"""DenseNet: every layer reads all the layers before it in its block."""

from __future__ import annotations

import onnx

from onnxmem.zoo.net import IMAGE, Net


def densenet121(
    *, growth: int = 32, depths: tuple[int, ...] = (6, 12, 24, 16), classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """DenseNet-121: growing concatenations, 8 M weights."""
    net = Net("densenet121", seed)
    x = net.conv_bn_relu(net.input("image", IMAGE), 2 * growth, 7, stride=2)
    x = net.max_pool(x, 3, 2, 1)
    for block, depth in enumerate(depths, 1):
        with net.scope(f"block{block}"):
            for layer in range(1, depth + 1):
                with net.scope(f"layer{layer}"):
                    y = net.conv_bn_relu(net.relu(net.batch_norm(x)), 4 * growth, 1)
                    x = net.concat(x, net.conv(y, growth, bias=False))
        if block < len(depths):
            with net.scope(f"transition{block}"):
                x = net.conv(net.relu(net.batch_norm(x)), net.channels[x] // 2, 1, bias=False)
                x = net.average_pool(x, 2, 2)
    return net.classify(net.relu(net.batch_norm(x)), classes)
