"""Attention in its four forms: heads side by side, and the probabilities of all positions or of a block of them."""

from __future__ import annotations

import os

from onnxmem.scratch.kernel import Kernel, Scratch, ShapeUnknown, elements, taking

_PER_PRODUCT = 64
"""Bytes that describe one product of a batch of them, in multiplying probabilities by values."""
_SECOND_LEVEL = 191
"""sysconf's number for the size of the second cache, which Python has no name for everywhere."""


def attention(kernel: Kernel) -> Scratch:
    """Attention of ONNX, or the older operator of the same name that multiplies by its weights first."""
    return _standard(kernel) if kernel.node.domain in ("", "ai.onnx") else _packed(kernel, mask=3, past=4)


def quantized_attention(kernel: Kernel) -> Scratch:
    """QAttention."""
    return _packed(kernel, mask=5, past=8)


def multi_head(kernel: Kernel) -> Scratch:
    """MultiHeadAttention."""
    query, key = kernel.input(0), kernel.input(1)
    heads = kernel.attribute("num_heads", 1)
    batch, steps, hidden = query
    value_hidden = kernel.output()[2]
    bias = kernel.has_input(3)
    taken = _by_heads([], elements(query), hidden, single=steps == 1, bias=bias)
    apart = len(key) == 4
    """Keys and values already by heads, as in attention to another sequence."""
    seen = key[2] if apart else key[1]
    if not apart:
        taken = _by_heads(taken, elements(key), hidden, single=seen == 1, bias=bias)
        taken = _by_heads(taken, batch * seen * value_hidden, value_hidden, single=seen == 1, bias=bias)
    masked = _mask_rows(kernel, 4, steps)
    carried = kernel.has_input(6) or kernel.has_output(1)
    cache = second_level_cache()
    if not (apart or masked or carried or kernel.has_input(5)) and cache > 0:
        each = (hidden // heads, value_hidden // heads)
        return Scratch((*taken, kernel.threads * _block(steps, seen, *each, cache)))
    total = seen + (kernel.input(6)[2] if kernel.has_input(6) else 0)
    if masked:
        rows = (
            1
            if kernel.has_input(4) and len(kernel.input(4)) < 3 and not kernel.attribute("unidirectional", 0)
            else steps
        )
        taken.append(4 * batch * rows * total)
    return Scratch((*taken, *_applied(batch, heads, steps, total, value_hidden)))


def grouped_query(kernel: Kernel) -> Scratch:
    """GroupQueryAttention."""
    query = kernel.input(0)
    heads, shared = kernel.attribute("num_heads", 1), kernel.attribute("kv_num_heads", 1)
    batch, steps = query[:2]
    total = kernel.output(1)[2]
    packed = not kernel.has_input(1)
    size = query[2] // (heads + 2 * shared if packed else heads)
    width = kernel.width(0)
    row = width * batch * steps * size
    taken = [row * (heads + 2 * shared)] if packed else [row * heads, row * shared, row * shared]
    if kernel.attribute("do_rotary", 0):
        taken += taken[:2]
    limited = kernel.attribute("softcap", 0.0) or kernel.attribute("smooth_softmax", 0) or kernel.has_input(11)
    cache = second_level_cache()
    if width == 4 and not limited and cache > 0:
        block = 4 * (total + size) if steps == 1 else _block(steps, total, size, size, cache)
        return taking([*taken, kernel.threads * block])
    taken.append(4 * batch * heads * steps * total)
    if width == 4:
        return taking(taken)
    # Half floats are widened head by head: queries and keys, then all sums and the values.
    first = len(taken) + 1
    return Scratch((*taken, 4 * size * (steps + total), -first, 4 * batch * heads * steps * size, 4 * size * total))


def second_level_cache() -> int:
    """Bytes of the cache that blocks of attention are made to fit; 0 where the system does not say."""
    try:
        return max(0, os.sysconf(os.sysconf_names.get("SC_LEVEL2_CACHE_SIZE", _SECOND_LEVEL)))
    except (AttributeError, OSError, ValueError):
        return 0


def _standard(kernel: Kernel) -> Scratch:
    query, key = kernel.input(0), kernel.input(1)
    if len(query) == 4:
        batch, heads, steps = query[:3]
        total = key[2]
    else:
        batch, steps = query[:2]
        heads = kernel.attribute("q_num_heads", 1)
        total = key[1]
    if kernel.has_input(4):
        total += kernel.input(4)[2]
    taken = [kernel.width(0) * batch * heads * steps * total]
    causal = bool(kernel.attribute("is_causal", 0))
    if kernel.has_input(3) and (causal or kernel.dtype(3) == "bool"):
        taken.append(kernel.width(0) * elements(kernel.input(3)))
    elif causal:
        taken.append(kernel.width(0) * steps * total)
    # Half floats are widened head by head.
    return taking([*taken, 4 * steps * total] if kernel.width(0) < 4 else taken)


def _packed(kernel: Kernel, mask: int, past: int) -> Scratch:
    """Queries, keys and values from one product."""
    batch, steps = kernel.input(0)[:2]
    heads = kernel.attribute("num_heads", 1)
    hidden = kernel.input(1)[1]
    value_hidden = kernel.output()[2]
    total = steps
    if kernel.has_input(past):
        shape = kernel.input(past)
        if len(shape) != 5:
            raise ShapeUnknown("the past of an attention has a shape that is not known")
        total += shape[3]
    taken = [4 * batch * steps * hidden]
    if rows := _mask_rows(kernel, mask, steps):
        taken.append(4 * batch * rows * total)
    return taking([*taken, *_applied(batch, heads, steps, total, value_hidden)])


def _mask_rows(kernel: Kernel, place: int, steps: int) -> int:
    """Rows of the mask that is added to the probabilities: one for all steps if it is about keys only; 0 without."""
    if kernel.attribute("unidirectional", 0):
        return steps
    if not kernel.has_input(place):
        return 0
    return 1 if len(kernel.input(place)) < 3 else steps


def _applied(batch: int, heads: int, steps: int, total: int, hidden: int) -> list[int]:
    """Probabilities, then their product with the values before heads are put side by side."""
    return [4 * batch * heads * steps * total, _PER_PRODUCT * batch * heads, 4 * batch * steps * hidden]


def _by_heads(taken: list[int], size: int, hidden: int, *, single: bool, bias: bool) -> list[int]:
    """The steps of putting a matrix in order by heads, after others; a bias is added first."""
    steps = [*taken, 4 * size]
    if bias:
        number = sum(step > 0 for step in steps)
        if single:
            return [*steps, 4 * hidden, -number - 1]
        return [*steps, 4 * size, 4 * hidden, -number - 2, -number - 1]
    return steps


def _block(steps: int, total: int, size: int, value_size: int, cache: int) -> int:
    """Bytes per thread where blocks of queries meet blocks of keys, so small that all of it stays in the cache."""
    keys = max(1, cache // (4 * 4 * (size + value_size)))
    queries = min(keys, size + value_size, steps)
    keys = min(keys, total)
    return 4 * queries * (2 + keys + value_size)
