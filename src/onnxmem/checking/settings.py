"""The budgets of a project: the `[tool.onnxmem]` table of its pyproject.toml, as cases. Checked whole, before any work.

[tool.onnxmem]
threads = 1                      # what all checks have in common

[[tool.onnxmem.check]]
model = "models/detector.onnx"   # seen from the file's folder
mode = ["stock", "planned"]
shapes = {x = [1, 3, 640, 640]}
budget = {stock = "300MiB", planned = "200MiB"}
"""

from __future__ import annotations

import difflib
import itertools
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.checking.case import WAYS, Case
from onnxmem.errors import UsageError
from onnxmem.history.figures import FIGURES
from onnxmem.history.tolerance import Tolerance
from onnxmem.measurement.scenario import Scenario
from onnxmem.model.bindings import parse_shape
from onnxmem.session.modes import MODES
from onnxmem.units import parse_bytes

TABLE = "tool.onnxmem"
_FILE = "pyproject.toml"
_MODES = tuple(mode.name for mode in MODES)
_FIGURES = tuple(figure.name for figure in FIGURES)


@dataclass(frozen=True)
class Settings:
    """What a table says."""

    file: Path
    cases: tuple[Case, ...]
    baseline: str | None = None
    """A file, or the word "history"."""
    history: Path | None = None

    def about(self, model: Path) -> tuple[Case, ...]:
        """The cases of one model; an error if there are none."""
        found = tuple(case for case in self.cases if case.scenario.model.resolve() == model.resolve())
        if not found:
            models = dict.fromkeys(str(case.scenario.model) for case in self.cases)
            raise UsageError(
                f"'{self.file}' has no budget for '{model}'",
                hint=f"give --budget 300MiB; the table has: {', '.join(models)}",
            )
        return found


class _Key(NamedTuple):
    """How a key is read, and what to say it may be."""

    read: Callable[[Any], Any]
    allowed: str


def find_settings(file: Path | None = None) -> Settings:
    """The table of this file, or of the nearest pyproject.toml that has one, from the current folder upwards."""
    if file is not None:
        return read_settings(file)
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = Path(os.path.relpath(folder)) / _FILE
        if path.is_file() and _table(path) is not None:
            return read_settings(path)
    raise UsageError(
        f"there is no [{TABLE}] table in a {_FILE} here or above",
        hint="name a model and its --budget, or write the table: docs/check.md",
    )


def read_settings(file: Path) -> Settings:
    """The table of a file; whatever is wrong with it is an error that names the key, and what is allowed."""
    table = _table(file)
    if table is None:
        raise UsageError(f"'{file}' has no [{TABLE}] table", hint="write one: docs/check.md")
    own = _read(file, table, {**_COMMON, **_ONCE}, TABLE)
    checks = own.pop("check", ())
    if not checks:
        raise UsageError(f"{file}: '{TABLE}.check' is empty", hint=f"write [[{TABLE}.check]], with model and budget")
    baseline, history = own.pop("baseline", None), own.pop("history", None)
    cases: list[Case] = []
    for number, check in enumerate(checks):
        place = f"{TABLE}.check[{number}]"
        given = {**own, **_read(file, check, {**_COMMON, **_EACH}, place)}
        cases += _cases(file, given, place)
    against = baseline if baseline in (None, "history") else str(file.parent / baseline)
    return Settings(file, tuple(cases), against, None if history is None else file.parent / history)


def _table(file: Path) -> Mapping[str, Any] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read '{file}': {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"'{file}' is not a TOML file: {error}") from error
    tool = content.get("tool")
    table = tool.get("onnxmem") if isinstance(tool, Mapping) else None
    if table is not None and not isinstance(table, Mapping):
        raise _wrong(file, TABLE, table, "a table")
    return table


def _read(file: Path, table: Any, keys: Mapping[str, _Key], place: str) -> dict[str, Any]:
    """The values of a table."""
    if not isinstance(table, Mapping):
        raise _wrong(file, place, table, "a table")
    found = {}
    for name, value in table.items():
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(f"{file}: there is no key '{place}.{name}'", hint=f"{hint}allowed: {', '.join(keys)}")
        try:
            found[name] = keys[name].read(value)
        except (TypeError, ValueError, UsageError, KeyError) as error:
            raise _wrong(file, f"{place}.{name}", value, keys[name].allowed) from error
    return found


def _wrong(file: Path, place: str, value: object, allowed: str) -> UsageError:
    text = str(value)
    return UsageError(
        f"{file}: '{place}' cannot be {text if len(text) < 60 else text[:60] + '…'!r}", hint=f"it must be {allowed}"
    )


