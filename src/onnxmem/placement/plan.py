"""A plan: one offset per buffer, and what is known about how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxmem.errors import PlanError
from onnxmem.placement.problem import Int64Array, Problem
from onnxmem.shown import Shown


@dataclass(frozen=True, eq=False)
class Plan(Shown):
    """Offsets for a problem's buffers, in the problem's order.

    `proven_bound` is the best lower bound anyone proved for this problem; it starts as the largest sum of live sizes
    and a search may raise it. A plan whose peak equals it is optimal. `interrupted` says that Ctrl-C ended the search
    that found it: a longer one might have found a smaller plan.
    """

    problem: Problem
    offsets: Int64Array
    strategy: str = ""
    seconds: float = field(default=0.0, kw_only=True)
    proven_bound: int = field(default=0, kw_only=True)
    interrupted: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64).view()
        offsets.flags.writeable = False
        if offsets.shape != (len(self.problem),):
            raise PlanError(f"a plan for {len(self.problem)} buffers has {offsets.size} offsets")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "proven_bound", max(self.proven_bound, self.problem.lower_bound))

    @cached_property
    def peak(self) -> int:
        """The arena this plan needs, in bytes."""
        ends = zip(self.offsets.tolist(), self.problem.footprints.tolist(), strict=True)
        return max((offset + size for offset, size in ends), default=0)

    @cached_property
    def shared(self) -> Int64Array:
        """The problem's pairs that lie at one place: those that this plan uses."""
        before, after = self.problem.shares[:, 0], self.problem.shares[:, 1]
        used: Int64Array = self.problem.shares[
            (self.offsets[before] == self.offsets[after]) & (self.problem.sizes[after] > 0)
        ]
        return used

    @property
    def fits(self) -> bool:
        """Does it stay within the problem's capacity, where there is one?"""
        return self.problem.capacity is None or self.peak <= self.problem.capacity

    @property
    def optimal(self) -> bool:
        """Is it proven that no plan is smaller?"""
        return self.peak == self.proven_bound

    @property
    def gap(self) -> float:
        """How far above the proven bound, as a fraction: 0.0 is optimal."""
        return self.peak / self.proven_bound - 1 if self.proven_bound else 0.0
