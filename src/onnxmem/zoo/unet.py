"""U-Net: the skip connections keep early, large tensors alive until the end."""

from __future__ import annotations

import onnx

from onnxmem.zoo.net import IMAGE, Net


def unet(*, levels: int = 3, channels: int = 32, classes: int = 2, seed: int = 0) -> onnx.ModelProto:
    """U-Net: height and width must be multiples of 2^`levels`."""
    net = Net("unet", seed)
    x = net.input("image", IMAGE)
    skips = []
    for level in range(levels):
        with net.scope(f"down{level + 1}"):
            x = _double(net, x, channels << level)
            skips.append(x)
            x = net.max_pool(x, 2, 2)
    with net.scope("bottom"):
        x = _double(net, x, channels << levels)
    for level in reversed(range(levels)):
        with net.scope(f"up{level + 1}"):
            x = net.concat(skips[level], net.up_conv(x, channels << level))
            x = _double(net, x, channels << level)
    net.output(net.conv(x, classes, 1), "mask", ("batch", classes, "height", "width"))
    return net.model()


def _double(net: Net, x: str, channels: int) -> str:
    return net.conv_relu(net.conv_relu(x, channels), channels)
