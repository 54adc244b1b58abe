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

import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.checking.case import WAYS, Case
from onnxmem.errors import UsageError
from onnxmem.history.figures import FIGURES
from onnxmem.history.tolerance import Tolerance
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.scenario_table import FEED_KEYS, MODE, MODES_KEY, RUN_KEYS
from onnxmem.toml_tables import (
    Key,
    is_there,
    number,
    one_of,
    one_or_more,
    read_table,
    read_toml,
    size,
    table_of,
    tables,
    text,
    wrong,
)

TABLE = "tool.onnxmem"
_FILE = "pyproject.toml"
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
        f"no --budget was given, and no {_FILE} here or above has a [{TABLE}] table",
        hint="give a model and its --budget 300MiB, or write the table: docs/check.md",
    )


def read_settings(file: Path) -> Settings:
    """The table of a file; whatever is wrong with it is an error that names the key, and what is allowed."""
    table = _table(file)
    if table is None:
        raise UsageError(f"'{file}' has no [{TABLE}] table", hint="write one: docs/check.md")
    own = read_table(file, table, {**_COMMON, **_ONCE}, TABLE)
    checks = own.pop("check", ())
    if not checks:
        raise UsageError(f"{file}: '{TABLE}.check' is empty", hint=f"write [[{TABLE}.check]], with model and budget")
    baseline, history = own.pop("baseline", None), own.pop("history", None)
    cases: list[Case] = []
    for position, check in enumerate(checks):
        place = f"{TABLE}.check[{position}]"
        given = {**own, **read_table(file, check, {**_COMMON, **_EACH}, place)}
        cases += _cases(file, given, place)
    against = baseline if baseline in (None, "history") else str(file.parent / baseline)
    return Settings(file, tuple(cases), against, None if history is None else file.parent / history)


def _table(file: Path) -> Mapping[str, Any] | None:
    tool = read_toml(file).get("tool")
    table = tool.get("onnxmem") if isinstance(tool, Mapping) else None
    if table is not None and not isinstance(table, Mapping):
        raise wrong(file, TABLE, table, "a table")
    return table


def _cases(file: Path, given: dict[str, Any], place: str) -> Iterable[Case]:
    """All combinations of modes and sizes of one check."""
    if "model" not in given:
        raise UsageError(f"{file}: '{place}' has no 'model'", hint='for example: model = "models/detector.onnx"')
    model = file.parent / given.pop("model")
    if not is_there(model):
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


def _budget(value: Any) -> int | dict[str, int]:
    if not isinstance(value, dict):
        return size(value)
    if not value:
        raise ValueError
    return {MODE(mode): size(each) for mode, each in value.items()}


_COMMON = {
    "budget": Key(_budget, 'a size such as "300MiB", or a table of sizes by mode'),
    "mode": MODES_KEY,
    "figure": Key(one_of(_FIGURES), f"one of {', '.join(_FIGURES)}"),
    "by": Key(one_of(WAYS), f"one of {', '.join(WAYS)}"),
    **RUN_KEYS,
    "tolerance": Key(lambda value: Tolerance.parse(text(value)), 'a part such as "5%", or a size such as "4MiB"'),
}
"""What a check may say, and the table for all of them."""
_EACH = {
    "name": Key(text, "a text"),
    "model": Key(text, "the path of a model, seen from the folder of this file"),
    **FEED_KEYS,
    "dims": Key(
        one_or_more(table_of(lambda _, value: number(1)(value))), "a table such as {batch = 8}, or a list of them"
    ),
    "inputs": Key(text, "the path of an .npz file"),
}
_ONCE = {
    "check": Key(tables, f"a list of tables: [[{TABLE}.check]]"),
    "baseline": Key(text, 'the path of a saved result, or "history"'),
    "history": Key(text, "the path of an SQLite file"),
}
