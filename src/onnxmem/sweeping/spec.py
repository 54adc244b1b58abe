"""What is to be swept: models, sizes, modes and verbs, from a TOML file or from what was typed.

store = "nightly.sqlite"         # seen from this file's folder
verbs = ["estimate", "measure"]
modes = ["stock", "planned"]     # what all models have in common

[[models]]
path = "models/*.onnx"
dims = {batch = [1, 4, 16]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from onnxmem.deadline import check_time_limit
from onnxmem.errors import UsageError
from onnxmem.measurement.scenario import check_memory_limit, check_threads
from onnxmem.measurement.scenario_table import FEED_KEYS, MODES_KEY, RUN_KEYS
from onnxmem.session.modes import find_mode
from onnxmem.sharing.share import worker_counts
from onnxmem.sweeping.cell import Settings
from onnxmem.sweeping.verbs import VERBS, find_verb
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
)

STORE = "sweep.sqlite"
_VERBS = tuple(verb.name for verb in VERBS)
_PATTERN = "*?["


@dataclass(frozen=True, kw_only=True)
class Group:
    """Models that are asked the same."""

    models: tuple[Path, ...]
    verbs: tuple[str, ...] = ("measure",)
    modes: tuple[str | None, ...] = (None,)
    """None is stock, and a package's own."""
    shapes: tuple[Mapping[str, tuple[int, ...]] | str, ...] = ({},)
    """One for each size; a text is for the only input of a model."""
    dims: Mapping[str, tuple[int, ...]]
    """All numbers that each dimension takes; of several dimensions all combinations."""
    inputs: tuple[Path, ...] = ()
    """Files of arrays, one for each size; without them inputs are generated."""
    settings: Settings
    time_limit: float | None = None
    """Seconds for each cell."""
    place: str = ""
    """Where it is written, for errors."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """All of it, and where results go."""

    groups: tuple[Group, ...]
    store: Path


def read_spec(file: Path) -> Spec:
    """A specification; whatever is wrong with it is an error that names the key, and what is allowed."""
    own = read_table(file, read_toml(file), {**_ONCE, **_COMMON}, "")
    listed, store = own.pop("models", ()), own.pop("store", STORE)
    if not listed:
        raise UsageError(f"{file}: it names no models", hint='write [[models]], with path = "models/*.onnx"')
    groups = []
    for position, table in enumerate(listed):
        place = f"models[{position}]"
        given = {**own, **read_table(file, table, {**_EACH, **_COMMON}, place)}
        if "path" not in given:
            raise UsageError(f"{file}: '{place}' has no 'path'", hint='for example: path = "models/*.onnx"')
        paths = given.pop("path")
        if "inputs" in given:
            given["inputs"] = expand(given["inputs"], file.parent, f"{file}: '{place}.inputs'")
        groups.append(make_group(expand(paths, file.parent, f"{file}: '{place}.path'"), f"{file}: '{place}'", **given))
    return Spec(groups=tuple(groups), store=file.parent / store)


def make_group(models: Sequence[Path], place: str = "", **given: Any) -> Group:
    """A group from what was given of it: fields of a group, and of its settings."""
    names = {each.name for each in fields(Settings)}
    own = {name: value for name, value in given.items() if name not in names}
    try:
        for verb in own.get("verbs", ()):
            find_verb(verb)
        for mode in own.get("modes", ()):
            find_mode(mode)
        settings = Settings(**{name: value for name, value in given.items() if name in names})
        check_threads(settings.threads)
        check_memory_limit(settings.memory_limit, settings.device)
        if own.get("time_limit") is not None:
            check_time_limit(own["time_limit"])
        worker_counts(settings.workers)
    except UsageError as error:
        raise UsageError(f"{place}: {error}" if place else str(error), hint=error.hint) from error
    return Group(models=tuple(models), place=place, settings=settings, **{"dims": {}, **own})


def expand(paths: Sequence[str], folder: Path, place: str = "") -> tuple[Path, ...]:
    """The files that paths and patterns name, seen from a folder; one that names none is an error."""
    found: dict[Path, None] = {}
    for each in paths:
        plain = folder / each
        if is_there(plain) or not any(sign in each for sign in _PATTERN):
            matches = [plain]
        else:
            # A pattern of an absolute path is one of the root's.
            root = Path(Path(each).anchor) if Path(each).is_absolute() else folder
            try:
                matches = sorted(root.glob(str(Path(each).relative_to(root)) if Path(each).is_absolute() else each))
            except (ValueError, NotImplementedError, OSError) as error:
                at = f"{place} is '{each}'," if place else f"'{each}' is"
                raise UsageError(f"{at} no pattern of paths: {error}") from error
        if not matches or not is_there(matches[0]):
            at = f"{place} is '{each}', and" if place else f"cannot read '{each}':"
            raise UsageError(f"{at} there is no such file")
        found |= dict.fromkeys(matches)
    return tuple(found)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not float(value) > 0:
        raise TypeError
    return float(value)


_COMMON = {
    "verbs": Key(one_or_more(one_of(_VERBS)), f"one of {', '.join(_VERBS)}, or a list of them"),
    "modes": MODES_KEY,
    **RUN_KEYS,
    "ranges": FEED_KEYS["ranges"],
    "dims": Key(table_of(lambda _, value: one_or_more(number(1))(value)), "a table such as {batch = [1, 4, 16]}"),
    "memory_limit": Key(size, 'a size such as "512MiB"'),
    "device": Key(text, "cpu, cuda, or cuda:1 for the second GPU"),
    "time_limit": Key(_seconds, "a number of seconds, for each cell"),
    "workers": Key(one_or_more(number(1)), "a number from 1, or a list of them"),
}
"""What models may say, and the file for all of them."""
_EACH = {
    "path": Key(one_or_more(text), 'a path or pattern such as "models/*.onnx", or a list of them'),
    "shapes": FEED_KEYS["shapes"],
    "inputs": Key(one_or_more(text), "the path of an .npz file, or a list of them: one for each size"),
}
_ONCE = {
    "models": Key(tables, "a list of tables: [[models]]"),
    "store": Key(text, "the path of an SQLite file"),
}
