"""Irregular wirings, where the order of execution matters most: random graphs and searched cells."""

from __future__ import annotations

import random
from collections.abc import Callable

from onnxmem.errors import UsageError
from onnxmem.zoo.net import IMAGE, Net, network


@network
def randwire(
    net: Net,
    *,
    nodes: int = 32,
    neighbours: int = 4,
    rewire: float = 0.75,
    stages: int = 3,
    channels: int = 78,
    classes: int = 1000,
    wiring: int = 0,
) -> None:
    """RandWire: convolutions wired by random graphs, seeded by `wiring`."""
    if not 2 <= neighbours < nodes or neighbours % 2:
        raise UsageError(f"'neighbours' must be even, at least 2 and less than the {nodes} nodes; it is {neighbours}")
    drawn = random.Random(wiring)
    x = net.conv_bn_relu(net.input("image", IMAGE), max(1, channels // 2), 3, stride=2)
    with net.scope("stem"):
        x = net.conv_bn(x, channels, 3, stride=2)
    for stage in range(stages):
        with net.scope(f"stage{stage + 1}"):
            x = _random_stage(net, x, channels << stage, watts_strogatz(nodes, neighbours, rewire, drawn))
    net.classify(net.conv_bn_relu(x, 16 * channels, 1), classes)


def watts_strogatz(nodes: int, neighbours: int, rewire: float, drawn: random.Random) -> list[list[int]]:
    """The predecessors of each node: a ring lattice, some edges moved at random, all pointing to the higher number."""
    edges = set()
    for step in range(1, neighbours // 2 + 1):
        for node in range(nodes):
            edges.add(frozenset((node, (node + step) % nodes)))
    for edge in sorted(edges, key=sorted):
        keep = min(edge)
        free = [other for other in range(nodes) if other != keep and frozenset((keep, other)) not in edges]
        if free and drawn.random() < rewire:
            edges.remove(edge)
            edges.add(frozenset((keep, drawn.choice(free))))
    predecessors: list[list[int]] = [[] for _ in range(nodes)]
    for low, high in sorted(sorted(edge) for edge in edges):
        predecessors[high].append(low)
    return predecessors


def _random_stage(net: Net, x: str, channels: int, predecessors: list[list[int]]) -> str:
    made: list[str] = []
    for node, sources in enumerate(predecessors):
        with net.scope(f"node{node}"):
            inputs = [made[source] for source in sources]
            joined = inputs[0] if len(inputs) == 1 else net.add(*inputs) if inputs else x
            made.append(_separable(net, joined, channels, 3, stride=1 if inputs else 2))
    read = {source for sources in predecessors for source in sources}
    ends = [name for node, name in enumerate(made) if node not in read]
    return net.op("Mean", *ends)


@network
def nas(net: Net, *, cells: int = 8, steps: int = 4, channels: int = 16, classes: int = 10, wiring: int = 0) -> None:
    """Cells as a search finds them, at random seeded by `wiring`."""
    drawn = random.Random(wiring)
    plans = {reduction: _draw_cell(steps, drawn) for reduction in (False, True)}
    x = net.conv_bn(net.input("image", IMAGE), 3 * channels, 3)
    before, previous_reduced = x, False
    for cell in range(cells):
        # As in the search papers, the size is halved after each third of the network.
        reduction = cell in (cells // 3, 2 * cells // 3) and cell > 0
        channels *= 2 if reduction else 1
        with net.scope(f"cell{cell + 1}"):
            made = _cell(net, before, x, channels, plans[reduction], halve=reduction, align=previous_reduced)
        before, x, previous_reduced = x, made, reduction
    net.classify(x, classes)


Cell = list[tuple[tuple[str, int], tuple[str, int]]]


def _draw_cell(steps: int, drawn: random.Random) -> Cell:
    """For each step two earlier states and what is done to them."""
    plan: Cell = []
    for step in range(steps):
        first, second = drawn.sample(range(2 + step), 2)
        plan.append(((drawn.choice(sorted(_OPERATIONS)), first), (drawn.choice(sorted(_OPERATIONS)), second)))
    return plan


def _cell(net: Net, before: str, x: str, channels: int, plan: Cell, *, halve: bool, align: bool) -> str:
    # After a reduction the older of the two inputs is still twice as large.
    first = net.conv_bn(net.relu(before), channels, 1, stride=2 if align else 1)
    states = [first, net.conv_bn(net.relu(x), channels, 1)]
    for step, pair in enumerate(plan, 1):
        with net.scope(f"step{step}"):
            made = [_OPERATIONS[kind](net, states[source], 2 if halve and source < 2 else 1) for kind, source in pair]
            states.append(net.add(*made))
    return net.concat(*states[2:])


def _separable(net: Net, x: str, channels: int, kernel: int, *, stride: int, dilation: int = 1) -> str:
    """ReLU, a convolution per channel, a convolution per pixel, batch normalization."""
    depth = net.channels[x]
    y = net.conv(net.relu(x), depth, kernel, stride=stride, groups=depth, dilation=dilation, bias=False)
    return net.conv_bn(y, channels, 1)


def _skip(net: Net, x: str, stride: int) -> str:
    return x if stride == 1 else net.conv_bn(net.relu(x), net.channels[x], 1, stride=2)


_OPERATIONS: dict[str, Callable[[Net, str, int], str]] = {
    "average_pool": lambda net, x, stride: net.average_pool(x, 3, stride, 1),
    "dilated_3": lambda net, x, stride: _separable(net, x, net.channels[x], 3, stride=stride, dilation=2),
    "max_pool": lambda net, x, stride: net.max_pool(x, 3, stride, 1),
    "separable_3": lambda net, x, stride: _separable(net, x, net.channels[x], 3, stride=stride),
    "separable_5": lambda net, x, stride: _separable(net, x, net.channels[x], 5, stride=stride),
    "skip": _skip,
}
