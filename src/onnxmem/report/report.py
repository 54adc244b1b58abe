"""A report: what was found, as data. Renderers turn it into text, Markdown, HTML or JSON; it knows none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """Something to read, and the number behind it as the result document has it."""

    text: str
    value: int | float | None = None
    unit: str = ""
    """Of the value: bytes, seconds, fraction, or nothing for a plain count."""
    why: str = ""
    """Why there is no number, where one was expected."""


NOT_KNOWN = Cell("?", why="not known")


@dataclass(frozen=True)
class Fact:
    """One number that matters, with what it is and what to think of it."""

    label: str
    cell: Cell
    about: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False
    """Long and for reference: HTML folds it away, text and Markdown show its beginning."""

    def numeric(self, column: int) -> bool:
        """Does this column hold numbers? They are aligned on the right."""
        cells = [row[column] for row in self.rows]
        return any(cell.value is not None or cell.why for cell in cells)

    def without_empty_columns(self) -> Table:
        """The same without columns in which nothing is known and nobody says why."""
        kept = [k for k in range(len(self.columns)) if k == 0 or any(row[k] != NOT_KNOWN for row in self.rows)]
        rows = tuple(tuple(row[k] for k in kept) for row in self.rows)
        return Table(self.title, tuple(self.columns[k] for k in kept), rows, self.folded)


@dataclass(frozen=True)
class Chart:
    """A picture as data: its kind (a name in `charts.DRAWINGS`), what it shows in words, and what it is drawn from.

    Not yet drawn: text, Markdown and JSON need no drawing, and an installation without Altair can write them.
    """

    kind: str
    title: str
    alt: str
    """What one sees, for those who do not see it."""
    document: Document


@dataclass(frozen=True)
class Action:
    """What to do next, what that saves, and the command that does it."""

    text: str
    saving: str = ""
    """As a reader sees it: "120.5 MiB"."""
    command: str = ""


@dataclass(frozen=True)
class Section:
    """One result: the answer in a sentence, the numbers that matter, what to do, pictures, tables, and footnotes."""

    heading: str
    summary: str
    facts: tuple[Fact, ...] = ()
    """Three to five."""
    actions: tuple[Action, ...] = ()
    """One to three; none if there is nothing to gain."""
    story: tuple[str, ...] = ()
    """How it came about, in paragraphs."""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: Sequence[str] = ()
    alarm: bool = False
    """The summary is bad news: a crash, a plan that does not fit, answers that differ."""
    source: Document | None = None
    """The document it was built from; None for a section that compares others."""


@dataclass(frozen=True)
class Report:
    """Sections under one title."""

    title: str
    sections: tuple[Section, ...]

    @property
    def documents(self) -> tuple[Document, ...]:
        """The results it was built from, in order."""
        return tuple(section.source for section in self.sections if section.source is not None)

    def __repr__(self) -> str:
        return f"<Report {self.title!r}: {', '.join(section.heading for section in self.sections)[:100]}>"

    def _repr_html_(self) -> str | None:
        from onnxmem.report.render.to_html import result_html  # noqa: PLC0415

        return result_html(self)
