"""A report as Markdown, for issues, pull requests and wikis."""

from __future__ import annotations

import re

from onnxmem.report.report import Action, Report, Section, Table

_SHOWN = 12
# All that could begin a heading, a list, a link, a picture, code, emphasis, a table cell or markup; what stands between
# letters and digits as in "steady-runs" or "1.5" is left readable. An "@" would call people, "://" make a link.
_MEANT = re.compile(r"([\\`*_{}\[\]()#!|~$@])")
_LINK = re.compile(r"://|www\.", re.IGNORECASE)


def render_markdown(report: Report) -> str:
    """Headings, sentences and tables; charts as what they show."""
    lines = [f"# {escape(report.title)}", ""]
    for section in report.sections:
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MEANT.sub(r"\\\1", text)
    # A zero-width character would spoil copying; the named colon and dot do not.
    return _LINK.sub(lambda found: found[0].replace(":", "&#58;").replace(".", "&#46;"), text)


def _section(section: Section) -> list[str]:
    alarm = "**Attention:** " if section.alarm else ""
    lines = [f"## {escape(section.heading)}", "", f"{alarm}{escape(section.summary)}", ""]
    if section.facts:
        rows = [(f.label, f.cell.text, f.cell.why or f.about) for f in section.facts]
        lines += ["| | | |", "|---|--:|---|"]
        lines += [f"| {escape(label)} | {escape(value)} | {escape(about)} |" for label, value, about in rows]
        lines.append("")
    if section.actions:
        lines += ["**Do this next**", "", *map(_action, section.actions), ""]
    for paragraph in section.story:
        lines += [escape(paragraph), ""]
    for table in section.tables:
        lines += _table(table)
    for chart in section.charts:
        lines += [f"*{escape(chart.title)}.* {escape(chart.alt)}", ""]
    if section.notes:
        lines += [*(f"- {escape(note)}" for note in section.notes), ""]
    return lines


def _action(action: Action) -> str:
    saving = f": saves {action.saving}" if action.saving else ""
    return f"1. {escape(action.text + saving)}" + (f" ({escape(action.command)})" if action.command else "")


def _table(table: Table) -> list[str]:
    return [f"### {escape(table.title)}", "", *table_lines(table), ""]


def table_lines(table: Table) -> list[str]:
    """Its columns and rows; of one that is folded away only the beginning."""
    lines = [f"| {' | '.join(map(escape, table.columns))} |"]
    lines.append("|" + "|".join("--:" if table.numeric(k) else "---" for k in range(len(table.columns))) + "|")
    rows = table.rows[:_SHOWN] if table.folded else table.rows
    lines += [f"| {' | '.join(escape(cell.text) for cell in row)} |" for row in rows]
    if len(rows) < len(table.rows):
        lines += ["", f"… and {len(table.rows) - len(rows)} more."]
    return lines
