"""From a result document to its section: one builder per schema, found by the schema's name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from onnxmem.errors import UsageError
from onnxmem.report.cells import words
from onnxmem.report.damaged import whole
from onnxmem.report.names import printable
from onnxmem.report.report import Document, Section

BUILDERS = {"estimate": "plan:estimate_section", "plan": "plan:plan_section", "trace": "trace:section",
            "measure": "measure:section", "explain": "explain:section",
            "release": "release:section", "track": "release:track_section",
            "demonstrate": "release:demonstration_section", "share": "share:section", "compare": "compare:section",
            "fit": "fit:section",
            "package": "package:section", "convert": "package:conversion_section",
            "zoo": "package:zoo_section", "check": "check:section", "history": "history:section",
            "sweep": "sweep:section", "sweep_status": "sweep:status_section",
            "sweep_plan": "sweep:plan_section"}  # fmt: skip
"""Where in this folder the section of each schema is built: version 1 of `onnxmem.` + its name."""

_VERSION = 1
_NOTES = 14


def section(document: Document) -> Section:
    """The section for a document of any known schema."""
    kind = check_schema(document)
    file, function = BUILDERS[kind].split(":")
    build: Callable[[Document], Section] = getattr(importlib.import_module(f"onnxmem.report.sections.{file}"), function)
    with whole(kind):
        built = build(document)
        tables = tuple(table for table in built.tables if table.rows)
        shown: Section = printable_texts(replace(built, tables=tables, notes=few(built.notes)))
        return replace(shown, source=document)


def printable_texts(value: Any) -> Any:
    """The same with all its texts printable: builders see to that, and one place that was forgotten would be enough."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, tuple | list):
        return tuple(map(printable_texts, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: printable_texts(getattr(value, each.name)) for each in fields(value)})
    return value


def check_schema(document: Document) -> str:
    """Which verb wrote this? An error for what nobody or a newer onnxmem wrote."""
    schema = document.get("schema")
    known = ", ".join(f"onnxmem.{kind}/{_VERSION}" for kind in BUILDERS)
    if not isinstance(schema, str):
        raise UsageError("this is no result of onnxmem: it names no schema", hint=f"known: {known}")
    kind, _, version = schema.removeprefix("onnxmem.").partition("/")
    if not schema.startswith("onnxmem.") or kind not in BUILDERS or not version.isdecimal():
        raise UsageError(f"there is no report on '{words(schema, 60)}'", hint=f"known: {known}")
    if int(version) > _VERSION:
        raise UsageError(
            f"'{words(schema, 60)}' was written by a newer onnxmem",
            hint=f"this one reads onnxmem.{kind}/{_VERSION}: update it, or measure again",
        )
    return kind


def few(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes without repetitions, and not more than anyone would read."""
    unique = [note for note in dict.fromkeys(notes) if note]
    if len(unique) <= _NOTES:
        return tuple(unique)
    return (*unique[:_NOTES], f"… and {len(unique) - _NOTES} more; the JSON has them all.")
