"""A report for a terminal, and without colours as plain text: the same sections as the page, in the width there is."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from onnxmem.report.damaged import verb_of, whole
from onnxmem.report.report import Action, Cell, Chart, Fact, Report, Section, Table
from onnxmem.units import format_bytes

TEXT_WIDTH = 100
_ROWS = 12
_GAP = 2
# A name may be wrapped, but not into shreds.
_NAME = 16
_MIB = 2**20


def render_text(report: Report, width: int = TEXT_WIDTH) -> str:
    """The report as plain text, for a file."""
    title = "" if len(report.sections) > 1 else f"{report.title}\n{'=' * cell_len(report.title)}\n\n"
    return title + render_terminal(report, width=width)


def render_terminal(report: Report, *, width: int, colour: bool = False) -> str:
    """The sections, each with its answer first; with `colour`, in ANSI's. Lines are no longer than `width`."""
    parts: list[RenderableType] = []
    if len(report.sections) > 1:
        parts += ["", Text(report.title, style="bold"), Text("=" * min(cell_len(report.title), width))]
    for section in report.sections:
        parts += ["", *_section(section, width, colour)]
    out = io.StringIO()
    # Names in models are text: Rich must read no styles or pictures in them.
    console = Console(
        file=out,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        force_terminal=colour,
        color_system="256" if colour else None,
        legacy_windows=False,
    )
    console.print(Group(*parts[1:]))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _section(section: Section, width: int, colour: bool) -> Iterable[RenderableType]:
    yield Text(section.heading, style="bold underline" if colour else "")
    if not colour:
        yield Text("─" * min(cell_len(section.heading), width))
    yield Text(("! " if section.alarm else "") + section.summary, style="bold red" if section.alarm else "bold")
    if section.facts:
        yield from ("", _facts(section.facts))
    if section.actions:
        yield from ("", Text("Do this next", style="bold"), _list("→", map(_action, section.actions)))
    for paragraph in section.story:
        yield from ("", Text(paragraph))
    for chart in section.charts:
        with whole(verb_of(chart.document)):
            drawn = list(_chart(chart, width, colour))
        yield from drawn
    for table in section.tables:
        yield from ("", *_table(table, width))
    if section.notes:
        yield from ("", _list("*", (Text(note, style="dim") for note in section.notes)))


def _facts(facts: Sequence[Fact]) -> Grid:
    grid = _grid()
    grid.add_column(overflow="fold", max_width=40)
    grid.add_column(no_wrap=True, justify="right", style="bold")
    grid.add_column(overflow="fold", style="dim")
    for fact in facts:
        grid.add_row(Text(fact.label), Text(fact.cell.text), Text(fact.cell.why or fact.about))
    return grid


def _action(action: Action) -> RenderableType:
    saving = f": saves {action.saving}" if action.saving else ""
    text = Text(f"{action.text}{saving}", style="green")
    return Group(text, Text(action.command, style="bold")) if action.command else text


