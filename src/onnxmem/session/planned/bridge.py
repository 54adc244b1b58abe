"""Can a stock ONNX Runtime allocate from our arenas here? If it can, make it.

The Python module of ONNX Runtime holds a runtime of its own and exports nothing, but it loads libraries of execution
providers and hands them its table of functions. Ours offers no provider; it takes the table, and through it registers
an allocator in the environment that all sessions of the process share. Sessions that ask for the environment's
allocator while they are being made keep it for as long as they live.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onnxmem._native import arena
from onnxmem.errors import RuntimeUnsupported
from onnxmem.session.forked import renew_in_children

OLDEST = (1, 24)
_NAME = "onnxmem"


class _Once:
    """Who connects; a handler of signals may come a second time."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked child: whoever was connecting does not exist there."""
        self.lock = threading.RLock()


_ONCE = _Once()
renew_in_children(_ONCE)


def unsupported() -> str:
    """Why it cannot work here, in one sentence; empty if nothing speaks against it."""
    if not sys.platform.startswith("linux"):
        return f"planned sessions need Linux, and this is {sys.platform}"
    try:
        import onnxruntime  # noqa: PLC0415
    except ImportError as error:
        return f"ONNX Runtime cannot be imported: {error}"
    numbers = re.match(r"(\d+)\.(\d+)", onnxruntime.__version__)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST:
        return f"planned sessions need ONNX Runtime {OLDEST[0]}.{OLDEST[1]}, and this is {onnxruntime.__version__}"
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        return f"this build of ONNX Runtime {onnxruntime.__version__} cannot load libraries of execution providers"
    return ""


def connect() -> None:
    """Let ONNX Runtime load the library, once per process."""
    with _ONCE.lock:
        # The library remembers, not this module: modules can be imported twice, a library cannot.
        if arena.connected():
            return
        if reason := unsupported():
            raise RuntimeUnsupported(reason, hint="use a stock session")
        import onnxruntime  # noqa: PLC0415

        try:
            onnxruntime.register_execution_provider_library(_NAME, arena.__file__)
        except Exception as error:
            if not arena.connected():  # by the handler of a signal, in the meantime
                raise RuntimeUnsupported(f"ONNX Runtime does not load the bridge: {error}") from error
        if not arena.connected():
            raise RuntimeUnsupported("ONNX Runtime loaded the bridge, but handed nothing over")


@contextmanager
def enlisted(device: arena.Device | None = None) -> Iterator[None]:
    """Sessions made in this block that use the environment's allocator get ours, and keep it: on the host, or there."""
    connect()
    if problem := arena.enlist() if device is None else arena.enlist_device(device):
        raise RuntimeUnsupported(f"ONNX Runtime does not take our allocator: {problem}")
    try:
        yield
    finally:
        # Not left in the environment any longer than needed: other sessions may look there, too.
        if device is None:
            arena.withdraw()
        else:
            arena.withdraw_device(device)
