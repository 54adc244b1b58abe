"""Problems and plans as CSV, in the form public placement instances use: `id,lower,upper,size[,offset][,shares]`.

`shares` lists the ids of the buffers that this one may be written over, separated by spaces; an id with a space in it
stands in quotes. It is written only where some buffer has any.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onnxmem.errors import PlanError, UsageError
from onnxmem.files import write_text
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Buffer, Problem
from onnxmem.placement.shares import named

_HEADER = ["id", "lower", "upper", "size"]


def is_table(path: Path) -> bool:
    """Is this a CSV rather than a model? By its ending, or by its first line."""
    if path.suffix.lower() == ".csv":
        return True
    if not path.is_file():
        return False  # a pipe can be read only once, and may never say anything
    try:
        with path.open("rb") as file:
            return file.read(128).lstrip(b"\xef\xbb\xbf").startswith(b"id,")
    except OSError:
        return False  # whoever reads it as a model will say what is wrong


def read_problem(path: str | PathLike[str], *, alignment: int = 1, capacity: int | None = None) -> Problem:
    """The placement problem in a CSV file, with what a `shares` column allows; an `offset` column is ignored."""
    rows = list(_rows(Path(path), _HEADER))
    return Problem.of((row.buffer for row in rows), alignment=alignment, capacity=capacity, shares=_pairs(path, rows))


def read_plan(path: str | PathLike[str], *, alignment: int = 1) -> Plan:
    """The plan in a CSV file with an `offset` column."""
    rows = list(_rows(Path(path), [*_HEADER, "offset"]))
    problem = Problem.of((row.buffer for row in rows), alignment=alignment, shares=_pairs(path, rows))
    return Plan(problem, np.array([row.offset for row in rows], dtype=np.int64), "csv")


def write_problem(problem: Problem, path: str | PathLike[str]) -> None:
    """Write a problem's buffers, and which may share a place."""
    _write(Path(path), [_HEADER, *problem], problem)


def write_plan(plan: Plan, path: str | PathLike[str]) -> None:
    """Write a plan's buffers with their offsets, and which may share a place."""
    rows = ((*b, o) for b, o in zip(plan.problem, plan.offsets.tolist(), strict=True))
    _write(Path(path), [[*_HEADER, "offset"], *rows], plan.problem)


def _write(path: Path, rows: Iterable[Iterable[object]], problem: Problem) -> None:
    if len(problem.shares):
        befores: list[list[str]] = [[] for _ in problem.ids]
        for before, after in problem.shares.tolist():
            befores[after].append(problem.ids[before])
        cells = ["shares", *(_line(names, " ").rstrip("\n") for names in befores)]
        rows = [[*row, cell] for row, cell in zip(rows, cells, strict=True)]
    write_text(path, "".join(_line(row, ",") for row in rows))


def _line(cells: Iterable[object], separator: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerow(cells)
    return text.getvalue()


class _Row(NamedTuple):
    buffer: Buffer
    offset: int
    """0 where the file has none."""
    shares: str


def _pairs(path: str | PathLike[str], rows: list[_Row]) -> list[tuple[int, int]]:
    """The pairs of rows that the `shares` column names."""
    readers = (csv.reader([row.shares], delimiter=" ", skipinitialspace=True) for row in rows)
    befores = [[name for name in next(_read(reader, path), []) if name] for reader in readers]
    try:
        return named([row.buffer.id for row in rows], befores)
    except PlanError as error:
        raise PlanError(f"'{path}': {error}") from error


def _read(reader: Any, path: str | PathLike[str]) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:  # a field of more than 128 KiB, say
        raise PlanError(f"'{path}' line {reader.line_num}: {error}") from error


def _rows(path: Path, needed: list[str]) -> Iterator[_Row]:
    """Each line in turn, with the line number in every complaint."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read '{path}': {reason}") from error
    reader = _read(csv.reader(lines), path)
    header = [name.strip() for name in next(reader, [])]
    if missing := [name for name in needed if name not in header]:
        raise PlanError(
            f"'{path}' has no column '{missing[0]}' in its first line",
            hint="a placement CSV starts with: id,lower,upper,size (and offset, for a plan)",
        )
    columns = [header.index(name) for name in _HEADER]
    offset_column = header.index("offset") if "offset" in header else None
    shares_column = header.index("shares") if "shares" in header else None
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
        yield _Row(Buffer(name, lower, upper, size), offset, "" if shares_column is None else row[shares_column])


def _integer(text: str) -> int:
    # int() alone would also take "1_000" and a thousand digits.
    if not text.removeprefix("-").isdecimal() or len(text) > 20 or abs(value := int(text)) > LARGEST:
        raise ValueError(f"'{text[:40]}' is not a 64-bit integer")
    return value