def _list(sign: str, items: Iterable[RenderableType]) -> Grid:
    grid = Grid(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for item in items:
        grid.add_row(sign, item)
    return grid


def _chart(chart: Chart, width: int, colour: bool) -> Iterable[RenderableType]:
    """The memory map and what fits, in characters. What other pictures show stands in tables."""
    if chart.kind == "memory map":
        from onnxmem.report.charts.memory_map import plan_of  # noqa: PLC0415
        from onnxmem.report.charts.terminal_map import terminal_map  # noqa: PLC0415

        rows = chart.document["placement"]
        drawn = terminal_map(plan_of(chart.document), width, color=colour, placement=rows)
        yield from ("", Text(chart.title, style="bold"), Text.from_ansi(drawn) if colour else Text(drawn))
    elif chart.kind == "fit":
        from onnxmem.report.charts.terminal_bars import terminal_bars  # noqa: PLC0415

        modes = chart.document["answer"]["modes"]
        bars = [(mode["mode"], mode["holds"] or 0, f"{mode['holds']:,}" if mode["holds"] else "none") for mode in modes]
        if chart.document["budget_bytes"] is None:
            last = [(mode["mode"], mode["points"][-1]) for mode in modes]
            bars = [(name, p["bytes"], f"{format_bytes(p['bytes'])} at {p['size']:,}") for name, p in last]
        drawn = "\n".join(terminal_bars(bars, width))
        yield from ("", Text(chart.title, style="bold"), Text(drawn))


def _table(table: Table, width: int) -> Iterable[RenderableType]:
    """A table that is as wide as there is room: names wrap, then sizes are all in MiB, then columns fold below."""
    blocks, title = _blocks(table, width), table.title
    if len(blocks) > 1 and len(in_mib := _blocks(smaller := _in_mib(table), width)) < len(blocks):
        table, blocks, title = smaller, in_mib, f"{table.title} (MiB)"
    yield Text(title, style="bold")
    for number, columns in enumerate(blocks):
        yield from ([""] if number else [])
        yield _block(table, columns, width)
    if len(rest := table.rows[_shown(table) :]):
        yield Text(f"… and {len(rest):,} more", style="dim")


def _shown(table: Table) -> int:
    return _ROWS if table.folded else len(table.rows)


def _blocks(table: Table, width: int) -> list[list[int]]:
    """Which columns stand beside each other: the first in every block, and as many as fit without losing a digit."""
    first = _needs(table, 0)
    blocks, room = [[0]], width - first
    for column in range(1, len(table.columns)):
        need = _needs(table, column) + _GAP
        if need > room and len(blocks[-1]) > 1:
            blocks, room = [*blocks, [0]], width - first
        blocks[-1].append(column)
        room -= need
    return blocks


def _needs(table: Table, column: int) -> int:
    """The least width in which a column loses nothing: numbers whole, names and words wrapped."""
    cells = [cell_len(row[column].text) for row in table.rows[: _shown(table)]]
    heading = max(map(cell_len, table.columns[column].split()), default=0)
    widest = max(cells, default=0)
    return max(heading, widest if table.numeric(column) else min(widest, _NAME))


def _wants(table: Table, column: int) -> int:
    cells = [cell_len(row[column].text) for row in table.rows[: _shown(table)]]
    return max([_needs(table, column), cell_len(table.columns[column]), *cells])


def _block(table: Table, columns: Sequence[int], width: int) -> Grid:
    widths = [_needs(table, column) for column in columns]
    spare = width - sum(widths) - _GAP * (len(columns) - 1)
    lacks = [_wants(table, column) - widths[place] for place, column in enumerate(columns)]
    # Who lacks little gets it, and what is left is shared: one column of long names would take all of it.
    for done, place in enumerate(sorted(range(len(columns)), key=lacks.__getitem__)):
        more = min(max(spare, 0) // (len(columns) - done), lacks[place])
        widths[place], spare = widths[place] + more, spare - more
    grid = _grid(header=True)
    for place, column in enumerate(columns):
        heading = Text(table.columns[column])
        grid.add_column(
            heading, justify="right" if table.numeric(column) else "left", width=widths[place], overflow="fold"
        )
    for row in table.rows[: _shown(table)]:
        grid.add_row(*(Text(row[column].text) for column in columns))
    return grid


def _grid(*, header: bool = False) -> Grid:
    return Grid(box=None, pad_edge=False, show_header=header, header_style="dim", padding=(0, _GAP, 0, 0))


def _in_mib(table: Table) -> Table:
    """The same with every size as a number of MiB: the unit stands above instead of in each cell."""

    def number(cell: Cell) -> Cell:
        if cell.unit != "bytes" or cell.value is None:
            return cell
        text = f"{round(cell.value / _MIB, 1) + 0.0:.1f}"
        # What rounds to nothing but is not nothing says so.
        return Cell("< 0.1" if text == "0.0" and cell.value else text, cell.value, cell.unit)

    rows = tuple(tuple(map(number, row)) for row in table.rows)
    return Table(table.title, table.columns, rows, table.folded)