def _cases(file: Path, given: dict[str, Any], place: str) -> Iterable[Case]:
    """All combinations of modes and sizes of one check."""
    if "model" not in given:
        raise UsageError(f"{file}: '{place}' has no 'model'", hint='for example: model = "models/detector.onnx"')
    model = file.parent / given.pop("model")
    if not model.exists():
        raise UsageError(f"{file}: '{place}.model' is '{model}', and there is no such file")
    budgets = given.pop("budget", None)
    modes = given.pop("mode", None) or (tuple(budgets) if isinstance(budgets, Mapping) else (None,))
    if isinstance(budgets, Mapping) and set(budgets) != set(modes):
        raise UsageError(
            f"{file}: '{place}.budget' has budgets for {', '.join(budgets)}, and the modes are {', '.join(modes)}",
            hint="give one for each mode, or one for all",
        )
    sizes, dims = given.pop("shapes", ({},)), given.pop("dims", ({},))
    inputs = given.pop("inputs", None)
    kept = {name: given.pop(name) for name in ("name", "figure", "by", "repeat", "tolerance") if name in given}
    for mode, shapes, numbers in itertools.product(modes, sizes, dims):
        try:
            chosen = {"mode": mode, "shapes": shapes, "dims": numbers}
            scenario = Scenario.of({**given, **chosen, "model": model, "inputs": inputs and file.parent / inputs})
            budget = budgets[mode] if isinstance(budgets, Mapping) else budgets
            yield Case(scenario=scenario, budget=budget, place=f"{file}: {place}", **kept)
        except UsageError as error:
            raise UsageError(f"{file}: '{place}': {error}", hint=error.hint) from error


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _number(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise TypeError
        return value

    return read


def _one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        return names[names.index(value)]

    return read


def _modes(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        raise TypeError
    return tuple(map(_one_of(_MODES), listed))


def _size(value: Any) -> int:
    size = parse_bytes(value) if isinstance(value, str) else _number(1)(value)
    if size < 1:
        raise ValueError
    return size


def _budget(value: Any) -> int | dict[str, int]:
    if not isinstance(value, dict):
        return _size(value)
    if not value:
        raise ValueError
    return {_one_of(_MODES)(mode): _size(each) for mode, each in value.items()}


def _several(read: Callable[[str, Any], Any]) -> Callable[[Any], tuple[dict[str, Any], ...]]:
    """A table, or a list of tables for several sizes; `read` reads an entry."""

    def tables(value: Any) -> tuple[dict[str, Any], ...]:
        listed = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(each, dict) for each in listed):
            raise TypeError
        return tuple({name: read(name, entry) for name, entry in each.items()} for each in listed)

    return tables


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return parse_shape(f"{name}={value}")[1]
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_number(0), value))


def _range(_name: str, value: Any) -> tuple[float, float]:
    low, high = map(float, value)
    if not low < high:
        raise ValueError
    return low, high


def _setting(_name: str, value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise TypeError
    return value


def _one_table(read: Callable[[str, Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def table(value: Any) -> dict[str, Any]:
        (only,) = _several(read)(value)
        return only

    return table


def _tables(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


_COMMON = {
    "budget": _Key(_budget, 'a size such as "300MiB", or a table of sizes by mode'),
    "mode": _Key(_modes, f"one of {', '.join(_MODES)}, or a list of them"),
    "figure": _Key(_one_of(_FIGURES), f"one of {', '.join(_FIGURES)}"),
    "by": _Key(_one_of(WAYS), f"one of {', '.join(WAYS)}"),
    "threads": _Key(_number(1), "a number from 1"),
    "runs": _Key(_number(1), "a number from 1"),
    "repeat": _Key(_number(1), "a number from 1"),
    "seed": _Key(_number(0), "a number from 0"),
    "tolerance": _Key(lambda value: Tolerance.parse(_text(value)), 'a part such as "5%", or a size such as "4MiB"'),
    "options": _Key(_one_table(_setting), "a table of session options"),
    "config": _Key(_one_table(lambda _, value: _text(value)), "a table of configuration entries, which are text"),
}
"""What a check may say, and the table for all of them."""
_EACH = {
    "name": _Key(_text, "a text"),
    "model": _Key(_text, "the path of a model, seen from the folder of this file"),
    "shapes": _Key(_several(_shape), "a table such as {x = [1, 3, 640, 640]}, or a list of them"),
    "dims": _Key(_several(lambda _, value: _number(1)(value)), "a table such as {batch = 8}, or a list of them"),
    "inputs": _Key(_text, "the path of an .npz file"),
    "ranges": _Key(_one_table(_range), "a table such as {ids = [0, 30522]}"),
}
_ONCE = {
    "check": _Key(_tables, f"a list of tables: [[{TABLE}.check]]"),
    "baseline": _Key(_text, 'the path of a saved result, or "history"'),
    "history": _Key(_text, "the path of an SQLite file"),
}
