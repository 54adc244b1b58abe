"""How do mapped weights come into memory before the first run, instead of during it?

Mapped files are read when they are first touched. A session that has them as soon as it is loaded runs as fast the
first time as later, and what it grows by while running is what it computes with: whoever got through loading in a
small container gets through running. The pages are the file's own, shared with all processes that map it. Only what
every run reads is fetched, which the package says: not a table that a run looks a few rows up in.

Of such a table, a row shall bring no more than its own pages from the disk: what lies around it is of no use.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from onnxmem.errors import OutOfMemory
from onnxmem.units import format_bytes

Range = tuple[int, int]
"""Offset and length in a file."""

_POPULATE_READ = 22  # MADV_POPULATE_READ
_RANDOM = 1  # MADV_RANDOM
_PAGE = mmap.PAGESIZE
_MAPS = Path("/proc/self/maps")


class Mapping(NamedTuple):
    """A part of a file that this process has mapped."""

    address: int
    range: Range


def prefault(mappings: Sequence[Mapping], ranges: Sequence[Range]) -> None:
    """Bring what is mapped of these ranges into memory; where the system cannot, leave it for later."""
    libc = ctypes.CDLL(None)
    for start, mapped in mappings:

        def advise(part: Range, how: int, at: int = start - mapped[0]) -> None:
            # Linux before 5.14 says that it does not know how to fetch.
            libc.madvise(ctypes.c_void_p(at + part[0]), ctypes.c_size_t(part[1]), how)

        for part in _pages(ranges, mapped):
            advise(part, _POPULATE_READ)
        for part in _between(ranges, mapped):
            advise(part, _RANDOM)


def check_mapped(file: Path, mappings: Sequence[Mapping], ranges: Sequence[Range]) -> None:
    """Raise OutOfMemory unless all of these ranges of a file, packed weights, are mapped.

    Where a part of a file cannot be mapped, ONNX Runtime reads it into a piece of the heap, which is aligned to less
    than kernels need of weights that are packed already: a run would end the process.
    """
    missing = list(ranges)
    for _, mapped in mappings:
        missing = [part for each in missing for part in _outside(each, mapped)]
    if missing and _MAPS.exists():
        size = format_bytes(sum(length for _, length in missing))
        raise OutOfMemory(f"there is no memory to map {size} of '{file}'", hint="a limit of the process may be too low")


def mappings_of(file: Path) -> list[Mapping]:
    """Where this process maps which ranges of a file."""
    name, found = str(file.resolve()), []
    for line in _MAPS.read_text().splitlines() if _MAPS.exists() else ():  # it is Linux's
        if line.endswith(name):
            addresses, _, offset, _ = line.split(maxsplit=3)
            start, end = (int(part, 16) for part in addresses.split("-"))
            found.append(Mapping(start, (int(offset, 16), end - start)))
    return found


def _outside(part: Range, taken: Range) -> Iterator[Range]:
    """What of a range is outside of another."""
    start, end, low, high = part[0], sum(part), taken[0], sum(taken)
    if start < min(end, low):
        yield start, min(end, low) - start
    if max(start, high) < end:
        yield max(start, high), end - max(start, high)


def _between(ranges: Sequence[Range], within: Range) -> Iterator[Range]:
    """The pages that are in none of the ranges."""
    place = within[0]
    for start, length in sorted(_pages(ranges, within)):
        if place < start:
            yield place, start - place
        place = max(place, start + length)
    if place < (end := sum(within)):
        yield place, end - place


def _pages(ranges: Sequence[Range], within: Range) -> Iterator[Range]:
    """The whole pages that the ranges touch."""
    for start, length in ranges:
        low = max(start // _PAGE * _PAGE, within[0])
        high = min(-(-(start + length) // _PAGE) * _PAGE, sum(within))
        if low < high:
            yield low, high - low
