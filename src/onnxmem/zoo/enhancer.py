"""A network that makes pictures clearer, with weights that were thought out instead of learned.

It is a U-Net: halved again and again on the way down, and joined with what was seen there on the way up. At every scale
a picture is its coarser half, blown up, and the detail that this lacks. Small detail is noise and is dropped, the rest
is strengthened; in the end colours are balanced, as if the world were grey on average. The first channels do all that.
The others are what a trained network has beside them: random here, and with next to no say in the answer.
"""

from __future__ import annotations

import numpy as np

from onnxmem.errors import UsageError
from onnxmem.zoo.net import IMAGE, Array, Net, network

_COLOURS = 3
# Three channels each for detail that is brighter, detail that is darker, and what the coarser scale says.
_PARTS = 3 * _COLOURS
_SAY = 0.002
# Soft: a quarter of the neighbours' light on each side, as when a picture is blown up smoothly.
_SOFT = np.outer((0.25, 0.5, 0.25), (0.25, 0.5, 0.25)).astype(np.float32)
_POINT = np.pad(np.ones((1, 1), np.float32), 1)
# By scale, the finest first: what is smaller is noise, and how much stronger the rest becomes.
_NOISE = (0.05, 0.012, 0.0)
_GAIN = (1.1, 1.6, 1.5)
_CONTRAST = 1.3


@network
def enhancer(net: Net, *, levels: int = 3, channels: int = 24) -> None:
    """Image enhancer, a U-Net; sides are multiples of 8."""
    if channels < _PARTS:
        raise UsageError(f"'channels' must be at least {_PARTS}; it is {channels}")
    image = net.input("image", IMAGE)
    x = net.relu(_kept(net, image, channels))
    seen = []
    for level in range(levels):
        with net.scope(f"down{level + 1}"):
            x = net.relu(_kept(net, x, channels << level))
            seen.append(x)
            x = net.average_pool(x, 2, 2)
    with net.scope("bottom"):
        x = net.relu(_kept(net, x, channels << levels))
    for level in reversed(range(levels)):
        with net.scope(f"up{level + 1}"):
            x = net.concat(seen[level], net.upsample(x))
            noise, gain = (each[min(level, len(each) - 1)] for each in (_NOISE, _GAIN))
            x = net.relu(_taken_apart(net, x, channels << level, noise))
            x = net.relu(_put_together(net, x, channels << level, gain))
    net.output(_balanced(net, image, _kept(net, x, _COLOURS, kernel=1)), "enhanced", IMAGE)


def _kept(net: Net, x: str, channels: int, kernel: int = 3) -> str:
    """A convolution that hands the picture on, in its first three channels."""
    weights = _random(net, x, channels, kernel)
    centre = _POINT if kernel == 3 else np.ones((1, 1), np.float32)
    for colour in range(_COLOURS):
        weights[colour, colour] += centre
    return net.conv_of(x, weights)


def _taken_apart(net: Net, x: str, channels: int, noise: float) -> str:
    """Detail brighter and darker than noise, and the coarser scale, whose channels come behind those of this one."""
    weights = _random(net, x, channels, 3, _PARTS)
    bias = np.zeros(channels, np.float32)
    bias[: 2 * _COLOURS] = -noise
    for colour in range(_COLOURS):
        for part, (here, there) in enumerate(((1, -1), (-1, 1), (0, 1))):
            weights[part * _COLOURS + colour, colour] += here * _POINT
            weights[part * _COLOURS + colour, channels + colour] += there * _SOFT
    return net.conv_of(x, weights, bias)


def _put_together(net: Net, x: str, channels: int, gain: float) -> str:
    """The coarser scale and the detail that is left, stronger."""
    weights = _random(net, x, channels, 3)
    for colour in range(_COLOURS):
        for part, share in enumerate((gain, -gain, 1.0)):
            weights[colour, part * _COLOURS + colour] += share * _POINT
    return net.conv_of(x, weights)


def _balanced(net: Net, image: str, x: str) -> str:
    """Every colour half as bright as can be on average, as far as that is plausible, and further from that average."""

    def constant(value: float) -> str:
        return net.constant(value, np.float32)

    means = net.op("Clip", net.op("GlobalAveragePool", image), constant(0.02), constant(1.0))
    gains = net.op("Clip", net.op("Div", constant(_CONTRAST / 2), means), constant(0.7), constant(4.0))
    contrasted = net.op("Add", net.op("Mul", x, gains), constant((1 - _CONTRAST) / 2))
    return net.op("Clip", contrasted, constant(0.0), constant(1.0))


def _random(net: Net, x: str, channels: int, kernel: int, first: int = _COLOURS) -> Array:
    """Weights with next to no say in the first channels of the answer."""
    depth = net.channels[x]
    weights = net.draw((channels, depth, kernel, kernel), depth * kernel * kernel)
    weights[:first] *= np.float32(_SAY)
    return weights
