"""Problems and plans as CSV, in the form public placement instances use: `id,lower,upper,size[,offset]`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

import numpy as np

from onnxmem.errors import PlanError, UsageError
from onnxmem.files import write_text
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Buffer, Problem

_HEADER = ["id", "lower", "upper", "size"]


def is_table(path: Path) -> bool:
    """Is this a CSV rather than a model? By its ending, or by its first line."""
    if path.suffix.lower() == ".csv":
        return True
    try:
        with path.open("rb") as file:
            return file.read(128).lstrip(b"\xef\xbb\xbf").startswith(b"id,")
    except OSError:
        return False  # whoever reads it as a model will say what is wrong


def read_problem(path: str | PathLike[str], *, alignment: int = 1, capacity: int | None = None) -> Problem:
    """The placement problem in a CSV file; an `offset` column is ignored."""
    return Problem.of((buffer for buffer, _ in _rows(Path(path), _HEADER)), alignment=alignment, capacity=capacity)


def read_plan(path: str | PathLike[str], *, alignment: int = 1) -> Plan:
    """The plan in a CSV file with an `offset` column."""
    rows = list(_rows(Path(path), [*_HEADER, "offset"]))
    problem = Problem.of((buffer for buffer, _ in rows), alignment=alignment)
    return Plan(problem, np.array([offset for _, offset in rows], dtype=np.int64), "csv")


def write_problem(problem: Problem, path: str | PathLike[str]) -> None:
    """Write a problem's buffers."""
    _write(Path(path), [_HEADER, *problem])


def write_plan(plan: Plan, path: str | PathLike[str]) -> None:
    """Write a plan's buffers with their offsets."""
    _write(
        Path(path), [[*_HEADER, "offset"], *((*b, o) for b, o in zip(plan.problem, plan.offsets.tolist(), strict=True))]
    )


def _write(path: Path, rows: Iterable[Iterable[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def _rows(path: Path, needed: list[str]) -> Iterator[tuple[Buffer, int]]:
    """Each line's buffer and offset (0 where the file has none), with the line number in every complaint."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read '{path}': {reason}") from error
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    if missing := [name for name in needed if name not in header]:
        raise PlanError(
            f"'{path}' has no column '{missing[0]}' in its first line",
            hint="a placement CSV starts with: id,lower,upper,size (and offset, for a plan)",
        )
    columns = [header.index(name) for name in _HEADER]
    offset_column = header.index("offset") if "offset" in header else None
    for line, row in enumerate(reader, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise PlanError(f"'{path}' line {line} has {len(row)} fields instead of {len(header)}")
        name, *numbers = (row[column].strip() for column in columns)
        try:
            lower, upper, size = (_integer(number) for number in numbers)
            offset = 0 if offset_column is None else _integer(row[offset_column].strip())
        except ValueError as error:
            raise PlanError(f"'{path}' line {line}: {error}") from error
        yield Buffer(name, lower, upper, size), offset


def _integer(text: str) -> int:
    # int() alone would also take "1_000" and a thousand digits.
    if not text.removeprefix("-").isdecimal() or len(text) > 20 or abs(value := int(text)) > LARGEST:
        raise ValueError(f"'{text[:40]}' is not a 64-bit integer")
    return value
