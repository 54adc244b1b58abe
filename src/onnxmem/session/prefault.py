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

from onnxmem.session.mapped import Mapping, Range

_POPULATE_READ = 22  # MADV_POPULATE_READ
_RANDOM = 1  # MADV_RANDOM
_PAGE = mmap.PAGESIZE


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
