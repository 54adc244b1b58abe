"""Networks that answer for every part of an image: early, large tensors are kept alive for the way back up."""

from __future__ import annotations

from onnxmem.zoo.net import IMAGE, Net, network

_ANCHORS = 3


@network
def unet(net: Net, *, levels: int = 3, channels: int = 32, classes: int = 2) -> None:
    """U-Net: height and width must be multiples of 2^`levels`."""
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


def _double(net: Net, x: str, channels: int) -> str:
    return net.conv_relu(net.conv_relu(x, channels), channels)


@network
def yolo(net: Net, *, channels: int = 32, depth: int = 1, classes: int = 80) -> None:
    """Detector like YOLO v5s, for multiples of 32 pixels; 7 M weights."""
    c = channels
    with net.scope("backbone"):
        x = _conv(net, net.input("image", IMAGE), c, 6, stride=2, pad=2)
        x = _stage(net, _conv(net, x, 2 * c, 3, stride=2), 2 * c, depth)
        third = x = _stage(net, _conv(net, x, 4 * c, 3, stride=2), 4 * c, 2 * depth)
        fourth = x = _stage(net, _conv(net, x, 8 * c, 3, stride=2), 8 * c, 3 * depth)
        x = _stage(net, _conv(net, x, 16 * c, 3, stride=2), 16 * c, depth)
        x = _pyramid_pool(net, x)
    with net.scope("up"):
        fifth = _conv(net, x, 8 * c, 1)
        x = _stage(net, net.concat(net.upsample(fifth), fourth), 8 * c, depth, add=False)
        fourth = _conv(net, x, 4 * c, 1)
        fine = _stage(net, net.concat(net.upsample(fourth), third), 4 * c, depth, add=False)
    with net.scope("down"):
        x = net.concat(_conv(net, fine, 4 * c, 3, stride=2), fourth)
        middle = _stage(net, x, 8 * c, depth, add=False)
        x = net.concat(_conv(net, middle, 8 * c, 3, stride=2), fifth)
        coarse = _stage(net, x, 16 * c, depth, add=False)
    with net.scope("detect"):
        boxes = net.concat(*(_boxes(net, scale, 5 + classes) for scale in (fine, middle, coarse)))
    net.output(boxes, "boxes", ("batch", "boxes", 5 + classes))


def _conv(net: Net, x: str, channels: int, kernel: int, *, stride: int = 1, pad: int | None = None) -> str:
    return net.silu(net.conv_bn(x, channels, kernel, stride=stride, pad=pad))


def _stage(net: Net, x: str, channels: int, depth: int, *, add: bool = True) -> str:
    """Half of the channels go through `depth` small residual blocks, the other half around them."""
    y = _conv(net, x, channels // 2, 1)
    for _ in range(depth):
        z = _conv(net, _conv(net, y, channels // 2, 1), channels // 2, 3)
        y = net.add(y, z) if add else z
    return _conv(net, net.concat(y, _conv(net, x, channels // 2, 1)), channels, 1)


def _pyramid_pool(net: Net, x: str) -> str:
    channels = net.channels[x]
    pooled = [_conv(net, x, channels // 2, 1)]
    for _ in range(3):
        pooled.append(net.max_pool(pooled[-1], 5, 1, 2))
    return _conv(net, net.concat(*pooled), channels, 1)


def _boxes(net: Net, x: str, fields: int) -> str:
    x = net.reshape(net.conv(x, _ANCHORS * fields, 1), [0, _ANCHORS, fields, -1])
    return net.op("Sigmoid", net.reshape(net.transpose(x, 0, 1, 3, 2), [0, -1, fields]))
