"""The placement problem: buffers with a size and a half-open lifetime, to be given offsets in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnxmem.errors import PlanError
from onnxmem.placement import shares as sharing

Int64Array = sharing.Int64Array

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

    `shares` are pairs of rows (before, after): `after` may be written over `before`, that is lie at the same offset,
    although both are live for a while (see `shares.py`). Which of them are used is up to the plan.
    """

    ids: tuple[str, ...]
    lowers: Int64Array
    uppers: Int64Array
    sizes: Int64Array
    alignment: int = 1
    capacity: int | None = field(default=None, kw_only=True)
    shares: Int64Array = field(default_factory=lambda: sharing.NO_PAIRS, kw_only=True)

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
        self._check_shares()

    def _check_shares(self) -> None:
        if not len(self.shares):
            object.__setattr__(self, "shares", sharing.NO_PAIRS)
            return
        pairs = np.unique(np.asarray(self.shares, np.int64).reshape(-1, 2), axis=0)
        if pairs.min() < 0 or pairs.max() >= len(self):
            raise PlanError(f"a pair that may share names a row that is not there: there are {len(self)}")
        possible = sharing.allowed(self.lowers, self.uppers, self.sizes, pairs)
        if not possible.all():
            before, after = (self[row] for row in pairs[int(np.argmin(possible))].tolist())
            raise PlanError(
                f"buffer '{after.id}' ({after.size} bytes, steps {after.lower} to {after.upper}) cannot be written "
                f"over '{before.id}' ({before.size} bytes, steps {before.lower} to {before.upper})",
                hint="what is written over a buffer is not larger, begins while it is live and ends no sooner",
            )
        pairs.flags.writeable = False
        object.__setattr__(self, "shares", pairs)

    def _refuse(self, wrong: npt.NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            buffer = self[int(np.argmax(wrong))]
            raise PlanError(f"buffer '{buffer.id}' has {what} (lower {buffer.lower}, upper {buffer.upper}, "
                            f"size {buffer.size})")  # fmt: skip

    @classmethod
    def of(
        cls,
        buffers: Iterable[Buffer],
        *,
        alignment: int = 1,
        capacity: int | None = None,
        shares: Iterable[tuple[int, int]] = (),
    ) -> Problem:
        """A problem from single buffers."""
        rows = list(buffers)
        too_large = next((b for b in rows if max(abs(b.lower), abs(b.upper), abs(b.size)) > LARGEST), None)
        if too_large is not None:
            raise PlanError(f"buffer '{too_large.id}' has a number that does not fit into 64 bits")
        lowers, uppers, sizes = (np.array([row[k] for row in rows], dtype=np.int64) for k in (1, 2, 3))
        pairs = np.array(list(shares), dtype=np.int64)
        return cls(tuple(b.id for b in rows), lowers, uppers, sizes, alignment, capacity=capacity, shares=pairs)

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

    def without_shares(self) -> Problem:
        """The same buffers, each at a place of its own."""
        return replace(self, shares=sharing.NO_PAIRS) if len(self.shares) else self

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
        """The largest sum of live footprints, less what sharing can save there: no plan can be smaller."""
        return self.peak_step[1]

    @cached_property
    def peak_step(self) -> tuple[int, int]:
        """The first step at which the live footprints need most, and how much that is; (0, 0) if there are none."""
        if not len(self):
            return 0, 0
        columns = self.lowers, self.uppers, self.footprints
        steps, live = sharing.live_bytes(*columns, sharing.savings(*columns, self.shares))
        top = int(np.argmax(live))
        return int(steps[top]), int(live[top])

    def live_at(self, step: int) -> list[int]:
        """Indices of the buffers alive at `step`, largest first."""
        alive = np.flatnonzero((self.lowers <= step) & (step < self.uppers))
        return [int(i) for i in alive[np.argsort(-self.sizes[alive], kind="stable")]]
