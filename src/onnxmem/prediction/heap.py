"""The C library's heap on paper, for what ONNX Runtime does while it loads: what is resident, and what stays so.

glibc takes the smallest free chunk that fits, then the top of its heap; what is larger than a threshold gets a mapping
of its own, which goes back to the system when it is freed and raises the threshold. Freed memory inside the heap stays
resident until the top is free and large, or until the heap is trimmed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

_PAD = 128 << 10
_SMALLEST_THRESHOLD = 128 << 10
_AFTER_IMPORTS = 364 << 10
"""What Python and NumPy free while they are imported has raised the threshold already."""
_LARGEST_THRESHOLD = 32 << 20
_LOOKS_AT_TOP = 64 << 10
_ALIGNED = 64
_HEADER = 16
_SMALLEST = 32
_PAGE = 4096
_HOLES = 1.08
"""Small blocks of other kinds lie in between: part of what is free cannot be used. Measured on real models."""
_LARGEST_HOLE = 8 << 20
"""They also keep what is left of loading from joining into pieces larger than this, which runs could use."""
_ANY = 1 << 62


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


@dataclass
class Heap:
    """Addresses count from the start of the heap; mappings have negative ones."""

    threshold: int = _AFTER_IMPORTS
    peak: int = 0
    fragments: int = 0
    """How many fragments before aligned blocks the C library is going to keep for small blocks: where such a block lay,
    another of its size does not fit. At first none, because loading takes the small blocks at once."""
    _used: dict[int, int] = field(default_factory=dict)
    _sizes: list[tuple[int, int]] = field(default_factory=list)
    _starts: dict[int, int] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)
    _mapped: dict[int, int] = field(default_factory=dict)
    _top: int = 0
    _end: int = 0
    _highest: int = 0
    """Below this, everything has been handed out at some time …"""
    _absent: list[tuple[int, int]] = field(default_factory=list)
    """… and all but these stretches of it were written to, and are still there."""
    _trimmed: bool = False

    @property
    def resident(self) -> int:
        """Everything that was written to and has not gone back to the system."""
        there = self._highest - sum(end - start for start, end in self._absent)
        return int(there * (1 if self._trimmed else _HOLES)) + sum(self._mapped.values())

    @property
    def spare(self) -> int:
        """What is resident and free, in pieces of any size."""
        return 0 if self._trimmed else sum(self._starts.values()) + self._highest - min(self._highest, self._top)

    def trim(self) -> None:
        """Give back every free page, as malloc_trim does."""
        self._highest = self._end = self._top
        self._absent = sorted((start, start + size) for start, size in self._starts.items())
        self._trimmed = True

    def allocate(self, size: int, *, aligned: bool = False) -> int:
        """The address of a block, all of which is written to."""
        address = self._place(size, aligned, _ANY)
        if address < 0:
            self._mapped[address] = _pages(size + _HEADER)
        else:
            self._write(address, address + size)
            if aligned and self.fragments and address + self._used[address] == self._top:
                self.fragments -= 1
                self._used[self._top] = _ALIGNED
                self._top += _ALIGNED
        self._highest = max(self._highest, self._top)
        self.peak = max(self.peak, self.resident)
        return address

    def reserve(self, size: int) -> tuple[int, bool]:
        """The address of a block that is not written to, and whether it is resident all the same."""
        address = self._place(size, True, max(_LARGEST_HOLE, self.threshold))
        if address < 0:
            self._mapped[address] = 0
            return address, False
        resident = address + size <= self._highest and not self._trimmed
        if address + size > self._highest:
            self._absent.append((self._highest, self._top))
            self._highest = self._top
        return address, resident

    def _write(self, start: int, end: int) -> None:
        parts = ((low, min(high, start), max(low, end), high) for low, high in self._absent)
        self._absent = [rest for a, b, c, d in parts for rest in ((a, b), (c, d)) if rest[0] < rest[1]]

    def _place(self, size: int, aligned: bool, largest_hole: int) -> int:
        need = max(_SMALLEST, -(-(size + 8) // 16) * 16)
        chunk = need + _ALIGNED + _SMALLEST if aligned else need
        position = bisect_left(self._sizes, (chunk, -1))
        if position < len(self._sizes) and size < largest_hole:
            found, address = self._sizes[position]
            self._unlist(address)
            self._used[address] = found
        elif self._end - self._top < chunk + _SMALLEST and size >= self.threshold:
            return min(self._mapped, default=0) - _pages(size + _HEADER)
        else:
            address = self._top
            self._used[address] = chunk
            self._top += chunk
            self._end = max(self._end, _pages(self._top + _PAD))
        self._shorten(address, need)
        return address

    def free(self, address: int) -> None:
        """Give a block back."""
        if address < 0:
            size = self._mapped.pop(address)
            if self.threshold < size <= _LARGEST_THRESHOLD:
                self.threshold = size
            return
        size = self._used.pop(address)
        freed = size
        if address in self._ends:
            before = self._ends[address]
            size += self._unlist(before)
            address = before
        if address + size in self._starts:
            size += self._unlist(address + size)
        if address + size < self._top:
            insort(self._sizes, (size, address))
            self._starts[address] = size
            self._ends[address + size] = address
            return
        self._top = address
        trimmed_at = max(2 * self.threshold, _SMALLEST_THRESHOLD) if self.threshold > _SMALLEST_THRESHOLD else _PAD
        if freed >= _LOOKS_AT_TOP and self._end - self._top >= trimmed_at:
            self._end = _pages(self._top + _PAD)
            self._highest = min(self._highest, self._end)
            self._write(self._highest, _ANY)

    def _unlist(self, address: int) -> int:
        size = self._starts.pop(address)
        del self._ends[address + size]
        self._sizes.pop(bisect_left(self._sizes, (size, address)))
        return size

    def _shorten(self, address: int, need: int) -> None:
        """Give back what a block does not need of the chunk that was found for it."""
        rest = self._used[address] - need
        if rest >= _SMALLEST:
            self._used[address] = need
            self._used[address + need] = rest
            self.free(address + need)
