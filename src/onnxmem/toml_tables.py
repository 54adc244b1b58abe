"""Tables of TOML files, checked whole: whatever is wrong is an error that names the key, and what is allowed there."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.errors import UsageError
from onnxmem.units import parse_bytes


class Key(NamedTuple):
    """How a key is read, and what to say it may be. Reading raises if it cannot be that."""

    read: Callable[[Any], Any]
    allowed: str


def read_toml(file: Path) -> dict[str, Any]:
    """All that a file says."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read '{file}': {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"'{file}' is not a TOML file: {error}") from error


def read_table(file: Path, table: Any, keys: Mapping[str, Key], place: str) -> dict[str, Any]:
    """The values of a table that stands at `place`, which is empty for the file itself."""
    if not isinstance(table, Mapping):
        raise wrong(file, place, table, "a table")
    found = {}
    for name, value in table.items():
        where = f"{place}.{name}" if place else name
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(f"{file}: there is no key '{where}'", hint=f"{hint}allowed: {', '.join(keys)}")
        try:
            found[name] = keys[name].read(value)
        except (TypeError, ValueError, UsageError, KeyError) as error:
            raise wrong(file, where, value, keys[name].allowed) from error
    return found


def wrong(file: Path, place: str, value: object, allowed: str) -> UsageError:
    """What to say of a value that cannot be there."""
    text = str(value)
    return UsageError(
        f"{file}: '{place}' cannot be {text if len(text) < 60 else text[:60] + '…'!r}", hint=f"it must be {allowed}"
    )


def is_there(path: Path) -> bool:
    """Whether a path that a file names exists; one that no file can have does not."""
    try:
        return path.exists()
    except OSError:  # too long
        return False


def text(value: Any) -> str:
    """Some text."""
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def number(least: int) -> Callable[[Any], int]:
    """A whole number from `least`."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise TypeError
        return value

    return read


def size(value: Any) -> int:
    """So many bytes: "300MiB", or a number."""
    found = parse_bytes(value) if isinstance(value, str) else number(1)(value)
    if found < 1:
        raise ValueError
    return found


def one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    """One of these words."""

    def read(value: Any) -> str:
        return names[names.index(value)]

    return read


def one_or_more(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A value, or a list of them."""

    def values(value: Any) -> tuple[Any, ...]:
        listed = value if isinstance(value, list) else [value]
        if not listed:
            raise TypeError
        return tuple(map(read, listed))

    return values


def table_of(read: Callable[[str, Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """A table; `read` reads an entry."""

    def table(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError
        return {name: read(name, entry) for name, entry in value.items()}

    return table


def tables(value: Any) -> list[Any]:
    """A list of tables: [[name]]."""
    if not isinstance(value, list):
        raise TypeError
    return value
