"""The placement problem: buffers with a size and a half-open lifetime, to be given offsets in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnxmem.errors import PlanError

Int64Array = npt.NDArray[np.int64]

LARGEST = 2**63 - 1


class Buffer(NamedTuple):
    """One tensor's memory: `size` bytes from step `lower` up to, not including, step `upper`."""

    id: str
    lower: int
    upper: int
    size: int


@dataclass(frozen=True, eq=False)
class Problem:
    """Buffers to place, as parallel columns: a million of them are four arrays, not a million objects.

    `sizes` are as given; a plan must put every offset on a multiple of `alignment`, and a buffer occupies its size
    rounded up to that multiple (`footprints`). `capacity` is the arena the plan should fit into, where there is one:
    a search may stop as soon as it does.
    """

    ids: tuple[str, ...]
    lowers: Int64Array
    uppers: Int64Array
    sizes: Int64Array
    alignment: int = 1
    capacity: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.alignment < 1:
            raise PlanError(f"alignment must be at least 1, not {self.alignment}")
        if self.capacity is not None and self.capacity < 0:
            raise PlanError(f"capacity must not be negative, but is {self.capacity}")
        for name in ("lowers", "uppers", "sizes"):
            column = np.ascontiguousarray(getattr(self, name), dtype=np.int64)
            if column.shape != (len(self.ids),):
                raise PlanError(f"{name} has {column.size} entries for {len(self.ids)} buffers")
            column = column.view()
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        self._refuse((self.sizes < 0), "a negative size")
        self._refuse((self.lowers >= self.uppers), "an empty lifetime")
        self._refuse((self.sizes > LARGEST - (self.alignment - 1)), "a size too large for 63 bits when aligned")
        if len(set(self.ids)) != len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise PlanError(f"buffer '{twice}' appears twice")

    def _refuse(self, wrong: npt.NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            buffer = self[int(np.argmax(wrong))]
            raise PlanError(f"buffer '{buffer.id}' has {what} (lower {buffer.lower}, upper {buffer.upper}, "
                            f"size {buffer.size})")  # fmt: skip

    @classmethod
    def of(cls, buffers: Iterable[Buffer], *, alignment: int = 1, capacity: int | None = None) -> Problem:
        """A problem from single buffers."""
        rows = list(buffers)
        too_large = next((b for b in rows if max(abs(b.lower), abs(b.upper), abs(b.size)) > LARGEST), None)
        if too_large is not None:
            raise PlanError(f"buffer '{too_large.id}' has a number that does not fit into 64 bits")
        lowers, uppers, sizes = (np.array([row[k] for row in rows], dtype=np.int64) for k in (1, 2, 3))
        return cls(tuple(b.id for b in rows), lowers, uppers, sizes, alignment, capacity=capacity)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Buffer:
        return Buffer(self.ids[index], int(self.lowers[index]), int(self.uppers[index]), int(self.sizes[index]))

    def __iter__(self) -> Iterator[Buffer]:
        rows = zip(self.ids, self.lowers.tolist(), self.uppers.tolist(), self.sizes.tolist(), strict=True)
        return (Buffer(*row) for row in rows)

    def with_capacity(self, capacity: int | None) -> Problem:
        """The same buffers under another capacity."""
        return replace(self, capacity=capacity)

    @cached_property
    def footprints(self) -> Int64Array:
        """What each buffer takes up: its size rounded up to the alignment."""
        rounded: Int64Array = -(-self.sizes // self.alignment) * self.alignment
        rounded.flags.writeable = False
        return rounded

    @cached_property
    def total(self) -> int:
        """All footprints together, as if nothing were ever reused."""
        # Python integers: the sum may pass 2^63 although no single size does.
        return sum(self.footprints.tolist())

    @cached_property
    def lower_bound(self) -> int:
        """The largest sum of live footprints: no plan can be smaller."""
        return self.peak_step[1]

    @cached_property
    def peak_step(self) -> tuple[int, int]:
        """The first step at which the live footprints are largest, and their sum; (0, 0) if there are none."""
        if not len(self):
            return 0, 0
        steps = np.concatenate([self.lowers, self.uppers])
        # At equal steps frees come before allocations, because lifetimes are half-open.
        order = np.lexsort((np.repeat([1, 0], len(self)), steps))
        deltas = np.concatenate([self.footprints, -self.footprints])[order]
        exact = deltas if self.total <= LARGEST else deltas.astype(object)
        live = np.cumsum(exact)
        top = int(np.argmax(live))
        return int(steps[order[top]]), int(live[top])

    def live_at(self, step: int) -> list[int]:
        """Indices of the buffers alive at `step`, largest first."""
        alive = np.flatnonzero((self.lowers <= step) & (step < self.uppers))
        return [int(i) for i in alive[np.argsort(-self.sizes[alive], kind="stable")]]
