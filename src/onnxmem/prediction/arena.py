"""ONNX Runtime's arena on paper: which pages of it will have been written to, and how much it takes from the system.

A best-fit allocator: sizes in steps of 256 bytes, regions that grow by powers of two, the smallest free chunk that is
large enough (among equals the lowest address), split only if at least half of it would be left over. Pages that are
taken and never written to cost nothing, so the resident part is less than what the arena holds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field

PAGE = 4096
_STEP = 256
_FIRST_REGION = 1 << 20
_LARGEST_REGION = 1 << 30
HIGHEST = 1 << 128
"""Addresses go down from here: no machine has as many, but one may ask about shapes that no machine can hold."""
_MOST_WASTED = 128 << 20
# The arena notes the owner of every 256 bytes in a table of 8 bytes each, and writes all of it.
_TABLE = 32


@dataclass
class _Chunk:
    size: int
    used: bool = False
    before: int | None = None
    after: int | None = None


@dataclass
class Arena:
    """One session's arena. `take` is called with the size of every new region and of its table, and says where the
    region lies and whether it was resident already, as memory that the heap kept is."""

    take: Callable[[int, int], tuple[int, bool]] | None = None
    regions: list[tuple[int, int, bool]] = field(default_factory=list)
    """Address, size, and whether it was resident before."""
    _next: int = _FIRST_REGION
    _free: list[tuple[int, int]] = field(default_factory=list)
    _chunks: dict[int, _Chunk] = field(default_factory=dict)
    _written: set[tuple[int, int]] = field(default_factory=set)
    _lowest: int = HIGHEST

    @property
    def held(self) -> int:
        """What it has taken from the system."""
        return sum(size for _, size, _ in self.regions)

    @property
    def resident(self) -> int:
        """The pages written to so far, without those of regions that were resident before."""
        return self._pages([(at // PAGE, -(-(at + size) // PAGE)) for at, size, old in self.regions if old])

    @property
    def written(self) -> int:
        """The same with those."""
        return self._pages([])

    def _pages(self, old: list[tuple[int, int]]) -> int:
        total, end = 0, -1
        for low, high in sorted(self._written):
            if high > end:
                if not any(first <= low < last for first, last in old):
                    total += high - max(low, end)
                end = high
        return total * PAGE

    def allocate(self, size: int) -> int | None:
        """The address of a buffer that is going to be written to; None for nothing."""
        if size <= 0:
            return None
        rounded = -(-size // _STEP) * _STEP
        position = bisect_left(self._free, (rounded, -1))
        if position == len(self._free):
            self._extend(rounded)
            position = bisect_left(self._free, (rounded, -1))
        found, address = self._free.pop(position)
        if found >= 2 * rounded or found - rounded >= _MOST_WASTED:
            self._split(address, rounded)
        self._chunks[address].used = True
        self._written.add((address // PAGE, -(-(address + size) // PAGE)))
        return address

    def free(self, address: int | None) -> None:
        """Give a buffer back, and join it with free neighbours."""
        if address is None:
            return
        self._chunks[address].used = False
        after = self._chunks[address].after
        if after is not None and not self._chunks[after].used:
            self._forget(after)
            self._join(address, after)
        before = self._chunks[address].before
        if before is not None and not self._chunks[before].used:
            self._forget(before)
            self._join(before, address)
            address = before
        insort(self._free, (self._chunks[address].size, address))

    def _extend(self, size: int) -> None:
        if size > self._next:
            while size > self._next:
                self._next *= 2
            taken = self._next
        else:
            taken = self._next
            self._next = max(taken, min(2 * taken, _LARGEST_REGION))
        self._lowest -= taken + PAGE  # the system hands out addresses from high to low
        address, resident = self.take(taken, taken // _TABLE) if self.take else (self._lowest, False)
        self.regions.append((address, taken, resident))
        self._chunks[address] = _Chunk(taken)
        insort(self._free, (taken, address))

    def _split(self, address: int, size: int) -> None:
        chunk, rest = self._chunks[address], address + size
        self._chunks[rest] = _Chunk(chunk.size - size, before=address, after=chunk.after)
        if chunk.after is not None:
            self._chunks[chunk.after].before = rest
        insort(self._free, (chunk.size - size, rest))
        chunk.size, chunk.after = size, rest

    def _join(self, first: int, second: int) -> None:
        gone = self._chunks.pop(second)
        self._chunks[first].size += gone.size
        self._chunks[first].after = gone.after
        if gone.after is not None:
            self._chunks[gone.after].before = first

    def _forget(self, address: int) -> None:
        self._free.pop(bisect_left(self._free, (self._chunks[address].size, address)))
