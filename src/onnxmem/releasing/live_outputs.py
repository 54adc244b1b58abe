"""Who still holds ONNX Runtime's memory? Outputs, above all: an output that is alive keeps its session's whole arena.

ONNX Runtime gives outputs as arrays over its own memory. A chunk of an arena cannot be freed alone, and the arena lives
until its last chunk is free: 2 MiB that someone keeps can hold 400 MiB, long after the session is gone.

Python cannot list the arrays that exist. Those are found that a name or a container in reach refers to: the variables
of running functions and of modules, and everything the garbage collector knows.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np

from onnxmem._native.arena import tracked_objects
from onnxmem.documents import Record, stored
from onnxmem.units import format_bytes

_MOST = 20
_DEEPEST = 4
_BATCH = 500
_SIMPLE = (str, int, type(None), bool, float, types.FunctionType, type, types.BuiltinFunctionType, types.ModuleType)
"""What most things are, and holds nothing."""


@dataclass(frozen=True, kw_only=True)
class LiveOutput(Record):
    """An array or OrtValue over memory of ONNX Runtime."""

    where: str
    """Which variable or container refers to it."""
    size: int = stored("bytes")
    """Bytes it shows; it may keep many more."""
    kind: TensorKind
    """What the output was, of which it may be a part."""

    def __str__(self) -> str:
        return f"{self.where} ({format_bytes(self.size)})"


class TensorKind(NamedTuple):
    """A type and a shape; dimensions that are no numbers fit any."""

    dtype: str
    shape: tuple[int | str | None, ...] = ()

    def fits(self, declared: TensorKind) -> bool:
        """Whether an output of this kind may be one that was declared so."""
        return (
            self.dtype == declared.dtype
            and len(self.shape) == len(declared.shape)
            and all(a == b for a, b in zip(self.shape, declared.shape, strict=True) if isinstance(b, int))
        )


class Outputs:
    """Which of the live outputs are a session's? Made before it is closed, as it cannot be asked afterwards.

    An output does not know its session. It is this one's if it looks like one of its outputs, like none of any other
    session that is there, and was not found when another one was released: all others are nobody's.
    """

    _before: ClassVar[list[weakref.ref[Any]]] = []
    """Outputs of sessions that were released before."""

    def __init__(self, session: Any) -> None:
        self._own = _declared(session)
        self._others = [kind for other in _sessions() if other is not session for kind in _declared(other)]

    def alive(self) -> tuple[LiveOutput, ...]:
        """Those of the session that are still referred to, as far as they can be told; the largest first."""
        Outputs._before = [root for root in Outputs._before if root() is not None]
        own = [
            each
            for each in _find()
            if not any(each.root is root for root in Outputs._before)  # equal are arrays with equal numbers
            and any(map(each.output.kind.fits, self._own))
            and not any(map(each.output.kind.fits, self._others))
        ]
        Outputs._before += [each.root for each in own]
        return _largest(own)


def live_outputs() -> tuple[LiveOutput, ...]:
    """All outputs that are still referred to, of whatever session, as far as they can be found; the largest first."""
    return _largest(_find())


class _Found(NamedTuple):
    output: LiveOutput
    root: weakref.ref[Any]
    """The array or OrtValue that ONNX Runtime gave, of which others may be views."""


def _largest(found: Iterable[_Found]) -> tuple[LiveOutput, ...]:
    return tuple(sorted((each.output for each in found), key=lambda output: -output.size)[:_MOST])


def _find() -> list[_Found]:
    found: dict[int, _Found] = {}
    for container, value in _values():
        _note(found, value, f"a {type(container).__name__}")
    if found:
        # Only now, because it takes longer: what are they called?
        named: dict[int, _Found] = {}
        seen: set[int] = set()
        for name, place, thing in _variables():
            for path, value in _below(thing, name, seen, _DEEPEST):
                _note(named, value, f"{path} {place}")
        found |= named
    return list(found.values())


def _note(found: dict[int, _Found], value: Any, where: str) -> None:
    owner, size, kind, root = _runtime_memory(value)
    # Several arrays may be views of one output: the widest speaks for all.
    if owner and (owner not in found or found[owner].output.size < size):
        found[owner] = _Found(LiveOutput(where=where, size=size, kind=kind), weakref.ref(root))


def _sessions() -> list[Any]:
    """The sessions that are open in this process."""
    runtime = sys.modules.get("onnxruntime")
    if runtime is None:
        return []
    every = (thing for thing in tracked_objects() if issubclass(type(thing), runtime.InferenceSession))
    return [session for session in every if vars(session).get("_sess") is not None]


def _declared(session: Any) -> list[TensorKind]:
    """What its outputs are, as the model declares them; nothing of it refers to the session."""
    try:
        declared = vars(session).get("_outputs_meta") or ()
    except TypeError:
        return []
    return [
        TensorKind(_kind_of(value.type), tuple(value.shape)) for value in declared if value.type.startswith("tensor(")
    ]


def _kind_of(text: str) -> str:
    """The type of `tensor(float)`, as NumPy calls it."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64", "string": "object"}.get(name, name)


def holders(session: Any) -> tuple[str, ...]:
    """What keeps a native session alive, other than the Python object that was cleared: kinds of objects, counted."""
    own = sys._getframe()
    kinds: dict[str, int] = {}
    for holder in gc.get_referrers(session):
        if holder is own or isinstance(holder, types.FrameType):
            continue
        kind = type(holder).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
    # Descriptions of inputs and the like hold their session from C++, where the garbage collector sees nothing.
    return tuple(f"{count} {kind}" for kind, count in kinds.items()) or (
        "an object that came from it, as NodeArg does",
    )


