"""The rules, one in each file: `find(explained)` returns what it found, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxmem.errors import OnnxmemError
from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import WORTH, Finding
from onnxmem.explaining.findings import (
    arena_slack,
    batch,
    duplicates,
    dynamic_growth,
    float64,
    heap_retention,
    load_peak,
    one_tensor,
    ort_copies,
    outputs,
    packed_twice,
    pattern,
    private_weights,
    reuse,
    scratch,
    tiles,
    unasked_outputs,
)

Rule = Callable[[Explained], Finding | None]

QUICK: tuple[Rule, ...] = tuple(
    module.find
    for module in (
        *(arena_slack, float64, heap_retention, load_peak, one_tensor, ort_copies, outputs, packed_twice, pattern),
        *(private_weights, reuse, scratch, unasked_outputs),
    )
)
"""Those that follow from what is known already …"""
RULES: tuple[Rule, ...] = (*QUICK, batch.find, duplicates.find, dynamic_growth.find, tiles.find)
"""… and those that read the weights, predict other sizes, or search."""


def findings_of(explained: Explained, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What the rules find, the largest saving first; what depends on a condition comes after what does not."""
    found = [finding for rule in rules if (finding := _asked(rule, explained)) and finding.saving >= WORTH]
    return tuple(sorted(found, key=lambda finding: (bool(finding.when), -finding.saving)))


def _asked(rule: Rule, explained: Explained) -> Finding | None:
    try:
        return rule(explained)
    except OnnxmemError:  # a part of the model that cannot be read costs one finding, and not the explanation
        return None
