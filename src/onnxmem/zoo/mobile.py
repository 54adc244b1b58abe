"""Networks made small: SqueezeNet, ShuffleNet v2, MobileNet v2."""

from __future__ import annotations

from onnxmem.zoo.net import IMAGE, Net, network, scaled


@network
def squeezenet(net: Net, *, scale: float = 1.0, classes: int = 1000) -> None:
    """SqueezeNet 1.0: fire modules, squeeze then expand; 1.2 M weights."""
    x = net.conv_relu(net.input("image", IMAGE), scaled(96, scale), 7, stride=2, pad=0)
    x = net.max_pool(x, 3, 2, ceil=True)
    for number, squeeze in enumerate((16, 16, 32, 32, 48, 48, 64, 64), 2):
        with net.scope(f"fire{number}"):
            narrow = net.conv_relu(x, scaled(squeeze, scale), 1)
            expand = 4 * scaled(squeeze, scale)
            x = net.concat(net.conv_relu(narrow, expand, 1), net.conv_relu(narrow, expand, 3))
        if number in (4, 8):
            x = net.max_pool(x, 3, 2, ceil=True)
    x = net.op("GlobalAveragePool", net.conv_relu(x, classes, 1))
    net.output(net.op("Flatten", x), "logits", ("batch", classes))


@network
def shufflenet(net: Net, *, scale: float = 1.0, classes: int = 1000) -> None:
    """ShuffleNet v2: half the channels pass by each unit, 2.3 M weights."""
    x = net.conv_bn_relu(net.input("image", IMAGE), scaled(24, scale), 3, stride=2)
    x = net.max_pool(x, 3, 2, 1)
    for stage, (channels, depth) in enumerate([(116, 4), (232, 8), (464, 4)], 2):
        for unit in range(1, depth + 1):
            with net.scope(f"stage{stage}/unit{unit}"):
                x = _shuffle_unit(net, x, scaled(channels, scale), halve=unit == 1)
    net.classify(net.conv_bn_relu(x, scaled(1024, scale), 1), classes)


def _shuffle_unit(net: Net, x: str, channels: int, *, halve: bool) -> str:
    half = channels // 2
    if halve:
        stay = net.conv_bn(x, net.channels[x], 3, stride=2, groups=net.channels[x])
        stay, move = net.conv_bn_relu(stay, half, 1), x
    else:
        stay, move = net.ops("Split", x, net.constant([half, half]), outputs=2, axis=1)
        net.channels[stay] = net.channels[move] = half
    move = net.conv_bn_relu(move, half, 1)
    move = net.conv_bn(move, half, 3, stride=2 if halve else 1, groups=half)
    joined = net.concat(stay, net.conv_bn_relu(move, half, 1))
    # The image's size is not known here, so the way back goes through Shape, as in exported models.
    mixed = net.transpose(net.reshape(joined, [0, 2, half, -1]), 0, 2, 1, 3)
    shuffled = net.op("Reshape", mixed, net.op("Shape", joined))
    net.channels[shuffled] = channels
    return shuffled


@network
def mobilenet(net: Net, *, scale: float = 1.0, classes: int = 1000) -> None:
    """MobileNet v2: wide tensors inside its blocks, 3.5 M weights."""
    x = net.relu6(net.conv_bn(net.input("image", IMAGE), scaled(32, scale), 3, stride=2))
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for stage, (expansion, channels, depth, stride) in enumerate(table, 1):
        for block in range(depth):
            with net.scope(f"stage{stage}/block{block + 1}"):
                x = _inverted_residual(net, x, expansion, scaled(channels, scale), stride if block == 0 else 1)
    net.classify(net.relu6(net.conv_bn(x, scaled(1280, scale), 1)), classes)


def _inverted_residual(net: Net, x: str, expansion: int, channels: int, stride: int) -> str:
    wide = net.channels[x] * expansion
    y = x if expansion == 1 else net.relu6(net.conv_bn(x, wide, 1))
    y = net.relu6(net.conv_bn(y, wide, 3, stride=stride, groups=wide))
    y = net.conv_bn(y, channels, 1)
    return net.add(x, y) if stride == 1 and net.channels[x] == channels else y
