"""What is run, as a table of a TOML file says it: the keys that budgets and sweeps have in common."""

from __future__ import annotations

from typing import Any

from onnxmem.model.bindings import parse_shape
from onnxmem.session.modes import MODES
from onnxmem.toml_tables import Key, number, one_of, one_or_more, table_of, text

MODE = one_of(tuple(mode.name for mode in MODES))


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return parse_shape(f"{name}={value}")[1]
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(number(0), value))


def _range(_name: str, value: Any) -> tuple[float, float]:
    low, high = map(float, value)
    if not low < high:
        raise ValueError
    return low, high


def _setting(_name: str, value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise TypeError
    return value


MODES_KEY = Key(one_or_more(MODE), f"one of {', '.join(mode.name for mode in MODES)}, or a list of them")
RUN_KEYS = {
    "threads": Key(number(1), "a number from 1"),
    "runs": Key(number(1), "a number from 1"),
    "repeat": Key(number(1), "a number from 1"),
    "seed": Key(number(0), "a number from 0"),
    "options": Key(table_of(_setting), "a table of session options"),
    "config": Key(table_of(lambda _, value: text(value)), "a table of configuration entries, which are text"),
}
"""How it is run."""
FEED_KEYS = {
    "shapes": Key(one_or_more(table_of(_shape)), "a table such as {x = [1, 3, 640, 640]}, or a list of them"),
    "ranges": Key(table_of(_range), "a table such as {ids = [0, 30522]}"),
}
"""What it is fed."""
