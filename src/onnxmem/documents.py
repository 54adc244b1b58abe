"""Records as JSON and back: a frozen dataclass says once what it holds, and its document follows from that.

A field is stored under its own name, or under the key that `stored("rss_bytes")` gives it. A field that is Unknown is
null, and its reason stands beside it under `unknown`. Reading checks every type: what is wrong is named by its place.
A NamedTuple is stored in the same way: it is the record of processes that must not import much.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Self, TypeVar

from onnxmem.errors import UsageError, excerpt
from onnxmem.unknown import Unknown

Document = Mapping[str, Any]
_T = TypeVar("_T")


def stored(key: str, **options: Any) -> Any:
    """A dataclass field that is stored under this key; `options` are those of `dataclasses.field`."""
    return dataclasses.field(metadata={"key": key}, **options)


def inlined(**options: Any) -> Any:
    """A dataclass field that holds a record, whose keys stand among those of its holder."""
    return dataclasses.field(metadata={"inlined": True}, **options)


class Record:
    """A frozen dataclass that can be saved as a document and comes back equal to what was saved."""

    def document(self) -> dict[str, Any]:
        """As plain data for JSON: its fields, then what is derived from them."""
        return _encode_fields(self, self.derived())

    def derived(self) -> Mapping[str, Any]:
        """Figures that readers of the document want and that follow from the fields; reading ignores them."""
        return {}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The record that `document` wrote."""
        return _decode_record(cls, document, "")


def encode(value: Any) -> Any:  # noqa: PLR0911  one line for each type
    """Any value that records hold, as plain data."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(getattr(value, "document", None)):
        return value.document()
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return _encode_fields(value)
    if isinstance(value, Mapping):
        return _known({str(encode(key)): item for key, item in value.items()})
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return value.tolist()
    return [encode(item) for item in value]


def decode(kind: Any, value: Any, place: str = "") -> Any:  # noqa: PLR0911  one line for each type
    """The value of this type that `encode` wrote; `place` is where it stands in its document."""
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(arguments, value, place)
    if origin is typing.Literal:
        return _check(value in arguments, value, place, value)
    if origin is tuple:
        return _decode_tuple(arguments, value, place)
    if origin is not None and issubclass(origin, Mapping):
        _check(isinstance(value, Mapping), None, place, value)
        return {decode(arguments[0], key, place): decode(arguments[1], v, f"{place}.{key}") for key, v in value.items()}
    if origin is not None and issubclass(origin, Sequence):
        return _decode_tuple((arguments[0], ...), value, place)
    return _decode_plain(kind, value, place)


def _decode_plain(kind: Any, value: Any, place: str) -> Any:  # noqa: PLR0911  one line for each type
    if kind is float:
        good = isinstance(value, float) or _is_integer(value)
        return _check(good, float(value) if good else None, place, value)
    if kind is int:
        return _check(_is_integer(value), value, place, value)
    if kind in (str, bool):
        return _check(isinstance(value, kind), value, place, value)
    if kind in (None, type(None)):
        return _check(value is None, None, place, value)
    if issubclass(kind, Enum):
        return _check(value in {each.value for each in kind}, value, place, value) and kind(value)
    if issubclass(kind, os.PathLike):
        return kind(_check(isinstance(value, str), value, place, value))
    read: Any = getattr(kind, "from_document", Record.from_document)
    if read.__func__ is not vars(Record)["from_document"].__func__:  # it reads itself
        return read(_check(isinstance(value, Mapping), value, place, value))
    return _decode_record(kind, value, place)


def _is_integer(value: Any) -> bool:
    """One that can be computed with: Python reads larger ones than it makes floats of."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _decode_union(kinds: Sequence[Any], value: Any, place: str) -> Any:
    # Texts and not errors: those hold on to the frames below the one that is here, and so to whoever reads a document.
    reasons = []
    for kind in kinds:
        if kind is Unknown:
            continue
        try:
            return decode(kind, value, place)
        except UsageError as error:
            reasons.append(str(error))
    raise UsageError(reasons[0])


def _decode_tuple(kinds: Sequence[Any], value: Any, place: str) -> tuple[Any, ...]:
    _check(isinstance(value, list | tuple), None, place, value)
    if len(kinds) == 2 and kinds[1] is ...:
        kinds = [kinds[0]] * len(value)
    _check(len(kinds) == len(value), None, place, value)
    return tuple(decode(kind, item, f"{place}[{k}]") for k, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _decode_record(kind: type[_T], value: Any, place: str) -> _T:
    _check(isinstance(value, Mapping), None, place, value)
    unknown = value.get("unknown")
    reasons = unknown if isinstance(unknown, Mapping) else {}
    found = {}
    for field in _fields(kind):
        if field.inlined:
            found[field.name] = decode(field.kind, value, place)
            continue
        where = f"{place}.{field.key}" if place else field.key
        if value.get(field.key) is None and field.key in reasons and field.key != "unknown":
            found[field.name] = Unknown(str(reasons[field.key]))
        elif field.key in value:
            found[field.name] = decode(field.kind, value[field.key], where)
        elif not field.optional:
            raise UsageError(f"it has no '{where}'")
    return kind(**found)


def _check(good: bool, result: Any, place: str, value: Any) -> Any:
    if not good:
        raise UsageError(f"'{place or 'the document'}' cannot be {excerpt(value, 40)}")
    return result


def _encode_fields(value: Any, more: Document = types.MappingProxyType({})) -> dict[str, Any]:
    fields = _fields(type(value))
    plain = _known({**{each.key: getattr(value, each.name) for each in fields if not each.inlined}, **more})
    for each in fields:
        if each.inlined:
            inner = encode(getattr(value, each.name))
            reasons = {**inner.get("unknown", {}), **plain.get("unknown", {})}
            plain = {**inner, **plain, **({"unknown": reasons} if reasons else {})}
    return plain


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data, with the reasons for what is not known beside it."""
    reasons = {key: value.reason for key, value in values.items() if isinstance(value, Unknown)}
    plain = {key: None if isinstance(value, Unknown) else encode(value) for key, value in values.items()}
    return {**plain, "unknown": reasons} if reasons else plain


class _Field(typing.NamedTuple):
    name: str
    key: str
    kind: Any
    optional: bool
    inlined: bool = False


def _fields(kind: Any) -> tuple[_Field, ...]:
    return _fields_of(kind)  # whose cache wants to be told that types are hashable


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...]:
    hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
    if hasattr(kind, "_fields"):
        return tuple(_Field(name, name, hints[name], name in kind._field_defaults) for name in kind._fields)
    return tuple(
        _Field(
            each.name,
            each.metadata.get("key", each.name),
            hints[each.name],
            each.default is not missing or each.default_factory is not missing,
            each.metadata.get("inlined", False),
        )
        for each in dataclasses.fields(kind)
        if each.init
    )
