"""What every verb returns: a frozen record that knows its schema, and where, when and by which command it was made."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, ClassVar, Self

from onnxmem.documents import Document, Record
from onnxmem.environment import Environment, read_environment
from onnxmem.errors import UsageError
from onnxmem.shown import Shown

_LINE = 120


def command_line() -> str:
    """The command that this process was started with, as one would type it."""
    program = PurePath(sys.argv[0] or "python").name
    return shlex.join(["onnxmem" if program == "__main__.py" else program, *sys.argv[1:]])


def now() -> str:
    """The date, as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Result(Record, Shown):
    """The result of a verb. Saved as JSON it comes back equal; notebooks show it as a report."""

    SCHEMA: ClassVar[str]
    """`onnxmem.measure/1`: a name, and a number that changes when readers of older documents would be misled."""

    environment: Environment = field(default_factory=read_environment)
    command: str = field(default_factory=command_line)
    date: str = field(default_factory=now)

    def __init_subclass__(cls) -> None:
        # Before the dataclass writes its own, which would be pages long.
        if "__repr__" not in vars(cls):
            cls.__repr__ = _one_line  # type: ignore[assignment]

    def document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {"schema": self.SCHEMA, **super().document()}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The result that `document` wrote."""
        check_schema(document, cls.SCHEMA)
        return super().from_document(document)


def _one_line(result: Result) -> str:
    """What it is, and its plain figures as far as they fit."""
    plain = [(name, value) for name, value in vars(result).items() if name not in ("command", "date")]
    listed = ", ".join(f"{name}={value!r}" for name, value in plain if isinstance(value, int | float | str))
    text = f"{type(result).__name__}{f': {listed}' if listed else ''}"
    return f"<{text if len(text) <= _LINE else text[: _LINE - 1] + '…'}>"


def check_schema(document: Document, schema: str) -> None:
    """Raise UsageError unless this is a document of that schema."""
    given = document.get("schema") if isinstance(document, Mapping) else None
    if given == schema:
        return
    name, _, number = str(given).partition("/")
    if name == schema.partition("/")[0] and number.isdigit():
        raise UsageError(f"'{given}' was written by a newer onnxmem", hint="pip install --upgrade onnxmem")
    raise UsageError(f"this is not a document of '{schema}'", hint="results are what verbs print with --json")
