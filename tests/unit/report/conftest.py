"""Plans to draw: a U-Net, a DenseNet, and random ones of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.placement.strategies import solve

HOSTILE = "</script><img src=x onerror=alert(1)>\x00\n\u202e\ud800"


def _planned(
    *buffers: tuple[str, int, int, int],
    strategy: str = "best",
    capacity: int | None = None,
    shares: Sequence[tuple[int, int]] = (),
) -> Plan:
    return solve(Problem.of((Buffer(*b) for b in buffers), capacity=capacity, shares=shares), strategy)


def _scattered(count: int, steps: int, *, strategy: str = "greedy_by_size", seed: int = 0) -> Plan:
    random = np.random.default_rng(seed)
    lowers = random.integers(0, steps, count)
    uppers = lowers + random.geometric(0.05, count)
    sizes = random.lognormal(12, 1.5, count).astype(np.int64) + 1
    return solve(Problem(tuple(f"t{k}" for k in range(count)), lowers, uppers, sizes), strategy)


@pytest.fixture
def planned() -> Callable[..., Plan]:
    """The plan of (name, lower, upper, size) tuples."""
    return _planned


@pytest.fixture
def scattered() -> Callable[..., Plan]:
    """The plan of `count` random buffers over `steps` steps."""
    return _scattered


@pytest.fixture
def unet() -> Plan:
    """Encoder outputs that wait for their decoder: long lifetimes over short ones."""
    levels, steps = 5, 20
    skips = [(f"/enc{k}/Conv_1/output_0", 2 * k, steps - 2 * k, 4 << 20 >> k) for k in range(levels)]
    inner = [(f"/step{t}/Conv/output_0", t, t + 2, 1 << 20) for t in range(steps)]
    return _planned(*skips, *inner)


@pytest.fixture
def densenet() -> Plan:
    """Every layer reads all before it: five brief tensors per layer and one that stays, 600 in all."""
    buffers = []
    for layer in range(100):
        at, brief = 6 * layer, 256 * (64 + 32 * (layer % 25))
        buffers += [(f"/block/layer{layer}/Op_{k}_output_0", at + k, at + k + 2, brief) for k in range(5)]
        buffers.append((f"/block/layer{layer}/Conv_output_0", at + 5, 150 * (layer // 25 + 1) + 1, 8192))
    return _planned(*buffers)


@pytest.fixture
def hostile() -> Plan:
    """Tensors whose names try to be markup."""
    return _planned((HOSTILE, 0, 9, 5 << 20), ('"><b>&amp;', 0, 5, 3 << 20))
