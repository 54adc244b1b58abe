"""Records that processes send to each other as JSON. They cost next to no memory: the receiver's may be measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Message(tuple[Any, ...]):
    """A frozen record like a NamedTuple, without the functions that Python would compile for each: they are memory."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls.__match_args__ = cls._fields  # type: ignore[attr-defined,misc]
        cls._field_defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}
        for place, name in enumerate(cls._fields):
            setattr(cls, name, property(itemgetter(place)))

    def __new__(cls, *values: Any, **named: Any) -> Self:
        if len(values) == len(cls._fields):
            return super().__new__(cls, values)
        fields = {**cls._field_defaults, **dict(zip(cls._fields, values, strict=False)), **named}
        return super().__new__(cls, [fields[name] for name in cls._fields])

    def _replace(self, **named: Any) -> Self:
        return type(self)(**{**dict(zip(self._fields, self, strict=True)), **named})


# Made once: `json.dumps` would make one for each message, and a call of an isolated session is two of them.
_write = json.JSONEncoder(separators=(",", ":")).encode


def encode(message: Message) -> bytes:
    """A message as JSON on one line: its name, then its fields."""
    return _write((type(message).__name__, *message)).encode()


def decode(text: bytes | bytearray, kinds: Mapping[str, type[Message]]) -> Any:
    """The message of one of these kinds that `encode` wrote. Its tuples have become lists; `frozen` helps."""
    name, *values = json.loads(text.decode())
    return kinds[name](*values)


def frozen(value: Any) -> Any:
    """The same with tuples for lists, all the way down."""
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list) else value
