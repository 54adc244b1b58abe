"""What is a process's memory made of: the model's files, other files and libraries, heap, arenas, stacks?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxmem.documents import Record, stored
from onnxmem.measurement import probes
from onnxmem.unknown import Unknown

KINDS = ("model files", "libraries and other files", "heap", "arenas", "stacks", "shared memory", "other")
"""`heap` is what malloc grew with brk; `arenas` are anonymous mappings: ONNX Runtime's arenas, but also every malloc
that was large enough (128 KiB at first) to be mapped, and the heaps of other threads."""

_HEADER = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) *(.*)")


@dataclass(frozen=True)
class Kind(Record):
    """All mappings of one kind, in bytes."""

    name: str = stored("kind")
    mappings: int = stored("mappings")
    virtual: int = stored("virtual_bytes")
    rss: int = stored("rss_bytes")
    pss: int = stored("pss_bytes")
    anon: int = stored("anon_bytes")


@dataclass(frozen=True)
class Mapping:
    """One mapping of a process."""

    start: int
    end: int
    inode: int
    path: str
    rss: int
    pss: int
    anon: int


def classify(model_files: Iterable[Path | str] = (), pid: int | None = None) -> tuple[Kind, ...] | Unknown:
    """What does this process's memory (or that of `pid`) consist of? `model_files` are the model and its weights."""
    files = {str(Path(file).resolve()) for file in model_files}
    stacks = _stack_pointers(pid)
    totals = {name: [0] * 5 for name in KINDS}
    try:
        # One at a time: who reads its own memory must not find its own reading there.
        for each in read_mappings(pid):
            total = totals[_kind(each, files, stacks)]
            for place, size in enumerate((1, each.end - each.start, each.rss, each.pss, each.anon)):
                total[place] += size
    except OSError as error:
        return Unknown(f"/proc/PID/smaps cannot be read: {error.strerror}")
    return tuple(Kind(name, *total) for name, total in totals.items())


def read_mappings(pid: int | None = None) -> Iterator[Mapping]:
    """The mappings of a process, in the order of their addresses."""
    header: re.Match[bytes] | None = None
    sizes = {b"Rss": 0, b"Pss": 0, b"Anonymous": 0}
    folder = probes.PROC / ("self" if pid is None else str(pid))
    with (folder / "smaps").open("rb") as lines:
        for line in lines:
            match = _HEADER.match(line)
            if match:
                if header:
                    yield _mapping(header, sizes)
                header, sizes = match, dict.fromkeys(sizes, 0)
                continue
            name, _, amount = line.partition(b":")
            if name in sizes:
                sizes[name] = int(amount.removesuffix(b" kB\n")) * 1024
    if header:
        yield _mapping(header, sizes)


def _mapping(header: re.Match[bytes], sizes: dict[bytes, int]) -> Mapping:
    path = header[4].decode(errors="surrogateescape")
    return Mapping(int(header[1], 16), int(header[2], 16), int(header[3]), path, *sizes.values())


def _kind(mapping: Mapping, files: set[str], stacks: tuple[int, ...]) -> str:
    path = mapping.path.removesuffix(" (deleted)")
    on_stack = any(mapping.start <= pointer < mapping.end for pointer in stacks)
    rules = (
        ("model files", path in files),
        # Anonymous memory shared with children has a file nobody can open; /dev/shm has one that everybody can.
        ("shared memory", path == "/dev/zero" or path.startswith(("/dev/shm/", "/memfd:", "/SYSV"))),
        ("libraries and other files", mapping.inode != 0),
        ("heap", path == "[heap]"),
        ("stacks", path.startswith("[stack") or on_stack),
        # The kernel's own pages ([vdso], [vvar] …); names given with prctl begin with [anon: and are ordinary memory.
        ("other", path.startswith("[") and not path.startswith("[anon")),
    )
    return next((name for name, applies in rules if applies), "arenas")


def _stack_pointers(pid: int | None) -> tuple[int, ...]:
    """Where the threads' stacks are. Since Linux 4.5 maps no longer names them; the stack pointers of waiting threads
    still tell. A thread that happens to run has none, and its stack is counted among the arenas: a few hundred KiB."""
    pointers = []
    folder = probes.PROC / ("self" if pid is None else str(pid)) / "task"
    try:
        for thread in folder.iterdir():
            fields = (thread / "syscall").read_bytes().split()
            if len(fields) > 2:
                pointers.append(int(fields[-2], 16))
    except OSError:
        return tuple(pointers)
    return tuple(pointers)
