"""Which calls of a recorded run belong to which node? ONNX Runtime's own profile of that run says so.

It has a node's name, operator and shapes, and the statistics of the allocator at the node's end with their change since
its beginning. Our allocator's statistics are how many calls the run has made (`statistics` in `arena_bridge.cpp`), so a
node's calls are known exactly: no clocks are compared. Profiling ends with the first recorded run: it keeps all events
in memory until then, a few KiB per node.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from onnxmem.session.modes import Setting
from onnxmem.session.options import applied

_KERNEL = "_kernel_time"
# As ONNX Runtime writes element types into a profile.
ITEM_BYTES = {
    "float": 4, "double": 8, "float16": 2, "bfloat16": 2, "bool": 1,
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
}  # fmt: skip


class Value(NamedTuple):
    """A tensor that goes into a node or comes out of it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """What it takes; -1 if its elements have no size of their own."""
        count = ITEM_BYTES.get(self.dtype, -1)
        for dim in self.shape:
            count *= dim
        return count


class NodeCalls(NamedTuple):
    """A node as it ran, and which calls were its own: `begin` up to, not including, `end`."""

    name: str
    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constant_bytes: int
    """How much of its inputs are constants."""
    begin: int
    end: int


class Profile:
    """The profile of a session that has not run yet; read once, after the run that was marked with its token.

    Without a descriptor (-1) there is nothing to read, but ONNX Runtime profiles all the same until it is told to end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.token = 0

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def new_token(self) -> int:
        """For the run that is about to begin. One before it may have failed; and a forked child has the file, too."""
        self.token = int.from_bytes(os.urandom(7), "little") + 1
        return self.token

    def nodes(self, marks: int) -> list[NodeCalls]:
        """The nodes of the marked run in the order they began; none unless all of its `marks` are accounted for."""
        found: dict[int, NodeCalls] = {}
        events = 0
        if self._descriptor < 0:
            return []
        descriptor, self._descriptor = self._descriptor, -1
        with open(descriptor, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for line in file:
                event = _event(line)
                if event is not None and int(event["args"].get("mem_arena_held", 0)) == self.token:
                    found[int(event["args"]["mem_in_use_peak"])] = _node(event)
                    events += 1
        # Two marks per node, the second one in its event. One that is missing would give its calls to another node.
        if not found or marks != 2 * len(found) or events != len(found):
            return []
        nodes = [found[number] for number in sorted(found)]
        nodes.sort(key=lambda node: node.begin)  # a loop begins before what is in it, and ends after it
        return nodes


@contextmanager
def profiled(options: Any) -> Iterator[Callable[[], Profile | None]]:
    """Profile the session that is made with these options in this block; then the profile can be had.

    None if somebody profiles for himself, or if there is no place for the file. It has no name any more once the
    session is made: whatever becomes of the process, nothing is left behind.
    """
    if options.enable_profiling:
        yield lambda: None
        return
    with _private_folder() as folder:
        if folder is None:
            yield lambda: None
            return
        settings: dict[str, Setting] = {"enable_profiling": True, "profile_file_prefix": f"{folder}/run"}
        found: list[Profile] = []
        with applied(options, settings, {}):
            yield lambda: found[0] if found else Profile(-1)
        with suppress(OSError):  # there may be no room for another open file
            for name in os.listdir(folder):  # noqa: PTH208
                found.append(Profile(os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)))


@contextmanager
def _private_folder() -> Iterator[str | None]:
    """A folder that is gone when the block ends; None if there is no place for it.

    Like `folders.temporary_folder`, which removes what a kill leaves of this one; but that imports the whole of
    `tempfile` and `shutil`, more than a MiB in every session.
    """
    folder = f"{os.environ.get('TMPDIR') or '/tmp'}/onnxmem.tmp-{os.urandom(8).hex()}"
    lock: int | None = None
    try:
        while lock is None:
            lock = _made(folder)
    except OSError:
        with suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106  there may be no room for another open file
        yield None
        return
    try:
        yield folder
    finally:
        os.close(lock)  # first: listing it needs an open file, and there may be no room for another
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
            os.rmdir(folder)  # noqa: PTH106


def _made(folder: str) -> int | None:
    """Make it and lock it; None if another process, which was clearing at that moment, was faster."""
    os.mkdir(folder, 0o700)  # noqa: PTH102
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # some file systems have no locks
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever finds it unlocked may remove it
    if os.path.isdir(folder):  # noqa: PTH112
        return lock
    os.close(lock)
    return None


def _event(line: str) -> Any:
    """A node's event; None if it is something else, or not whole."""
    import json  # noqa: PLC0415

    if '"Node"' not in line or _KERNEL not in line:
        return None
    try:
        event = json.loads(line.strip().removesuffix(","))
        return event if event["cat"] == "Node" and "mem_in_use_peak" in event["args"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _node(event: Any) -> NodeCalls:
    arguments = event["args"]
    end = int(arguments["mem_bytes_in_use"])
    return NodeCalls(
        name=event["name"].removesuffix(_KERNEL),
        op=arguments["op_name"],
        inputs=_values(arguments["input_type_shape"]),
        outputs=_values(arguments["output_type_shape"]),
        constant_bytes=int(arguments["parameter_size"]),
        begin=end - int(arguments.get("mem_in_use_delta", 0)),
        end=end,
    )


def _values(described: Any) -> tuple[Value, ...]:
    return tuple(Value(dtype, tuple(shape)) for one in described for dtype, shape in one.items())
