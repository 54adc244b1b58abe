"""Networks that classify images: chains, residuals, dense blocks and parallel branches."""

from __future__ import annotations

from onnxmem.errors import UsageError
from onnxmem.zoo.net import IMAGE, Net, Pair, network, scaled

# AlexNet and VGG: a chain of convolutions, and nearly all weights in three fully connected layers.


@network
def alexnet(net: Net, *, scale: float = 1.0, resolution: int = 224, classes: int = 1000) -> None:
    """AlexNet: 5 convolutions, 3 fully connected layers, 61 M weights."""
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
    _fully_connected(net, x, size, scaled(4096, scale), classes)


@network
def vgg16(net: Net, *, scale: float = 1.0, resolution: int = 224, classes: int = 1000) -> None:
    """VGG-16: 13 equal convolutions, 138 M weights, large tensors first."""
    x = net.input("image", ("batch", 3, resolution, resolution))
    for stage, (channels, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        with net.scope(f"stage{stage}"):
            for _ in range(depth):
                x = net.conv_relu(x, scaled(channels, scale))
            x = net.max_pool(x, 2, 2)
    _fully_connected(net, x, resolution // 32, scaled(4096, scale), classes)


def _fully_connected(net: Net, x: str, size: int, width: int, classes: int) -> None:
    if size < 1:
        raise UsageError("the resolution is too small: nothing is left of the image after the last pooling")
    pixels = net.channels[x] * size * size
    x = net.relu(net.dense(net.op("Flatten", x), width, pixels))
    x = net.relu(net.dense(x, width))
    net.output(net.dense(x, classes), "logits", ("batch", classes))


# ResNet: a tensor lives across each block, to be added to what the block made.


@network
def resnet18(net: Net, *, channels: int = 64, classes: int = 1000) -> None:
    """ResNet-18: blocks of two 3×3 convolutions, 11.7 M weights."""
    net.classify(_stages(net, channels, (2, 2, 2, 2), expansion=1), classes)


@network
def resnet50(net: Net, *, channels: int = 64, classes: int = 1000) -> None:
    """ResNet-50: bottleneck blocks (1×1, 3×3, 1×1), 25.6 M weights."""
    net.classify(_stages(net, channels, (3, 4, 6, 3), expansion=4), classes)


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


# DenseNet: every layer reads all the layers before it in its block.


@network
def densenet121(net: Net, *, growth: int = 32, depths: tuple[int, ...] = (6, 12, 24, 16), classes: int = 1000) -> None:
    """DenseNet-121: growing concatenations, 8 M weights."""
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
    net.classify(net.relu(net.batch_norm(x)), classes)


# GoogLeNet and Inception v3: several branches read the same tensor and are concatenated.

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


@network
def googlenet(net: Net, *, scale: float = 1.0, classes: int = 1000) -> None:
    """GoogLeNet: nine modules of four branches, 7 M weights."""
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
    net.classify(x, classes)


@network
def inception(net: Net, *, scale: float = 1.0, classes: int = 1000) -> None:
    """Inception v3: 24 M weights, for images of 75 × 75 pixels or more."""
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
    net.classify(x, classes)


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
