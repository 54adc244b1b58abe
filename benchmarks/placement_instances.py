"""Placement problems made by rule: known to fit, or of a known kind. The same for the same arguments, everywhere."""

from __future__ import annotations

import random

import numpy as np

from onnxmem.placement.problem import Buffer, Problem


def cut_rectangle(
    count: int, seed: int, *, steps: int = 1 << 16, capacity: int = 1024, unit: int = 1024, trim: float = 0.0
) -> Problem:
    """A rectangle of steps × capacity cut into buffers, so a plan without any waste exists.

    `trim` is the share of the buffers that are then made shorter or smaller: less is live, but it is no longer a
    puzzle whose pieces all fit exactly, which makes it harder rather than easier. The problem's capacity is the height
    of the rectangle.
    """
    chance = random.Random(f"cut {count} {seed} {trim}")
    pieces = [(0, steps, 0, capacity)]
    while len(pieces) < count:
        # The largest of three, so that neither slivers nor giants remain.
        index = max((chance.randrange(len(pieces)) for _ in range(3)), key=lambda i: _area(pieces[i]))
        left, right, bottom, top = pieces[index]
        width, height = (right - left) / steps, (top - bottom) / capacity
        if chance.random() < width / (width + height):
            if right - left > 1:
                middle = chance.randint(left + 1, right - 1)
                pieces[index : index + 1] = [(left, middle, bottom, top), (middle, right, bottom, top)]
        elif top - bottom > 1:
            middle = chance.randint(bottom + 1, top - 1)
            pieces[index : index + 1] = [(left, right, bottom, middle), (left, right, middle, top)]
    chance.shuffle(pieces)
    rows = (_trimmed(piece, chance) if chance.random() < trim else piece for piece in pieces)
    buffers = [Buffer(str(i), left, right, (top - bottom) * unit) for i, (left, right, bottom, top) in enumerate(rows)]
    return Problem.of(buffers, capacity=capacity * unit)


def _area(piece: tuple[int, int, int, int]) -> int:
    left, right, bottom, top = piece
    return (right - left) * (top - bottom)


def _trimmed(piece: tuple[int, int, int, int], chance: random.Random) -> tuple[int, int, int, int]:
    left, right, bottom, top = piece
    side = chance.randrange(5)
    if side < 2 and right - left > 3:
        left += chance.randrange((right - left) // 2)
    elif side < 4 and right - left > 3:
        right -= chance.randrange((right - left) // 2)
    elif top - bottom > 3:
        top -= chance.randrange((top - bottom) // 2)
    return left, right, bottom, top


def training_step(count: int, seed: int, *, layers: int = 48) -> Problem:
    """About `count` buffers of one step of training: activations wait for the way back, temporaries for a few steps."""
    chance = random.Random(f"training {count} {seed} {layers}")
    sizes = [chance.choice((1, 1, 2, 3, 4, 6, 8, 12, 16)) << chance.choice((10, 14, 16, 18, 19)) for _ in range(24)]
    # What every layer does on the way there: a size, whether it is kept, and for how long if it is not.
    there = [(chance.choice(sizes), chance.random() < 0.35, chance.randint(1, 12)) for _ in range(count // layers // 2)]
    back = [(chance.choice(sizes), chance.randint(1, 20)) for _ in range(count // layers - len(there))]
    buffers: list[tuple[int, int, int]] = []
    kept: list[list[tuple[int, int]]] = []
    step = 0
    for _ in range(layers):
        kept.append([])
        for size, keep, steps in there:
            if keep:
                kept[-1].append((step, size))
            else:
                buffers.append((step, step + 1 + steps, size))
            step += 1
    while kept:
        wait = kept.pop()
        for size, steps in back:
            buffers.append((step, step + 1 + steps, size))
            if wait:
                begun, waiting = wait.pop()
                buffers.append((begun, step + 1 + chance.randint(0, 3), waiting))
            step += 1
        buffers += [(begun, step, size) for begun, size in wait]
    return Problem.of(Buffer(str(i), *row) for i, row in enumerate(buffers))


def sharing_run(count: int, seed: int) -> Problem:
    """A run of `count` nodes: each takes a buffer, frees a few older ones after it, and may be written over some."""
    chance = random.Random(f"sharing {count} {seed}")
    lowers: list[int] = []
    uppers: list[int] = []
    sizes: list[int] = []
    pairs: list[tuple[int, int]] = []
    alive: list[int] = []
    step = 0
    for row in range(count):
        lowers.append(step)
        uppers.append(0)
        sizes.append(chance.choice((1, 2, 4, 4, 4, 8)) << 16)
        alive.append(row)
        step += 1
        while len(alive) > chance.randint(2, 5):
            gone = alive.pop(chance.randrange(len(alive) - 1))
            uppers[gone] = step
            step += 1
            if sizes[row] <= sizes[gone] and chance.random() < 0.7:
                pairs.append((gone, row))
    for row in alive:
        uppers[row] = step
        step += 1
    buffers = (Buffer(str(i), *row) for i, row in enumerate(zip(lowers, uppers, sizes, strict=True)))
    return Problem.of(buffers, alignment=64, shares=pairs)


def random_buffers(count: int, seed: int, *, alive: int = 1000) -> Problem:
    """Random sizes from 64 bytes to 4 MiB and random lifetimes, with about `alive` buffers alive at any step."""
    chance = np.random.default_rng(seed)
    lowers = np.sort(chance.integers(0, count, count))
    uppers = lowers + chance.integers(1, 2 * alive, count)
    sizes = np.exp2(chance.uniform(6, 22, count)).astype(np.int64)
    return Problem(tuple(map(str, range(count))), lowers, uppers, sizes)
