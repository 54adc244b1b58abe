"""Are a package's weights mapped into memory for the session that has just been made?

Where a part of a file cannot be mapped, ONNX Runtime reads it into a piece of the heap, which is aligned to less than
kernels need of weights that are packed already: a run would end the process. Each session maps the file for itself, and
the system does not say which mapping is whose. So while a session is made from a file, no other one is, and those that
have been stay as they are: what comes to be mapped meanwhile is its own.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.errors import OutOfMemory
from onnxmem.session.forked import renew_in_children
from onnxmem.units import format_bytes

Range = tuple[int, int]
"""Offset and length in a file."""

_MAPS = Path("/proc/self/maps")


class Mapping(NamedTuple):
    """A part of a file that this process has mapped."""

    address: int
    range: Range


class _File:
    """The sessions that were made from a file: ONNX Runtime's own objects, which map it for as long as they are there.
    The Python ones around them are gone a moment earlier."""

    def __init__(self) -> None:
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self.begin_anew()
        renew_in_children(self)

    def begin_anew(self) -> None:
        """Also in a forked child. Reentrant, as a handler of signals may make a session in the middle of another."""
        self.lock = threading.RLock()


_FILES: dict[str, _File] = {}


@contextmanager
def making(session: Any, file: Path) -> Iterator[Callable[[], list[Mapping]]]:
    """Make a session from a file in the block; afterwards, still in it, ask which ranges of the file it has mapped."""
    if not _MAPS.exists():  # it is Linux's
        yield list
        return
    name = str(file.resolve())
    made_from = _FILES.setdefault(name, _File())
    with made_from.lock:
        # One that went now would make room for this one at the same addresses.
        held = list(made_from.sessions)
        before = _mappings_of(name)
        yield lambda: _added(before, _mappings_of(name))
        made_from.sessions.add(session._sess)
        del held


@contextmanager
def closing(session: Any) -> Iterator[None]:
    """While a session is destroyed in the block, none is made from the same file, which would hold it."""
    with ExitStack() as locks:
        for each in list(_FILES.values()):
            if session._sess in each.sessions:
                locks.enter_context(each.lock)
        yield


def check_mapped(file: Path, mappings: Sequence[Mapping], ranges: Sequence[Range]) -> None:
    """Raise OutOfMemory unless all of these ranges of a file, packed weights, are mapped."""
    missing = list(ranges)
    for _, mapped in mappings:
        missing = [part for each in missing for part in _outside(each, mapped)]
    if missing and _MAPS.exists():
        size = format_bytes(sum(length for _, length in missing))
        raise OutOfMemory(f"there is no memory to map {size} of '{file}'", hint="a limit of the process may be too low")


def _mappings_of(name: str) -> list[Mapping]:
    found = []
    for line in _MAPS.read_text().splitlines():
        if line.endswith(name):
            addresses, _, offset, _ = line.split(maxsplit=3)
            start, end = (int(part, 16) for part in addresses.split("-"))
            found.append(Mapping(start, (int(offset, 16), end - start)))
    return found


def _added(before: Sequence[Mapping], now: Sequence[Mapping]) -> list[Mapping]:
    """What was not mapped before. The system joins neighbours, and so may have made one of an old and a new one."""
    known, there = set(before), set(now)
    joined = [(each.address, each.range[1]) for each in before if each not in there]
    found = []
    for each in now:
        at, (offset, length) = each
        parts = [] if each in known else [(at, length)]
        for old in joined:
            parts = [rest for part in parts for rest in _outside(part, old)]
        found += [Mapping(start, (offset + start - at, size)) for start, size in parts]
    return found


def _outside(part: Range, taken: Range) -> Iterator[Range]:
    """What of a range is outside of another."""
    start, end, low, high = part[0], sum(part), taken[0], sum(taken)
    if start < min(end, low):
        yield start, min(end, low) - start
    if max(start, high) < end:
        yield max(start, high), end - max(start, high)
