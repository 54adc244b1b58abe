"""Which buffers of a run may share a place? Those that die in a node which could as well have written over them.

ONNX Runtime gives the output of Add, of a norm, of most operators a buffer beside an input that it frees right after.
Where the kernel allows it (`rules.py`), and where it is certain which buffer is which (`profile.py`, `steady.py`), the
two are a pair that a plan may put at one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxmem.placement.shares import NO_PAIRS, Int64Array
from onnxmem.session.planned.pairs import NOTHING, Need, Sharing, Trust
from onnxmem.session.planned.profile import NodeCalls
from onnxmem.session.planned.rules import PROMISED, known_rules, question
from onnxmem.session.planned.steady import steady_part
from onnxmem.session.planned.trace import OUTLIVES, Trace

# What less than this would save is not worth asking a kernel for.
WORTHWHILE = 256 << 10


def find(trace: Trace, nodes: Sequence[NodeCalls], threads: int, left_out: Sequence[str] = ()) -> Sharing:
    """The pairs of a recorded run; none if they would save next to nothing. Of operators `left_out`, there are none."""
    part, trust = steady_part(nodes) if nodes else ([], Trust.ALL)
    if not part or not _in_turn(part, trace.steps):
        return NOTHING
    promised = [node for node in part if node.op in PROMISED and node.op not in left_out]
    followers = _beginnings(nodes, trace.steps)
    possible = [(node, pairs) for node in promised if len(pairs := _pairs(trace, node, followers[node.end]))]
    everything = np.concatenate([NO_PAIRS, *(pairs for _, pairs in possible)])
    if trace.bound() - trace.bound(pairs=everything) < WORTHWHILE:
        return NOTHING
    rules = known_rules()
    chosen, needs = [], set()
    names: dict[int, str] = {}
    for node, pairs in possible:
        need = _need(node)
        if need is not None and rules.allow(need.question, need.positions, threads):
            chosen.append(pairs)
            needs.add(need)
            names |= dict.fromkeys(pairs[:, 1].tolist(), f"{node.name} ({node.op})")
    rules.keep()
    return Sharing(np.concatenate([NO_PAIRS, *chosen]), trust, tuple(sorted(needs)), nodes=names)


def _in_turn(nodes: Sequence[NodeCalls], steps: int) -> bool:
    """Whether each node ends before the next one begins."""
    bounds = np.array([(node.begin, node.end) for node in nodes], np.int64).ravel()
    return bool((np.diff(bounds) >= 0).all()) and bounds[0] >= 0 and bounds[-1] <= steps


def _beginnings(nodes: Sequence[NodeCalls], steps: int) -> dict[int, int]:
    """For each end of a node, where the next one begins."""
    begins = sorted({node.begin for node in nodes} | {steps})
    ends = [node.end for node in nodes]
    return {end: begins[position] for end, position in zip(ends, np.searchsorted(begins, ends), strict=True)}


def _pairs(trace: Trace, node: NodeCalls, then: int) -> Int64Array:
    """(what dies in a node, what it makes), if what it makes is certain. `then` is where the next node begins."""
    sizes, lowers, uppers = trace.columns
    first, last = np.searchsorted(lowers, [node.begin, node.end]).tolist()
    rows = np.arange(first, last)
    made = rows[(uppers[rows] == OUTLIVES) | (uppers[rows] >= node.end)]
    if len(made) != 1 or len(node.outputs) != 1:
        return NO_PAIRS
    after = int(made[0])
    # An output of the model is outside of the plan; what nobody reads is not worth it.
    if uppers[after] == OUTLIVES or uppers[after] < then or sizes[after] != node.outputs[0].bytes:
        return NO_PAIRS
    dying = np.flatnonzero((uppers >= node.end) & (uppers < then) & (lowers < node.begin) & (sizes == sizes[after]))
    return np.stack([dying, np.full(len(dying), after)], axis=1)


def _need(node: NodeCalls) -> Need | None:
    """What a node must be allowed to write over whichever of its inputs it is that dies.

    That one is of the output's size; where several are, any of them may be meant, so that all must be allowed.
    """
    put, made = question(node), node.outputs[0]
    meant = tuple(position for position, value in enumerate(node.inputs) if value.bytes == made.bytes)
    if put is None or not meant or any(node.inputs[position].dtype != made.dtype for position in meant):
        return None
    return Need(put, meant)
