"""How does a mode become onnxruntime's SessionOptions?"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from onnxmem.errors import UsageError
from onnxmem.session import modes
from onnxmem.session.forked import renew_in_children


def apply(options: Any, settings: Mapping[str, modes.Setting], config: Mapping[str, str]) -> None:
    """Set attributes (enumerations by the name of the value) and configuration entries."""
    set_attributes(options, settings, "session")
    there = entries(options, config)
    for name, value in config.items():
        if there.get(name) != value:  # saying it twice is logged as a warning
            options.add_session_config_entry(name, value)


def set_attributes(target: Any, settings: Mapping[str, Any], kind: str) -> None:
    """Set attributes of session or run options, enumerations by the name of the value; `kind` is for the errors."""
    known = [name for name in dir(type(target)) if isinstance(getattr(type(target), name), property)]
    for name, value in settings.items():
        if name not in known:
            raise UsageError(f"there is no {kind} option '{name}'", hint=f"known: {', '.join(known)}")
        members = getattr(type(getattr(target, name)), "__members__", {})
        if members and isinstance(value, str) and value not in members:
            raise UsageError(f"'{name}' cannot be '{value}'", hint=f"known: {', '.join(members)}")
        try:
            setattr(target, name, members[value] if members and isinstance(value, str) else value)
        except TypeError as error:
            raise UsageError(f"{kind} option '{name}' cannot be {value!r}") from error


def silent(options: Any) -> Any:
    """The same session or run options, with which ONNX Runtime logs no errors: they are raised, and said once."""
    options.log_severity_level = 4
    return options


@contextmanager
def applied(options: Any, settings: Mapping[str, modes.Setting], config: Mapping[str, str]) -> Iterator[None]:
    """The options with these settings while the block runs: the caller may use the object for other sessions, too."""
    before = {name: getattr(options, name) for name in settings if hasattr(options, name)}
    # An entry cannot be taken back; all that a mode sets are switches, and "0" is as if it had never been there.
    entered = {**dict.fromkeys(config, "0"), **entries(options, config)}
    try:
        apply(options, settings, config)
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)
        apply(options, {}, entered)


class _Lent:
    """Objects of the caller that are being changed, by identity: other threads may use the same ones."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked child: whoever was in here does not exist there."""
        self.lock = threading.RLock()  # reentrant, as a handler of signals may come in between
        self.alone: dict[int, tuple[Any, int]] = {}
        self.entries: dict[tuple[int, str], tuple[str, int]] = {}


_LENT = _Lent()
renew_in_children(_LENT)


@contextmanager
def alone(options: Any) -> Iterator[None]:
    """Nobody else makes a session with this object meanwhile: what one takes back would be missing from the other."""
    key = id(options)
    with _LENT.lock:
        mine, users = _LENT.alone.get(key, (threading.RLock(), 0))
        _LENT.alone[key] = mine, users + 1
    try:
        with mine:
            yield
    finally:
        with _LENT.lock:
            _, users = _LENT.alone.pop(key, (mine, 0))
            if users > 1:
                _LENT.alone[key] = mine, users - 1


def run_entry(run_options: Any, name: str, unset: str = "") -> str:
    """An entry of run options, also while somebody has taken it out."""
    with _LENT.lock:
        if (taken := _LENT.entries.get((id(run_options), name))) is not None:
            return taken[0]
        try:
            return str(run_options.get_run_config_entry(name))
        except RuntimeError:  # that is how it says "not set"
            return unset


@contextmanager
def without_run_entry(run_options: Any, name: str) -> Iterator[None]:
    """The entry is empty while anybody is in here: the first one takes it out, and the last one puts it back."""
    key = id(run_options), name
    with _LENT.lock:
        asked, users = _LENT.entries.get(key) or (run_entry(run_options, name), 0)
        if not users:
            run_options.add_run_config_entry(name, "")
        _LENT.entries[key] = asked, users + 1
    try:
        yield
    finally:
        with _LENT.lock:
            _, users = _LENT.entries.pop(key, (asked, 0))
            if users > 1:
                _LENT.entries[key] = asked, users - 1
            else:
                run_options.add_run_config_entry(name, asked)


def entries(options: Any, names: Iterable[str]) -> dict[str, str]:
    """Those of these configuration entries that are set."""
    values = {}
    for name in names:
        try:
            values[name] = options.get_session_config_entry(name)
        except RuntimeError:  # that is how it says "not set"
            continue
    return values


WATCHED = (modes.DISABLE_PREPACKING, modes.MAP_ORT, modes.ORT_BYTES, modes.ORT_INITIALIZERS, modes.SAVE_PREPACKED)
"""The entries that can make a session unsafe."""
