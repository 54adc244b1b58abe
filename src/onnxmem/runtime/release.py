"""How do I really unload a session? `release(session)` closes it although others hold it, and gives the memory back."""

from __future__ import annotations

import gc
import types
import weakref
from dataclasses import dataclass
from typing import Any

from onnxmem.errors import SessionClosed, UsageError
from onnxmem.measure import probes
from onnxmem.measure.probes import Bytes, Reading
from onnxmem.runtime.live import LiveOutput, holders, live_outputs
from onnxmem.runtime.trim import trim
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown

_MARK = "_onnxmem_released"


@dataclass(frozen=True)
class Released:
    """What releasing a session gave back, in bytes, and what stands in the way of more."""

    before: Reading
    after: Reading
    already: bool
    """It had been released before; nothing was done."""
    trimmed: bool | Unknown
    """Whether the C library had freed memory to give back."""
    held_by: tuple[str, ...]
    """What keeps the native session alive in spite of all; empty when it was destroyed."""
    live_outputs: tuple[LiveOutput, ...]
    """Outputs that are still referred to: each keeps the whole arena it lies in."""

    @property
    def freed(self) -> Bytes:
        """Resident memory (RSS) given back."""
        return difference(self.before.rss, self.after.rss)

    @property
    def freed_anon(self) -> Bytes:
        """Of it anonymous: heap and arenas."""
        return difference(self.before.anon, self.after.anon)

    @property
    def freed_file(self) -> Bytes:
        """Of it file-backed: mapped weights."""
        return difference(self.before.file, self.after.file)

    def __str__(self) -> str:
        if self.already:
            return "the session had been released before"
        if self.held_by:
            return f"the session is still alive: it is held by {', '.join(self.held_by)}"
        freed = "an unknown amount" if isinstance(self.freed, Unknown) else format_bytes(self.freed)
        kept = f"; still alive: {', '.join(map(str, self.live_outputs))}" if self.live_outputs else ""
        return f"released {freed} of resident memory{kept}"


def release(session: Any) -> Released:
    """Close a session that the caller holds: destroy it, collect garbage, trim the allocator, say what came back.

    Works for `onnxruntime.InferenceSession`, its subclasses, and `IsolatedSession`. The Python object stays, as others
    may hold it; using it raises `SessionClosed`. Releasing it again is harmless.
    """
    before = probes.read()
    already = is_released(session)
    held_by = () if already else close(session)
    trimmed = trim()
    after = probes.read()
    return Released(before, after, already, trimmed, held_by, () if already else live_outputs())


def close(session: Any) -> tuple[str, ...]:
    """Destroy the native session behind a Python one, without trimming; what still holds it, if something does."""
    if hasattr(session, "pid") and callable(getattr(session, "close", None)):
        session.close()
        return ()
    native = getattr(session, "_sess", None)
    if native is None:
        raise UsageError(f"a {type(session).__name__} is not a session of ONNX Runtime")
    gone = weakref.ref(native)
    own = vars(session)
    for name in [name for name, value in own.items() if _is_native(value) or name == "_model_bytes"]:
        own[name] = None
    del native
    for name in dir(type(session)):
        if not name.startswith("__") and isinstance(getattr(type(session), name, None), types.FunctionType):
            own[name] = _refuse
    own[_MARK] = True
    gc.collect()
    alive = gone()
    return () if alive is None else holders(alive)


def is_released(session: Any) -> bool:
    """Whether this session was released or closed before."""
    return bool(getattr(session, _MARK, False) or getattr(session, "closed", False))


def difference(before: Bytes, after: Bytes) -> Bytes:
    """How much less it is now."""
    if isinstance(before, Unknown):
        return before
    return after if isinstance(after, Unknown) else before - after


def _is_native(value: Any) -> bool:
    """Whether a value comes from the runtime's native part, is a method of it, or a list with such values.

    Bindings and OrtValues are thin covers of native ones. Another session is none of ours, even if this one holds it.
    """
    if isinstance(value, list | tuple):
        return any(map(_is_native, value))
    kind = type(getattr(value, "__self__", value))
    native = kind.__module__ == "onnxruntime.capi.onnxruntime_pybind11_state"
    return native or (kind.__module__.startswith("onnxruntime.") and kind.__name__ in ("IOBinding", "OrtValue"))


def _refuse(*_: Any, **__: Any) -> None:
    raise SessionClosed("this session was released", hint="make a new one")
