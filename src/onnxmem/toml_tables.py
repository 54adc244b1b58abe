"""Tables of TOML files, checked whole: whatever is wrong is an error that names the key, and what is allowed there."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.errors import UsageError, excerpt
from onnxmem.units import format_bytes, parse_bytes

_LARGEST, _MOST_DOTS = 64 * 1024, 1000
_INTEGERS = 2**63
"""TOML's own limit."""


class Key(NamedTuple):
    """How a key is read, and what to say it may be. Reading raises if it cannot be that."""

    read: Callable[[Any], Any]
    allowed: str


def read_toml(file: Path) -> dict[str, Any]:
    """All that a file says. It may be a stranger's, and takes no long time to read."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise UsageError(
                f"'{file}' has more than {format_bytes(_LARGEST)}, which is enough for settings",
                hint="keep them in a TOML file of their own",
            )
        written = content.decode()
        # Names in names take Python the square of their number.
        if any(line.count(".") > _MOST_DOTS for line in written.split("\n")):
            raise UsageError(f"'{file}' has a line with more than {_MOST_DOTS:,} dots", hint="break it into several")
        found = tomllib.loads(written)
    except OSError as error:
        raise UsageError(f"cannot read '{file}': {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"'{file}' is not a TOML file: {error}") from error
    except ValueError as error:  # of so many digits that Python does not read it
        raise _too_large(file) from error
    except RecursionError as error:
        raise UsageError(f"'{file}' is nested too deeply") from error
    if any(not -_INTEGERS <= each < _INTEGERS for each in _integers(found)):
        raise _too_large(file)
    return found


def _too_large(file: Path) -> UsageError:
    return UsageError(f"'{file}' is not a TOML file: an integer in it has more than 64 bits")


def _integers(value: Any) -> Iterator[int]:
    left = [value]
    while left:
        match left.pop():
            case dict() as table:
                left += table.values()
            case list() as values:
                left += values
            case int() as number:
                yield number


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
        except (TypeError, ValueError, UsageError, KeyError, OverflowError, RecursionError) as error:
            raise wrong(file, where, value, keys[name].allowed) from error
    return found


def wrong(file: Path, place: str, value: object, allowed: str) -> UsageError:
    """What to say of a value that cannot be there."""
    return UsageError(f"{file}: '{place}' cannot be {excerpt(value, 60)}", hint=f"it must be {allowed}")


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
