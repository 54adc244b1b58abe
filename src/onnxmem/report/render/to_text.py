"""A report as plain text."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from onnxmem.report.report import Report, Section, Table

WIDTH = 100
_SHOWN = 12


def render_text(report: Report, width: int = WIDTH) -> str:
    """Headings, sentences and tables; charts as what they show."""
    parts: list[RenderableType] = [Text(report.title), Text("=" * len(report.title))]
    for section in report.sections:
        parts += ["", Text(section.heading), Text("-" * len(section.heading)), *_section(section)]
    out = io.StringIO()
    # Names in models are text: Rich must read no styles or pictures in them.
    console = Console(file=out, width=width, markup=False, emoji=False, highlight=False, color_system=None)
    console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _section(section: Section) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(("! " if section.alarm else "") + section.summary)]
    parts += [Text(paragraph) for paragraph in section.story]
    if section.facts:
        facts = Grid(box=None, pad_edge=False, show_header=False)
        facts.add_column(no_wrap=True)
        facts.add_column(no_wrap=True, justify="right")
        facts.add_column(overflow="fold")
        for fact in section.facts:
            facts.add_row(Text(fact.label), Text(fact.cell.text), Text(fact.cell.why or fact.about))
        parts += ["", facts]
    for table in section.tables:
        parts += ["", Text(table.title), _grid(table)]
    if section.notes:
        parts += ["", *(Text(f"* {note}") for note in section.notes)]
    return parts


def _grid(table: Table) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for column, title in enumerate(table.columns):
        numeric = table.numeric(column)
        grid.add_column(Text(title), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    rows = table.rows[:_SHOWN] if table.folded else table.rows
    for row in rows:
        grid.add_row(*(Text(cell.text) for cell in row))
    if len(rows) < len(table.rows):
        grid.add_row(Text(f"… {len(table.rows) - len(rows)} more"), *("" for _ in table.columns[1:]))
    return grid
