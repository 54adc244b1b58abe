"""GoogLeNet and Inception v3: several branches read the same tensor and are concatenated."""

from __future__ import annotations

import onnx

from onnxmem.zoo.net import IMAGE, Net, Pair, scaled

# For each module: 1×1; 3×3 reduction, 3×3; 5×5 reduction, 5×5; pool projection. None stands for a pooling step.
_GOOGLENET = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def googlenet(*, scale: float = 1.0, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """GoogLeNet: nine modules of four branches, 7 M weights."""
    net = Net("googlenet", seed)
    x = net.conv_relu(net.input("image", IMAGE), scaled(64, scale), 7, stride=2)
    x = _local_norm(net, net.max_pool(x, 3, 2, ceil=True))
    x = net.conv_relu(net.conv_relu(x, scaled(64, scale), 1), scaled(192, scale))
    x = net.max_pool(_local_norm(net, x), 3, 2, ceil=True)
    for number, module in enumerate(_GOOGLENET, 1):
        if module is None:
            x = net.max_pool(x, 3, 2, ceil=True)
            continue
        one, reduce3, three, reduce5, five, pool = (scaled(channels, scale) for channels in module)
        with net.scope(f"module{number}"):
            x = net.concat(
                net.conv_relu(x, one, 1),
                net.conv_relu(net.conv_relu(x, reduce3, 1), three, 3),
                net.conv_relu(net.conv_relu(x, reduce5, 1), five, 5),
                net.conv_relu(net.max_pool(x, 3, 1, 1), pool, 1),
            )
    return net.classify(x, classes)


def inception(*, scale: float = 1.0, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """Inception v3: 24 M weights, for images of 75 × 75 pixels or more."""
    net = Net("inception", seed)
    build = _Modules(net, scale)
    x = net.input("image", IMAGE)
    with net.scope("stem"):
        x = build.chain(x, (32, 3, 2), (32, 3, 1, 0), (64, 3))
        x = build.chain(net.max_pool(x, 3, 2), (80, 1), (192, 3, 1, 0))
        x = net.max_pool(x, 3, 2)
    for number, pool in enumerate((32, 64, 64), 1):
        with net.scope(f"a{number}"):
            x = net.concat(
                build.chain(x, (64, 1)),
                build.chain(x, (48, 1), (64, 5)),
                build.chain(x, (64, 1), (96, 3), (96, 3)),
                build.chain(net.average_pool(x, 3, 1, 1), (pool, 1)),
            )
    with net.scope("b"):
        shrunk = net.max_pool(x, 3, 2)
        x = net.concat(build.chain(x, (384, 3, 2)), build.chain(x, (64, 1), (96, 3), (96, 3, 2)), shrunk)
    for number, mid in enumerate((128, 160, 160, 192), 1):
        with net.scope(f"c{number}"):
            x = net.concat(
                build.chain(x, (192, 1)),
                build.chain(x, (mid, 1), (mid, (1, 7)), (192, (7, 1))),
                build.chain(x, (mid, 1), (mid, (7, 1)), (mid, (1, 7)), (mid, (7, 1)), (192, (1, 7))),
                build.chain(net.average_pool(x, 3, 1, 1), (192, 1)),
            )
    with net.scope("d"):
        shrunk = net.max_pool(x, 3, 2)
        narrow = build.chain(x, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2))
        x = net.concat(build.chain(x, (192, 1), (320, 3, 2)), narrow, shrunk)
    for number in (1, 2):
        with net.scope(f"e{number}"):
            short, long = build.chain(x, (384, 1)), build.chain(x, (448, 1), (384, 3))
            x = net.concat(
                build.chain(x, (320, 1)),
                *(build.chain(branch, (384, kernel)) for branch in (short, long) for kernel in ((1, 3), (3, 1))),
                build.chain(net.average_pool(x, 3, 1, 1), (192, 1)),
            )
    return net.classify(x, classes)


class _Modules:
    def __init__(self, net: Net, scale: float) -> None:
        self.net, self.scale = net, scale

    def chain(self, x: str, *layers: tuple[int, Pair] | tuple[int, Pair, int] | tuple[int, Pair, int, int]) -> str:
        """Convolutions one after another: (channels, kernel[, stride[, pad]]); those with a stride are not padded."""
        for channels, kernel, *rest in layers:
            stride = rest[0] if rest else 1
            pad = rest[1] if len(rest) > 1 else (0 if stride > 1 else None)
            x = self.net.conv_bn_relu(x, scaled(channels, self.scale), kernel, stride=stride, pad=pad)
        return x


def _local_norm(net: Net, x: str) -> str:
    return net.op("LRN", x, size=5, alpha=1e-4, beta=0.75)
