"""How many bytes are alive at each step of a static graph, and what a rewriting of it is worth?

The rules are those of `schedule/`, which this equals (a test holds it to that); a search asks thousands of times, and
there every order is searched, here just one is walked. Inputs and outputs are the caller's and do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from onnxmem.rewriting.static import StaticGraph, StaticNode, StaticTensor
from onnxmem.schedule.inplace import aliased_input, overwritten_input

NODE_BYTES = 6 * 1024
"""What a node takes in a loaded session, measured: 4.5 to 7.5 KiB."""


class _Operator(NamedTuple):
    op_type: str
    domain: str


@cache
def _sharing(op_type: str, domain: str) -> tuple[int | None, int | None]:
    """Which input output 0 is a view of, and which one it may be written over."""
    operator = _Operator(op_type, domain)
    return aliased_input(operator), overwritten_input(operator)


def overwrites(node: StaticNode) -> bool:
    """May it write its output over an input?"""
    return _sharing(node.op_type, node.domain)[1] is not None


def live_bytes(graph: StaticGraph) -> list[int]:
    """The bytes alive while each node runs, its scratch included."""
    return live(graph.nodes, graph.tensors, frozenset(graph.outputs))


def live(
    nodes: Sequence[StaticNode], tensors: Mapping[str, StaticTensor], outputs: Collection[str] = frozenset()
) -> list[int]:
    """The same for nodes that are no graph yet. What nobody here makes does not count, nor do `outputs`."""
    root: dict[str, str] = {}
    born: dict[str, int] = {}
    last: dict[str, int] = {}
    overwriting: list[tuple[int, int]] = []
    for step, node in enumerate(nodes):
        for name in node.inputs:
            last[root.get(name, name)] = step
        for name in node.captured:
            last[root.get(name, name)] = step
        alias, over = _sharing(node.op_type, node.domain)
        first = node.outputs[0] if node.outputs else ""
        if alias is not None and node.inputs and node.inputs[alias] and first not in outputs:
            source = node.inputs[alias]
            root[first] = root.get(source, source)
            continue
        if over is not None and over < len(node.inputs) and node.inputs[over]:
            overwriting.append((step, over))
        for name in node.outputs:
            if name and name in tensors and name not in outputs:
                born[name] = step
    taken, size = _overwritten(nodes, tensors, root, born, last, overwriting), [0] * (len(nodes) + 1)
    heads = set(taken.values())
    for name, step in born.items():
        if name in heads:
            continue
        end = name
        while end in taken:
            end = taken[end]
        size[step] += tensors[name].bytes
        size[max(last.get(end, -1), born[end]) + 1] -= tensors[name].bytes
    return [total + node.scratch for total, node in zip(accumulate(size), nodes, strict=False)]


def _overwritten(
    nodes: Sequence[StaticNode],
    tensors: Mapping[str, StaticTensor],
    root: Mapping[str, str],
    born: Mapping[str, int],
    last: Mapping[str, int],
    overwriting: Sequence[tuple[int, int]],
) -> dict[str, str]:
    """Which tensor's memory does which one continue?"""
    taken: dict[str, str] = {}
    for step, place in overwriting:
        node = nodes[step]
        source, target = node.inputs[place], node.outputs[0]
        owner = root.get(source, source)
        if owner not in born or target not in born or last[owner] != step or owner in taken:
            continue
        before, after = tensors.get(source), tensors[target]
        # A node that reads the memory twice cannot overwrite it; sizes must be seen to be equal.
        reads = sum(root.get(name, name) == owner for name in node.inputs if name)
        same = before is not None and before.shape == after.shape and before.bytes == after.bytes
        if reads == 1 and same and tensors[owner].bytes == after.bytes:
            taken[owner] = target
    return taken


def peak(graph: StaticGraph) -> int:
    """The most bytes alive at once."""
    return max(live_bytes(graph), default=0)


def score(before: StaticGraph, after: StaticGraph) -> int:
    """What a rewriting comes to: the bytes at its peak, and what its added nodes take in a loaded session."""
    return peak(after) + NODE_BYTES * max(0, len(after.nodes) - len(before.nodes))
