"""How is a child process kept below a limit? By a control group of its own where one can be made, else by rlimit."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from onnxmem.measurement import probes
from onnxmem.unknown import Unknown

# RLIMIT_AS would be the classic choice, but it counts address space: libraries, thread stacks and reserved heaps of
# a small ONNX Runtime process come to a GiB that nobody ever touches. RLIMIT_DATA counts what can be written to.
RLIMIT = "RLIMIT_DATA"


class Limit:
    """A limit for one child; used as a context manager, so that its control group is removed."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.group = _make_group(size) if size is not None else None
        self.by = None if size is None else "cgroup memory.max" if self.group else RLIMIT

    def __enter__(self) -> Limit:
        return self

    def __exit__(self, *_: object) -> None:
        if self.group:
            for _attempt in range(50):
                # The group of a process that has just ended is busy for a moment.
                with suppress(OSError):
                    self.group.rmdir()
                    break
                time.sleep(0.01)

    @property
    def rlimits(self) -> dict[str, int]:
        """What the child sets for itself. Never a core dump: it would be as large as what is being measured."""
        limits = {"RLIMIT_CORE": 0} if os.name == "posix" else {}
        return limits | {RLIMIT: self.size} if self.size is not None and not self.group else limits

    def admit(self, pid: int) -> None:
        """Put the child under the limit before it does anything."""
        if self.group:
            (self.group / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int | None:
        """How often the kernel has killed for memory so far: in the group, or in the whole system (since 4.13)."""
        path, key = (self.group / "memory.events", "oom_kill") if self.group else (probes.PROC / "vmstat", "oom_kill")
        try:
            pairs = (line.split() for line in path.read_text().splitlines())
            return next((int(count) for name, count in pairs if name == key), None)
        except (OSError, ValueError):
            return None


def _make_group(size: int) -> Path | None:
    """A group beside our own: below it there can be none, as a group with processes in it hands nothing down."""
    own = probes.cgroup_folder()
    if isinstance(own, Unknown):
        return None
    group = own.parent / f"onnxmem-{os.getpid()}-{time.monotonic_ns()}"
    try:
        if "memory" not in (own.parent / "cgroup.subtree_control").read_text().split():
            return None
        group.mkdir()
    except OSError:
        return None
    try:
        (group / "memory.max").write_text(str(size))
        with suppress(OSError):  # without swap accounting there is no such file
            (group / "memory.swap.max").write_text("0")
        # May we move a process there at all? This one, and back, would change what it is charged to: only look.
        if not os.access(group / "cgroup.procs", os.W_OK) or not os.access(own.parent / "cgroup.procs", os.W_OK):
            raise PermissionError
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
    return group