# In what follows no object is asked anything, not even its length: a proxy could answer by doing what it stands for.


def _values() -> Iterator[tuple[Any, Any]]:
    """All arrays and OrtValues in reach, and what refers to them."""
    for frame in _frames():
        for value in _locals(frame).values():
            if _may_hold_memory(value):
                yield frame, value
    every = tracked_objects()  # tuples are found in what refers to them
    # No function inside this one may use `every`: it would hold what is in it, itself included, and so for ever.
    for first in range(0, len(every), _BATCH):
        batch = every[first : first + _BATCH]
        # Asked together first, because nearly all of them refer to nothing of the kind.
        if _any_may_hold_memory(gc.get_referents(*batch)):
            for container in batch:
                yield from _parts(container)


def _parts(container: Any) -> Iterator[tuple[Any, Any]]:
    for part in gc.get_referents(container):
        if _may_hold_memory(part):
            yield container, part
    for holder in _passed_over(gc.get_referents(container)):
        yield from ((holder, part) for part in gc.get_referents(holder) if _may_hold_memory(part))


def _any_may_hold_memory(things: list[Any]) -> bool:
    # The collector's own walk, and no call of ours for each of them: there are hundreds of thousands.
    inside = gc.get_referents(*_passed_over(things))
    kinds = list(map(type, chain(things, inside)))
    return any(map(_kind_may_hold_memory, dict(zip(map(id, kinds), kinds, strict=True)).values()))


def _passed_over(things: list[Any]) -> list[Any]:
    """Those of the things that are not among the tracked, and those in them: tuples, and what can have no cycle."""
    found: dict[int, Any] = {}
    while things:
        fresh = {
            id(thing): thing
            for thing in things
            if (issubclass(type(thing), tuple) or (type(thing) is dict and not gc.is_tracked(thing)))
            and id(thing) not in found
        }
        found |= fresh
        things = gc.get_referents(*fresh.values())
    return list(found.values())


def _variables() -> Iterator[tuple[str, str, Any]]:
    """The variables of running functions and of modules: name, place and value."""
    for frame in _frames():
        for name, value in _locals(frame).items():
            yield name, f"in {frame.f_code.co_name}()", value
    for module, content in list(sys.modules.items()):
        if type(content) is types.ModuleType and not module.startswith("onnxmem."):
            for name, value in list(vars(content).items()):
                yield name, f"of module {module}", value


def _frames() -> Iterator[types.FrameType]:
    """The running functions of all threads, but for those here. At module level, variables are the module's."""
    for frame in sys._current_frames().values():
        at: types.FrameType | None = frame
        while at is not None:
            here = str(at.f_globals.get("__name__", "")).startswith("onnxmem.")
            if at.f_code.co_name != "<module>" and not here:
                yield at
            at = at.f_back


def _locals(frame: types.FrameType) -> dict[str, Any]:
    """A function's variables.

    Before Python 3.13, asking leaves a copy of them at the frame, and with it everything they refer to, until the
    function ends: looking for what keeps memory would keep it. That copy is emptied, unless someone else has it too.
    """
    asked = frame.f_locals
    found = dict(asked)
    function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if type(asked) is dict and function and sys.getrefcount(asked) <= 3:  # the frame, `asked`, and the argument
        asked.clear()
    return found


def _below(thing: Any, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    """The thing, or the things in it if it is a container; each container once."""
    if _may_hold_memory(thing):
        yield path, thing
        return
    if depth == 0 or id(thing) in seen:
        return
    kind = type(thing)
    parts: list[tuple[Any, Any]] = []
    if kind in (list, tuple):
        parts = list(enumerate(thing))
    elif kind is dict:
        parts = list(thing.items())
    elif kind.__module__ != "builtins":
        with suppress(AttributeError):
            parts = list(object.__getattribute__(thing, "__dict__").items())
    seen.add(id(thing))
    for key, part in parts:
        if type(part) not in _SIMPLE:
            named = f".{key}" if kind not in (list, tuple, dict) else f"[{key!r}]" if type(key) in (str, int) else "[…]"
            yield from _below(part, f"{path}{named}", seen, depth - 1)


def _may_hold_memory(thing: Any) -> bool:
    return _kind_may_hold_memory(type(thing))


def _kind_may_hold_memory(kind: type) -> bool:
    return issubclass(kind, np.ndarray) or (kind.__name__ == "OrtValue" and kind.__module__.startswith("onnxruntime"))


def _runtime_memory(value: Any) -> tuple[int, int, TensorKind, Any]:
    """The owner (0: not ONNX Runtime), the size and the kind of an array's or OrtValue's memory, and what it is of."""
    nothing = 0, 0, TensorKind(""), None
    if not isinstance(value, np.ndarray):
        try:
            # One over memory of the caller's holds nothing of ONNX Runtime's.
            if getattr(value, "_numpy_obj", None) is not None:
                return nothing
            kind = TensorKind(_kind_of(value.data_type()), tuple(value.shape()))
            return value.data_ptr(), value.tensor_size_in_bytes(), kind, value
        except Exception:  # not a tensor
            return nothing
    whole = value
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    # ONNX Runtime's owner is a capsule without a name.
    if type(whole.base).__name__ != "PyCapsule" or _capsule_name(ctypes.py_object(whole.base)) is not None:
        return nothing
    return id(whole.base), value.nbytes, TensorKind(whole.dtype.name, whole.shape), whole


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes, _capsule_name.restype = [ctypes.py_object], ctypes.c_char_p
