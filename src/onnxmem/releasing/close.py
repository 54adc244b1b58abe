"""How is a session destroyed that others may hold? By taking out of the Python object what makes it a session."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

from onnxmem.errors import SessionClosed, UsageError
from onnxmem.releasing.live_outputs import holders
from onnxmem.session.mapped import closing

_MARK = "_onnxmem_released"
_HEAVY = ("_model_bytes", "_planner")
"""What else takes memory: the model that a session was made from, and the arena that it ran in."""


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
    with closing(session):
        for name in [name for name, value in own.items() if _is_native(value) or name in _HEAVY]:
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
